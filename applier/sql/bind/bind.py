"""Analysed query -> bound plan: names, scopes and types are resolved, and a subquery is a dependent join.

Nothing is decided here about how a query is computed; `decorrelate` does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from applier.plan.expr import Col, Expr, SortKey, nullable
from applier.sql.bind.compared_columns import check_columns, union_keys
from applier.sql.bind.correlation import outer_variables
from applier.sql.bind.group_key import group_key
from applier.sql.bind.levels import BoundWorkTable, Level, Levels
from applier.sql.bind.limits import literal_number
from applier.sql.bind.select import SelectBinder
from applier.sql.bind.sort_key import sort_key
from applier.sql.bind.unify_columns import unify_columns
from applier.sql.bound.nodes import BoundQuery, CastQuery, Distinct, GroupKey, SetKind, SetOp, TopRows, result_columns
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.pg_tree.flatten import Flattener
from applier.sql.pg_tree.rewriting import inline_ctes
from applier.sql.refusal import Place, Reason, Refused
from applier.sql.sources import Sources

MAX_FROM_ITEMS = 200
"""A WITH query is bound at every reference, so WITH queries that read WITH queries can grow exponentially."""


def bind(query: query_tree.Query, catalog: CatalogSnapshot, sources: Sources) -> BoundQuery:
    """Bind a whole query; its result columns are the visible targets."""
    visible = [t for t in query.targets if not t.hidden]
    if not visible:
        hint, place = "select at least one column", Place.start()
        raise Refused(Reason.CONSTRUCT, "a query without columns", hint=hint, place=place, full_in_postgres=False)
    return _Binder(catalog, sources).bind_query(query, range(len(visible)), ())


class _Binder:
    """Binds queries, set operations, DISTINCT and LIMIT; a SelectBinder binds one SELECT."""

    def __init__(self, catalog: CatalogSnapshot, sources: Sources) -> None:
        self.catalog = catalog
        self.sources = sources
        self.work_tables: dict[tuple[int, str], BoundWorkTable] = {}
        self._numbers = count(1)
        self._item_count = 0

    def bind_query(
        self, query: query_tree.Query, needed: Sequence[int], outer: Levels, also_read: Sequence[int] = ()
    ) -> BoundQuery:
        """Bind one query; `needed` are the visible targets that are read.

        The columns of the targets `also_read` are read from its FROM items, but the targets are not computed.
        """
        if any(next(outer_variables(cte, 2), None) is not None for cte in query.ctes.values()):
            query = inline_ctes(query)
        if query.limit is None and not query.distinct_on:
            return self._bind_without_limit(query, needed, outer, also_read)
        return self._bind_limit(query, needed, outer, also_read)

    def bind_branch(self, branch: int | query_tree.SetOperation, needed: Sequence[int], levels: Levels) -> BoundQuery:
        """Bind a branch of the set operation at the last level; return the needed columns."""
        if isinstance(branch, query_tree.SetOperation):
            return self._bind_set_operation(branch, needed, levels)
        self.count_item()
        match levels[-1].query.entries[branch - 1]:
            case query_tree.SubqueryEntry(query=query):
                return self.bind_query(query, needed, levels)
            case _:
                raise unknown("a branch of UNION that is not a query")

    def next_number(self) -> int:
        """Return an unused number for a Select or a recursion."""
        return next(self._numbers)

    def count_item(self) -> None:
        """Count one more FROM item; refuse the query when there are too many."""
        self._item_count += 1
        if self._item_count > MAX_FROM_ITEMS:
            hint = "create a stream table for a part of it"
            construct = f"a query with more than {MAX_FROM_ITEMS} FROM items"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, place=Place.start())

    def _bind_without_limit(
        self, query: query_tree.Query, needed: Sequence[int], outer: Levels, also_read: Sequence[int]
    ) -> BoundQuery:
        """Bind everything but LIMIT and DISTINCT ON; `needed` may name hidden targets too."""
        if query.union is not None:
            return self._bind_union(query, query.union, needed, outer)
        if not query.distinct or query.distinct_on:
            return SelectBinder(self, query, outer).bind(needed, also_read)
        visible = [t for t in query.targets if not t.hidden]
        everything = SelectBinder(self, query, outer).bind(range(len(visible)))
        return Distinct(everything, self._distinct_keys(query, visible, everything), tuple(needed))

    def _distinct_keys(
        self, query: query_tree.Query, visible: Sequence[query_tree.TargetEntry], everything: BoundQuery
    ) -> tuple[GroupKey, ...] | Refused:
        flatten, equalities = Flattener(query.entries), {item.reference: item for item in query.distinct}
        if not all(t.group_reference in equalities for t in visible):
            raise unknown("a DISTINCT that does not name every column")
        try:
            return tuple(
                group_key(value, flatten(t.expression), equalities[t.group_reference], self.catalog)
                for value, t in zip(result_columns(everything), visible, strict=True)
            )
        except Refused as refused:
            # Rows that are distinct anyway are not compared.
            return refused

    def _bind_union(
        self, query: query_tree.Query, union: query_tree.SetOperation, needed: Sequence[int], outer: Levels
    ) -> BoundQuery:
        targets = [t.expression for t in query.targets if not t.hidden]
        first = next(union.entries())
        numbers = [t.number for t in targets if isinstance(t, tree.Var) and t.entry == first]
        if numbers != list(range(1, 1 + len(targets))) or query.items or query.where is not None:
            raise unknown("a set operation that does more than combine its branches")
        return self._bind_set_operation(union, needed, (*outer, Level(query, None)))

    def _bind_set_operation(
        self, operation: query_tree.SetOperation, needed: Sequence[int], levels: Levels
    ) -> BoundQuery:
        plain = operation.kind is query_tree.SetOperationType.UNION and operation.keeps_duplicates
        # Rows are compared by all their columns.
        read = needed if plain else range(len(operation.columns))
        parts = [self.bind_branch(part, read, levels) for part in operation.branches]
        types = [self.catalog.pg_type(operation.columns[i].type, operation.columns[i].typmod) for i in read]
        unified = unify_columns([result_columns(part) for part in parts], types)
        branches = tuple(CastQuery(part, casts) for part, casts in zip(parts, unified, strict=True))
        keys: tuple[GroupKey, ...] = ()
        if not plain and operation.kind is query_tree.SetOperationType.UNION:
            keys = union_keys(operation, _columns(unified), self.catalog)
        elif not plain:
            check_columns(operation, _columns(unified[:1]), self.catalog)
        output = range(len(needed)) if plain else needed
        return SetOp(SetKind[operation.kind.name], operation.keeps_duplicates, branches, keys, tuple(output))

    def _bind_limit(
        self, query: query_tree.Query, needed: Sequence[int], outer: Levels, also_read: Sequence[int]
    ) -> BoundQuery:
        """Bind DISTINCT ON, LIMIT and OFFSET over the query without them."""
        keys = query.distinct if query.distinct_on else ()
        references = [*(item.reference for item in keys), *(item.reference for item in query.order)]
        indexes = list(dict.fromkeys([*needed, *(_target_index(query, reference) for reference in references)]))
        below = self._bind_without_limit(query, indexes, outer, also_read)
        shown = [Col(i, e.type, nullable(e)) for i, e in enumerate(result_columns(below))]
        at = {index: shown[i] for i, index in enumerate(indexes)}
        order = tuple(self._sort_key(query, item, at) for item in query.order)
        distinct_on: tuple[Expr, ...] | None = None
        if query.distinct_on:
            found = [(_target_index(query, item.reference), item) for item in query.distinct]
            distinct_on = tuple(
                group_key(at[i], query.targets[i].expression, item, self.catalog).by for i, item in found
            )
        limit = query.limit
        number = None if limit is None else literal_number(limit.count, "LIMIT", self.catalog)
        offset = 0 if limit is None else literal_number(limit.offset, "OFFSET", self.catalog) or 0
        ties = limit is not None and limit.ties
        return TopRows(below, len(dict.fromkeys(needed)), distinct_on, order, limit is not None, number, offset, ties)

    def _sort_key(self, query: query_tree.Query, item: query_tree.SortItem, at: Mapping[int, Col]) -> SortKey:
        index = _target_index(query, item.reference)
        return sort_key(at[index], query.targets[index].expression, item, self.catalog)


def _columns(branches: Sequence[Sequence[Expr]]) -> list[Col]:
    """Return the columns of a set operation over these branches."""
    columns = enumerate(zip(*branches, strict=True))
    return [Col(i, column[0].type, any(nullable(e) for e in column)) for i, column in columns]


def _target_index(query: query_tree.Query, reference: int) -> int:
    found = [i for i, target in enumerate(query.targets) if target.group_reference == reference]
    if len(found) != 1:
        raise unknown("an ORDER BY or DISTINCT ON that names no target")
    return found[0]
