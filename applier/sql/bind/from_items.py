"""FROM items (relations, subqueries, VALUES, functions and WITH queries) -> plan nodes and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from applier.plan.expr import Col, ValueType
from applier.plan.nodes import ColumnName, Field, Project, Scan, Unnest, fields, named
from applier.sql.bind.joins import JoinItem, JoinScope, empty_from
from applier.sql.bind.recursion import RecursionBinder
from applier.sql.bind.table_functions import TableFunctions
from applier.sql.bind.values import bind_values, cross_join_values, is_true_literal, wrap_in_subquery
from applier.sql.catalog_snapshot import CatalogSnapshot, RelationInfo
from applier.sql.decorrelate.domain import BindQuery, Levels
from applier.sql.decorrelate.lateral import LateralItem, LateralJoins
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.sources import Sources, check_source, inside_view
from applier.sql.typing.compile import ExpressionCompiler

MAX_FROM_ITEMS = 200
"""A WITH query is bound at every reference, so WITH queries that read WITH queries can grow exponentially."""


class FromItems:
    """Binds FROM items; `bind_query` binds a query."""

    def __init__(
        self,
        catalog: CatalogSnapshot,
        sources: Sources,
        bind_query: BindQuery,
        laterals: LateralJoins,
        recursions: RecursionBinder,
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._bind_query = bind_query
        self._laterals = laterals
        self._recursions = recursions
        self._item_count = 0

    def join_lateral(
        self,
        scope: JoinScope,
        number: int,
        reads: Sequence[int],
        levels: Levels,
        *,
        on: Sequence[tree.Expression] | None,
    ) -> JoinScope:
        """Join a LATERAL item to the scope of the items before it; `on` is None in an inner join."""
        self.count_item()
        entry = levels[-1].entries[number - 1]
        joined = self._join_entry(scope, number, reads, levels, entry, on=on)
        ordinals = {read: ordinal for (item, read), ordinal in joined.ordinals.items() if item == number}
        return replace(joined, node=named(joined.node, _column_names(entry, ordinals)))

    def _join_entry(
        self,
        scope: JoinScope,
        number: int,
        reads: Sequence[int],
        levels: Levels,
        entry: query_tree.RangeTblEntry,
        *,
        on: Sequence[tree.Expression] | None,
    ) -> JoinScope:
        conditions = () if on is None else [c for c in on if not is_true_literal(c)]
        match entry:
            case query_tree.SubqueryEntry(query=query):
                item = LateralItem(number, query, reads, on is not None, tuple(conditions))
                return self._laterals.join(scope, item, levels)
            case query_tree.FunctionEntry() if not conditions:
                return self._unnest(scope, number, levels[-1], outer=on is not None)
            case query_tree.ValuesEntry() if on is None:
                return self._join_values(scope, number, entry, reads, levels)
            case query_tree.FunctionEntry() | query_tree.ValuesEntry():
                # A subquery can be joined with a condition.
                width = max(reads, default=1)
                item = LateralItem(number, wrap_in_subquery(entry, width), reads, True, tuple(conditions))
                return self._laterals.join(scope, item, levels)
            case _:
                raise Refused(Reason.CONSTRUCT, "LATERAL", hint="join the tables instead")

    def _join_values(
        self, scope: JoinScope, number: int, entry: query_tree.ValuesEntry, reads: Sequence[int], levels: Levels
    ) -> JoinScope:
        flatten, compiler = Flattener(levels[-1].entries), ExpressionCompiler(self._catalog, scope.resolve)
        rows = [[compiler.compile(flatten(row[r - 1])) for r in reads] for row in entry.rows]
        width = len(fields(scope.node))
        node = cross_join_values(scope.node, rows, [self._catalog.pg_type(*entry.types[r - 1]) for r in reads])
        ordinals = scope.ordinals | {(number, r): width + i for i, r in enumerate(reads)}
        return replace(scope, node=node, ordinals=ordinals, entries=scope.entries | {number})

    def _unnest(self, scope: JoinScope, number: int, query: query_tree.Query, *, outer: bool) -> JoinScope:
        entry = query.entries[number - 1]
        if not isinstance(entry, query_tree.FunctionEntry):
            raise Refused(Reason.CONSTRUCT, "LATERAL", hint="join the tables instead")
        flatten = Flattener(query.entries)
        calls = replace(entry, calls=tuple(map(flatten, entry.calls)))
        functions = TableFunctions(self._catalog, ExpressionCompiler(self._catalog, scope.resolve)).bind_entry(calls)
        node = Unnest(scope.node, functions, entry.ordinality, outer)
        width, count = len(fields(scope.node)), len(functions) + entry.ordinality
        ordinals = scope.ordinals | {(number, i + 1): width + i for i in range(count)}
        return replace(scope, node=node, ordinals=ordinals, entries=scope.entries | {number})

    def bind_item(self, number: int, reads: Sequence[int], levels: Levels) -> JoinItem:
        """Bind an item that reads no other item, with the columns that are read."""
        self.count_item()
        item = self._bind_entry(number, reads, levels)
        names = _column_names(levels[-1].entries[number - 1], item.ordinals)
        return replace(item, node=named(item.node, names))

    def _bind_entry(self, number: int, reads: Sequence[int], levels: Levels) -> JoinItem:
        match levels[-1].entries[number - 1]:
            case query_tree.TableEntry() as entry:
                return self._bind_relation(number, entry, reads)
            case query_tree.SubqueryEntry(query=query):
                return self._bind_subquery(number, query, reads, levels)
            case query_tree.ValuesEntry() as entry:
                return JoinItem(number, bind_values(entry, reads, self._catalog), {r: i for i, r in enumerate(reads)})
            case query_tree.DomainEntry(node=node):
                return JoinItem(number, node, {i: i - 1 for i in range(1, 1 + len(fields(node)))})
            case query_tree.FunctionEntry():
                scope = self._unnest(empty_from(), number, levels[-1], outer=False)
                return JoinItem(number, scope.node, {n: at for (_, n), at in scope.ordinals.items()})
            case query_tree.CteEntry(name=name, levels_up=up):
                holders = levels[: len(levels) - up]
                if not holders or name not in holders[-1].ctes:
                    raise unknown("a reference to a WITH query that does not exist")
                if name in holders[-1].recursive:
                    return self._recursions.bind_reference(number, name, reads, holders)
                return self._bind_subquery(number, holders[-1].ctes[name], reads, holders)
            case _:
                raise unknown("a FROM item that is neither a relation nor a subquery")

    def count_item(self) -> None:
        """Count one more FROM item; refuse the query when there are too many."""
        self._item_count += 1
        if self._item_count > MAX_FROM_ITEMS:
            hint = "create a stream table for a part of it"
            construct = f"a query with more than {MAX_FROM_ITEMS} FROM items"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, place=Place.start())

    def _bind_relation(self, number: int, entry: query_tree.TableEntry, reads: Sequence[int]) -> JoinItem:
        relation = self._sources.relations.get(entry.relation)
        if relation is None:
            raise Refused(Reason.SOURCE, f"the relation {entry.name}", hint="it was dropped in the meantime")
        check_source(relation, entry.with_children)
        if relation.kind != "v":
            return _scan(number, relation, reads)
        with inside_view(relation):
            return self._bind_subquery(number, self._sources.views[relation.oid], reads, ())

    def _bind_subquery(self, number: int, query: query_tree.Query, reads: Sequence[int], outer: Levels) -> JoinItem:
        built = self._bind_query(query, [r - 1 for r in reads], outer)
        if all(isinstance(e, Col) and e.type == fields(built.node)[e.ordinal].type for e in built.exprs):
            ordinals = {r: e.ordinal for r, e in zip(reads, built.exprs, strict=True) if isinstance(e, Col)}
            return JoinItem(number, built.node, ordinals)
        return JoinItem(number, Project(built.node, built.exprs), {r: i for i, r in enumerate(reads)})


def _column_names(entry: query_tree.RangeTblEntry, ordinals: Mapping[int, int]) -> dict[int, ColumnName]:
    """Return the query's names of the columns, by their ordinals."""
    item, columns = entry.alias
    # PostgreSQL's own name for VALUES without an alias.
    item = "values" if item == "*VALUES*" else item
    return {
        ordinal: ColumnName(item, columns[read - 1]) for read, ordinal in ordinals.items() if 0 < read <= len(columns)
    }


def _scan(number: int, relation: RelationInfo, reads: Sequence[int]) -> JoinItem:
    columns = [relation.column(n) for n in reads]
    found = [c for c in columns if c is not None]
    if len(found) != len(columns):
        raise Refused(Reason.COLUMN, f"a dropped column of {relation.table}", hint="create the view again")
    for column in found:
        if column.generated:
            hint = "generated columns are not captured; write its expression in the query"
            raise Refused(Reason.COLUMN, f"the generated column {relation.table}.{column.name}", hint=hint)
    ordinals = {c.number: i for i, c in enumerate(found)}
    has_key = bool(relation.key) and all(n in ordinals for n in relation.key)
    scan = Scan(
        table=relation.table,
        relid=relation.oid,
        columns=tuple(c.name for c in found),
        fields=tuple(Field(ValueType.of_column(c.type), not c.not_null) for c in found),
        key=tuple(ordinals[n] for n in relation.key) if has_key else None,
    )
    return JoinItem(number, scan, ordinals)
