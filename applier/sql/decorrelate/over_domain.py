"""A query that reads the query around it -> one that stands by itself and answers for many rows at once. Pure.

What it reads outside are the columns of one member of FROM more, the *given* rows: every combination of values that it
is asked with, once. Each row of the answer says which of them it is for: the given columns are shown too, rows are
grouped, partitioned, counted and told apart by them before anything else. Whoever asks joins the answers by these
columns; NULL is a value there like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from applier.plan.nodes import Node
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.query_tree import FromItem, InnerJoinExpr, OuterJoinExpr, OuterJoinType, RangeTblRef
from applier.sql.pg_tree.rewriting import OuterColumnRewriter, inline_ctes
from applier.sql.refusal import Reason, Refused

_HINT = "join the subquery in FROM"


def is_correlated(query: query_tree.Query) -> bool:
    """Whether it or a query inside it reads the query around it."""
    return next(query_tree.outer_columns(query), None) is not None


def correlation_of_where(query: query_tree.Query, connecting: Sequence[tree.Expression]) -> bool:
    """Whether these conditions of WHERE are all that reads the query around it, and ask no subquery themselves."""
    if any(any(walk.subqueries(c)) for c in connecting):
        return False
    return not is_correlated(replace(query, where=_without(query.where)))


def _without(where: tree.Expression | None) -> tree.Expression | None:
    if where is None or (_outer(where) and not _is_and(where)):
        return None
    if not isinstance(where, tree.BoolExpr) or not _is_and(where):
        return where
    return replace(where, args=tuple(kept for arg in where.args if (kept := _without(arg)) is not None))


def _is_and(expression: tree.Expression) -> bool:
    return isinstance(expression, tree.BoolExpr) and expression.connective is tree.BoolOperator.AND


def _outer(expression: tree.Expression) -> bool:
    return any(var.levels_up for var in walk.variables(expression))


def evaluate_over_domain(
    query: query_tree.Query, columns: Sequence[tree.Var], places: dict[tuple[int, int], int], node: Node
) -> query_tree.Query:
    """The query over given rows; `places` says which of their columns, from 1, a column of the query around it is.

    Its last visible targets are the given columns.
    """
    return _Given(columns, places, node).query(query, 1)


class _Given:
    """Gives a query, and every branch of its set operations, the rows it is asked for."""

    def __init__(self, columns: Sequence[tree.Var], places: dict[tuple[int, int], int], node: Node) -> None:
        self._columns = columns
        self._places = places
        self._node = node
        self._at = next((var.at for var in columns if var.at is not None), None)

    def query(self, query: query_tree.Query, level: int) -> query_tree.Query:
        """`level` says how far out the columns are that are asked for."""
        if query.grouping_sets:
            raise _refused("GROUPING SETS in a subquery that reads an outer query", self._at)
        if any(any(query_tree.outer_columns(member, level + 1)) for member in query.ctes.values()):
            query = inline_ctes(query)
        if query.union is not None:
            return self._union(query, query.union, level)
        entry = len(query.entries) + 1
        bound = self._bound(query, entry, level)
        targets = self._targets(query, [replace(v, entry=entry, number=i) for i, v in enumerate(self._columns, 1)])
        items = tuple(query_tree.GroupItem(target.group_reference, query_tree.SAME) for target in targets)
        return replace(
            _shown(bound, targets),
            entries=(*bound.entries, query_tree.DomainEntry(self._node)),
            items=self._placed(bound, entry),
            groups=(*bound.groups, *items) if bound.groups else (),
            distinct=(*bound.distinct, *items) if bound.distinct else (),
            windows=tuple(replace(w, partition=(*w.partition, *items)) for w in bound.windows),
        )

    def _bound(self, query: query_tree.Query, entry: int, level: int) -> query_tree.Query:
        """The query, in which what is asked for are columns of an entry of its own."""
        if any(any(query_tree.outer_columns(member, level + 1)) for member in query.ctes.values()):
            raise _refused("WITH RECURSIVE that reads an outer query", self._at)

        def change(var: tree.Var, depth: int) -> tree.Expression:
            if var.levels_up != level + depth:
                return var
            return replace(var, entry=entry, number=self._places[var.entry, var.number], levels_up=depth)

        return OuterColumnRewriter(change).query(query)

    def _placed(self, query: query_tree.Query, entry: int) -> tuple[FromItem, ...]:
        """FROM with the given rows: first, or on the side that stays of an outer join that looks at them."""
        asking = [item for item in _outer_joins(query.items) if _looks(item, query, entry)]
        if not asking:
            return (RangeTblRef(entry), *query.items)
        found = [_with_given(item, asking[0], query, entry) for item in query.items]
        items = tuple(item for item in found if item is not None)
        if len(asking) > 1 or len(items) < len(found):
            construct = "a subquery that reads an outer query below more than one outer join, or below a full one"
            raise _refused(construct, self._at)
        return items

    def _union(self, query: query_tree.Query, union: query_tree.SetOperation, level: int) -> query_tree.Query:
        entries, branches = list(query.entries), set(union.entries())
        for number in branches:
            entry = entries[number - 1]
            if isinstance(entry, query_tree.SubqueryEntry):
                entries[number - 1] = replace(entry, query=self.query(entry.query, level + 1))
        width, first = len(union.columns), next(union.entries())
        shown = [replace(v, entry=first, number=width + i) for i, v in enumerate(self._columns, 1)]
        more = tuple(query_tree.SetColumn(v.type, v.typmod, v.collation, query_tree.SAME) for v in self._columns)
        wider = replace(query, entries=tuple(entries), union=_wider(union, more))
        return _shown(wider, self._targets(query, shown))

    def _targets(self, query: query_tree.Query, columns: Sequence[tree.Var]) -> list[query_tree.TargetEntry]:
        last = max((t.group_reference for t in query.targets), default=0)
        return [
            query_tree.TargetEntry(replace(v, levels_up=0), None, last + i, False) for i, v in enumerate(columns, 1)
        ]


def _shown(query: query_tree.Query, more: Sequence[query_tree.TargetEntry]) -> query_tree.Query:
    visible = [t for t in query.targets if not t.hidden]
    hidden = [t for t in query.targets if t.hidden]
    given = range(len(visible), len(visible) + len(more))
    return replace(query, targets=(*visible, *more, *hidden), domain_targets=tuple(given))


def _wider(union: query_tree.SetOperation, more: tuple[query_tree.SetColumn, ...]) -> query_tree.SetOperation:
    branches = tuple(b if isinstance(b, int) else _wider(b, more) for b in union.branches)
    return replace(union, columns=(*union.columns, *more), branches=branches)


def _outer_joins(items: Sequence[FromItem]) -> Iterator[OuterJoinExpr]:
    """Those that stand below no other."""
    for item in items:
        if isinstance(item, OuterJoinExpr):
            yield item
        elif isinstance(item, InnerJoinExpr):
            yield from _outer_joins((item.left, item.right))


def _looks(item: FromItem, query: query_tree.Query, entry: int) -> bool:
    if isinstance(item, RangeTblRef):
        read = list(query_tree.lateral_columns(query.entries[item.entry - 1]))
    else:
        read = [] if item.condition is None else list(walk.variables(item.condition))
    own = any(var.entry == entry and var.levels_up == 0 for var in read)
    return own or (not isinstance(item, RangeTblRef) and any(_looks(i, query, entry) for i in (item.left, item.right)))


def _with_given(item: FromItem, asking: OuterJoinExpr, query: query_tree.Query, entry: int) -> FromItem | None:
    if item is asking:
        return _kept_side(asking, query, entry)
    if not isinstance(item, InnerJoinExpr):
        return item
    left, right = (_with_given(side, asking, query, entry) for side in (item.left, item.right))
    return None if left is None or right is None else replace(item, left=left, right=right)


def _kept_side(item: FromItem, query: query_tree.Query, entry: int) -> FromItem | None:
    """The item with the given rows where none of them is lost; None where there is no such place."""
    if not isinstance(item, OuterJoinExpr):
        return InnerJoinExpr(RangeTblRef(entry), item, None)
    kept, other = (item.left, item.right) if item.kind is OuterJoinType.LEFT else (item.right, item.left)
    # A member by itself may lean on the given rows; what is joined there before cannot see them.
    if item.kind is OuterJoinType.FULL or (not isinstance(other, RangeTblRef) and _looks(other, query, entry)):
        return None
    placed = _kept_side(kept, query, entry)
    if placed is None:
        return None
    return replace(item, left=placed) if item.kind is OuterJoinType.LEFT else replace(item, right=placed)


def _refused(construct: str, at: int | None) -> Refused:
    return Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=at)
