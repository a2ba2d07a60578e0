"""A query -> the same query with other outer columns, at every depth where they are read. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.query_tree import FromItem, RangeTblRef

ChangeVar = Callable[[tree.Var, int], tree.Expression]
"""Replaces a column; the number says how many queries below the rewritten query it is read."""


@dataclass(frozen=True, slots=True)
class OuterColumnRewriter:
    """Rewrites every column of a query and of its subqueries; `depth` counts the queries from the first one."""

    change: ChangeVar
    with_entry: Callable[[query_tree.CteEntry, int], query_tree.RangeTblEntry] = lambda entry, _: entry
    depth: int = 0

    def expression(self, expression: tree.Expression) -> tree.Expression:
        """Rewrite an expression of the query."""
        match expression:
            case tree.Var():
                return self.change(expression, self.depth)
            case tree.SubLink(query=query, test=test):
                return query_tree.replace_subquery(expression, self._inner(query), self._optional(test))
            case _:
                return walk.rebuild(expression, self.expression)

    def query(self, query: query_tree.Query) -> query_tree.Query:
        """Rewrite a query."""
        return replace(
            query,
            targets=tuple(replace(t, expression=self.expression(t.expression)) for t in query.targets),
            entries=tuple(self._entry(entry) for entry in query.entries),
            items=tuple(self._item(item) for item in query.items),
            where=self._optional(query.where),
            having=self._optional(query.having),
            match_conditions=tuple(
                replace(p, query=self._inner(p.query), test=self._optional(p.test)) for p in query.match_conditions
            ),
            ctes={name: self._inner(cte) for name, cte in query.ctes.items()},
        )

    def _inner(self, query: query_tree.Query) -> query_tree.Query:
        return replace(self, depth=self.depth + 1).query(query)

    def _optional(self, expression: tree.Expression | None) -> tree.Expression | None:
        return None if expression is None else self.expression(expression)

    def _entry(self, entry: query_tree.RangeTblEntry) -> query_tree.RangeTblEntry:
        match entry:
            case query_tree.SubqueryEntry(query=query):
                return replace(entry, query=self._inner(query))
            case query_tree.ValuesEntry(rows=rows):
                return replace(entry, rows=tuple(tuple(map(self.expression, row)) for row in rows))
            case query_tree.FunctionEntry(calls=calls):
                return replace(entry, calls=tuple(map(self.expression, calls)))
            case query_tree.JoinEntry(columns=columns) | query_tree.GroupEntry(columns=columns):
                return replace(entry, columns=tuple(map(self.expression, columns)))
            case query_tree.CteEntry():
                return self.with_entry(entry, self.depth)
            case _:
                return entry

    def _item(self, item: FromItem) -> FromItem:
        if isinstance(item, RangeTblRef):
            return item
        return replace(
            item, left=self._item(item.left), right=self._item(item.right), condition=self._optional(item.condition)
        )


def select_all_from(query: query_tree.Query) -> query_tree.Query:
    """Return SELECT all columns FROM (query), in the same order; columns only for the order stay hidden."""
    names = tuple(target.name or "" for target in query.targets)
    inner = replace(_lower(query), targets=tuple(replace(t, hidden=False) for t in _lower(query).targets))
    targets = tuple(
        query_tree.TargetEntry(
            tree.Var(
                1, i, walk.type_of(t.expression), -1, walk.collation(t.expression), 0, walk.place_of(t.expression)
            ),
            t.name,
            t.group_reference,
            t.hidden,
        )
        for i, t in enumerate(query.targets, 1)
    )
    outer = query_tree.select_from(targets, (query_tree.SubqueryEntry("", inner, names),), (RangeTblRef(1),))
    return replace(outer, order=query.order)


def inline_ctes(query: query_tree.Query) -> query_tree.Query:
    """Return the query with each CTE inlined at its references; recursive CTEs stay in WITH."""
    plain: dict[str, query_tree.Query] = {}

    def entry(named: query_tree.CteEntry, depth: int) -> query_tree.RangeTblEntry:
        if named.levels_up != depth or named.name not in plain:
            return named
        inlined = plain[named.name]
        for _ in range(depth):
            inlined = _lower(inlined)
        return query_tree.SubqueryEntry(named.name, inlined, named.columns)

    def same(var: tree.Var, _: int) -> tree.Expression:
        return var

    ctes = {}
    for name, cte in query.ctes.items():
        found = OuterColumnRewriter(same, entry, 1).query(cte)
        if name in query.recursive:
            ctes[name] = found
        else:
            plain[name] = found
    return OuterColumnRewriter(same, entry).query(replace(query, ctes=ctes))


def _lower(query: query_tree.Query) -> query_tree.Query:
    """Return the same query for a place one query deeper: its outer references go one level further up."""

    def column(var: tree.Var, depth: int) -> tree.Expression:
        return replace(var, levels_up=var.levels_up + 1) if var.levels_up > depth else var

    def cte(entry: query_tree.CteEntry, depth: int) -> query_tree.CteEntry:
        return replace(entry, levels_up=entry.levels_up + 1) if entry.levels_up > depth else entry

    return OuterColumnRewriter(column, cte).query(query)
