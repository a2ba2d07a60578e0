"""Members of FROM: relations, subqueries, VALUES, functions and members of WITH."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.plan.expr import Col, ValueType
from applier.plan.nodes import Field, Project, Scan, Unnest, fields
from applier.sql.analyze.sources import Sources, check_source, inside_view
from applier.sql.analyze.system_catalog import RelationInfo, SystemCatalog
from applier.sql.bind.joins import JoinMember, JoinScope, no_rows
from applier.sql.bind.recursion import RecursionBinder
from applier.sql.bind.table_functions import TableFunctions
from applier.sql.bind.values import always_true, bind_per_row, bind_standalone, bind_values
from applier.sql.decorrelate.domain import BuildQuery, Levels
from applier.sql.decorrelate.lateral import LateralJoins, LateralMember
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler

MOST_MEMBERS = 200
"""A member of WITH is planned anew wherever it is named; names of names of names grow without bounds."""


class FromItems:
    """Plans the members of FROM; `query` builds a query."""

    def __init__(
        self,
        catalog: SystemCatalog,
        sources: Sources,
        query: BuildQuery,
        laterals: LateralJoins,
        recursions: RecursionBinder,
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._query = query
        self._laterals = laterals
        self._recursions = recursions
        self._counted = 0

    def leaning(
        self,
        frame: JoinScope,
        number: int,
        reads: Sequence[int],
        levels: Levels,
        *,
        on: Sequence[tree.Expression] | None,
    ) -> JoinScope:
        """A member of FROM that looks at those before it, beside them."""
        self.count()
        entry = levels[-1].entries[number - 1]
        conditions = () if on is None else [c for c in on if not always_true(c)]
        match entry:
            case query_tree.SubqueryEntry(query=query):
                beside = LateralMember(number, query, reads, on is not None, tuple(conditions))
                return self._laterals.put(frame, beside, levels)
            case query_tree.FunctionEntry() if not conditions:
                return self._unfolded(frame, number, levels[-1], outer=on is not None)
            case query_tree.ValuesEntry() if on is None:
                return self._written_beside(frame, number, entry, reads, levels)
            case query_tree.FunctionEntry() | query_tree.ValuesEntry():
                # As a subquery it may have a condition.
                width = max(reads, default=1)
                beside = LateralMember(number, bind_standalone(entry, width), reads, True, tuple(conditions))
                return self._laterals.put(frame, beside, levels)
            case _:
                raise Refused(Reason.CONSTRUCT, "LATERAL", hint="join the tables instead")

    def _written_beside(
        self, frame: JoinScope, number: int, entry: query_tree.ValuesEntry, reads: Sequence[int], levels: Levels
    ) -> JoinScope:
        flat, compiler = Flattener(levels[-1].entries), ExpressionCompiler(self._catalog, frame.scope)
        rows = [[compiler.compile(flat(row[r - 1])) for r in reads] for row in entry.rows]
        width = len(fields(frame.node))
        node = bind_per_row(frame.node, rows, [self._catalog.pg_type(*entry.types[r - 1]) for r in reads])
        places = frame.ordinals | {(number, r): width + i for i, r in enumerate(reads)}
        return replace(frame, node=node, ordinals=places, entries=frame.entries | {number})

    def _unfolded(self, frame: JoinScope, number: int, query: query_tree.Query, *, outer: bool) -> JoinScope:
        entry = query.entries[number - 1]
        if not isinstance(entry, query_tree.FunctionEntry):
            raise Refused(Reason.CONSTRUCT, "LATERAL", hint="join the tables instead")
        flat = Flattener(query.entries)
        calls = replace(entry, calls=tuple(map(flat, entry.calls)))
        sets = TableFunctions(self._catalog, ExpressionCompiler(self._catalog, frame.scope)).of_entry(calls)
        node = Unnest(frame.node, sets, entry.ordinality, outer)
        width, count = len(fields(frame.node)), len(sets) + entry.ordinality
        places = frame.ordinals | {(number, i + 1): width + i for i in range(count)}
        return replace(frame, node=node, ordinals=places, entries=frame.entries | {number})

    def upright(self, number: int, reads: Sequence[int], levels: Levels) -> JoinMember:
        """A member of FROM that stands by itself, with the columns that are read."""
        self.count()
        match levels[-1].entries[number - 1]:
            case query_tree.TableEntry() as entry:
                return self._relation(number, entry, reads)
            case query_tree.SubqueryEntry(query=query):
                return self._subquery(number, query, reads, levels)
            case query_tree.ValuesEntry() as entry:
                return JoinMember(number, bind_values(entry, reads, self._catalog), {r: i for i, r in enumerate(reads)})
            case query_tree.DomainEntry(node=node):
                return JoinMember(number, node, {i: i - 1 for i in range(1, 1 + len(fields(node)))})
            case query_tree.FunctionEntry():
                frame = self._unfolded(no_rows(), number, levels[-1], outer=False)
                return JoinMember(number, frame.node, {n: at for (_, n), at in frame.ordinals.items()})
            case query_tree.CteEntry(name=name, levels_up=up):
                holders = levels[: len(levels) - up]
                if not holders or name not in holders[-1].ctes:
                    raise unknown("a name of no WITH")
                if name in holders[-1].recursive:
                    return self._recursions.member(number, name, reads, holders)
                return self._subquery(number, holders[-1].ctes[name], reads, holders)
            case _:
                raise unknown("a member of FROM that is neither a relation nor a subquery")

    def count(self) -> None:
        """Note one more member."""
        self._counted += 1
        if self._counted > MOST_MEMBERS:
            hint = "store a part of it as a stream table of its own"
            construct = f"a query with more than {MOST_MEMBERS} members of FROM"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, place=Place.start())

    def _relation(self, number: int, entry: query_tree.TableEntry, reads: Sequence[int]) -> JoinMember:
        relation = self._sources.relations.get(entry.relation)
        if relation is None:
            raise Refused(Reason.SOURCE, f"the relation {entry.name}", hint="it was dropped meanwhile")
        check_source(relation, entry.with_children)
        if relation.kind != "v":
            return _scan(number, relation, reads)
        with inside_view(relation):
            return self._subquery(number, self._sources.views[relation.oid], reads, ())

    def _subquery(self, number: int, query: query_tree.Query, reads: Sequence[int], outer: Levels) -> JoinMember:
        built = self._query(query, [r - 1 for r in reads], outer)
        if all(isinstance(e, Col) and e.type == fields(built.node)[e.ordinal].type for e in built.exprs):
            places = {r: e.ordinal for r, e in zip(reads, built.exprs, strict=True) if isinstance(e, Col)}
            return JoinMember(number, built.node, places)
        return JoinMember(number, Project(built.node, built.exprs), {r: i for i, r in enumerate(reads)})


def _scan(number: int, relation: RelationInfo, reads: Sequence[int]) -> JoinMember:
    columns = [relation.column(n) for n in reads]
    found = [c for c in columns if c is not None]
    if len(found) != len(columns):
        raise Refused(Reason.COLUMN, f"a dropped column of {relation.table}", hint="define the view again")
    for column in found:
        if column.generated:
            hint = "it does not travel; write its expression in the query"
            raise Refused(Reason.COLUMN, f"the generated column {relation.table}.{column.name}", hint=hint)
    place = {c.number: i for i, c in enumerate(found)}
    has_key = bool(relation.key) and all(n in place for n in relation.key)
    scan = Scan(
        table=relation.table,
        relid=relation.oid,
        columns=tuple(c.name for c in found),
        fields=tuple(Field(ValueType.of_column(c.type), not c.not_null) for c in found),
        key=tuple(place[n] for n in relation.key) if has_key else None,
    )
    return JoinMember(number, scan, place)
