"""A correlated subquery -> an uncorrelated query that computes its rows for all outer rows at once. Pure.

The rewritten query has one more FROM item, the *domain*: every combination of the outer values, once. The correlated
columns become columns of the domain. The columns of the domain are also in the result, and say for which outer values a
row is. Rows are grouped, partitioned, limited and compared by them before anything else. The result is joined to the
outer query by these columns with null-safe equality.
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
    """Whether the query, or a query inside it, reads its outer query."""
    return next(query_tree.outer_columns(query), None) is not None


def is_correlated_only_in_where(query: query_tree.Query, correlated: Sequence[tree.Expression]) -> bool:
    """Whether only these conditions of WHERE read the outer query, and none of them has a subquery."""
    if any(any(walk.subqueries(c)) for c in correlated):
        return False
    return not is_correlated(replace(query, where=_drop_correlated(query.where)))


def _drop_correlated(where: tree.Expression | None) -> tree.Expression | None:
    if where is None or (_has_outer_column(where) and not _is_and(where)):
        return None
    if not isinstance(where, tree.BoolExpr) or not _is_and(where):
        return where
    return replace(where, args=tuple(part for arg in where.args if (part := _drop_correlated(arg)) is not None))


def _is_and(expression: tree.Expression) -> bool:
    return isinstance(expression, tree.BoolExpr) and expression.connective is tree.BoolOperator.AND


def _has_outer_column(expression: tree.Expression) -> bool:
    return any(var.levels_up for var in walk.variables(expression))


def evaluate_over_domain(
    query: query_tree.Query, columns: Sequence[tree.Var], positions: dict[tuple[int, int], int], node: Node
) -> query_tree.Query:
    """Rewrite a query to read the domain; `positions` maps each outer column to a column of the domain, from 1.

    The last visible targets of the result are the columns of the domain.
    """
    return _DomainRewriter(columns, positions, node).query(query, 1)


class _DomainRewriter:
    """Adds the domain to a query, and to every branch of its set operations."""

    def __init__(self, columns: Sequence[tree.Var], positions: dict[tuple[int, int], int], node: Node) -> None:
        self._columns = columns
        self._positions = positions
        self._node = node
        self._at = next((var.at for var in columns if var.at is not None), None)

    def query(self, query: query_tree.Query, level: int) -> query_tree.Query:
        """Rewrite one query; `level` is the number of levels from it to the outer query."""
        if query.grouping_sets:
            raise _refuse("GROUPING SETS in a correlated subquery", self._at)
        if any(any(query_tree.outer_columns(member, level + 1)) for member in query.ctes.values()):
            query = inline_ctes(query)
        if query.union is not None:
            return self._rewrite_union(query, query.union, level)
        entry = len(query.entries) + 1
        rewritten = self._rewrite_outer_columns(query, entry, level)
        targets = self._domain_targets(
            query, [replace(v, entry=entry, number=i) for i, v in enumerate(self._columns, 1)]
        )
        items = tuple(query_tree.GroupItem(target.group_reference, query_tree.SAME) for target in targets)
        return replace(
            _append_targets(rewritten, targets),
            entries=(*rewritten.entries, query_tree.DomainEntry(self._node)),
            items=self._place_domain(rewritten, entry),
            groups=(*rewritten.groups, *items) if rewritten.groups else (),
            distinct=(*rewritten.distinct, *items) if rewritten.distinct else (),
            windows=tuple(replace(w, partition=(*w.partition, *items)) for w in rewritten.windows),
        )

    def _rewrite_outer_columns(self, query: query_tree.Query, entry: int, level: int) -> query_tree.Query:
        """Replace the outer columns by columns of the entry of the domain."""
        if any(any(query_tree.outer_columns(member, level + 1)) for member in query.ctes.values()):
            raise _refuse("WITH RECURSIVE that reads an outer query", self._at)

        def rewrite_var(var: tree.Var, depth: int) -> tree.Expression:
            if var.levels_up != level + depth:
                return var
            return replace(var, entry=entry, number=self._positions[var.entry, var.number], levels_up=depth)

        return OuterColumnRewriter(rewrite_var).query(query)

    def _place_domain(self, query: query_tree.Query, entry: int) -> tuple[FromItem, ...]:
        """Add the domain to FROM: first, or on the preserved side of an outer join that reads it."""
        reading = [item for item in _outer_joins(query.items) if _reads_domain(item, query, entry)]
        if not reading:
            return (RangeTblRef(entry), *query.items)
        found = [_add_domain(item, reading[0], query, entry) for item in query.items]
        items = tuple(item for item in found if item is not None)
        if len(reading) > 1 or len(items) < len(found):
            construct = "a subquery that reads its outer query inside more than one outer join, or inside a full join"
            raise _refuse(construct, self._at)
        return items

    def _rewrite_union(self, query: query_tree.Query, union: query_tree.SetOperation, level: int) -> query_tree.Query:
        entries, branches = list(query.entries), set(union.entries())
        for number in branches:
            entry = entries[number - 1]
            if isinstance(entry, query_tree.SubqueryEntry):
                entries[number - 1] = replace(entry, query=self.query(entry.query, level + 1))
        width, first = len(union.columns), next(union.entries())
        shown = [replace(v, entry=first, number=width + i) for i, v in enumerate(self._columns, 1)]
        added = tuple(query_tree.SetColumn(v.type, v.typmod, v.collation, query_tree.SAME) for v in self._columns)
        widened = replace(query, entries=tuple(entries), union=_append_columns(union, added))
        return _append_targets(widened, self._domain_targets(query, shown))

    def _domain_targets(self, query: query_tree.Query, columns: Sequence[tree.Var]) -> list[query_tree.TargetEntry]:
        last = max((t.group_reference for t in query.targets), default=0)
        return [
            query_tree.TargetEntry(replace(v, levels_up=0), None, last + i, False) for i, v in enumerate(columns, 1)
        ]


def _append_targets(query: query_tree.Query, added: Sequence[query_tree.TargetEntry]) -> query_tree.Query:
    visible = [t for t in query.targets if not t.hidden]
    hidden = [t for t in query.targets if t.hidden]
    domain_targets = range(len(visible), len(visible) + len(added))
    return replace(query, targets=(*visible, *added, *hidden), domain_targets=tuple(domain_targets))


def _append_columns(union: query_tree.SetOperation, added: tuple[query_tree.SetColumn, ...]) -> query_tree.SetOperation:
    branches = tuple(b if isinstance(b, int) else _append_columns(b, added) for b in union.branches)
    return replace(union, columns=(*union.columns, *added), branches=branches)


def _outer_joins(items: Sequence[FromItem]) -> Iterator[OuterJoinExpr]:
    """Yield the outer joins that are not inside another outer join."""
    for item in items:
        if isinstance(item, OuterJoinExpr):
            yield item
        elif isinstance(item, InnerJoinExpr):
            yield from _outer_joins((item.left, item.right))


def _reads_domain(item: FromItem, query: query_tree.Query, entry: int) -> bool:
    if isinstance(item, RangeTblRef):
        read = list(query_tree.lateral_columns(query.entries[item.entry - 1]))
    else:
        read = [] if item.condition is None else list(walk.variables(item.condition))
    reads_directly = any(var.entry == entry and var.levels_up == 0 for var in read)
    return reads_directly or (
        not isinstance(item, RangeTblRef) and any(_reads_domain(i, query, entry) for i in (item.left, item.right))
    )


def _add_domain(item: FromItem, reading: OuterJoinExpr, query: query_tree.Query, entry: int) -> FromItem | None:
    if item is reading:
        return _add_to_preserved_side(reading, query, entry)
    if not isinstance(item, InnerJoinExpr):
        return item
    left, right = (_add_domain(side, reading, query, entry) for side in (item.left, item.right))
    return None if left is None or right is None else replace(item, left=left, right=right)


def _add_to_preserved_side(item: FromItem, query: query_tree.Query, entry: int) -> FromItem | None:
    """Add the domain to the preserved side of the item, where none of its rows is lost; None if that is impossible."""
    if not isinstance(item, OuterJoinExpr):
        return InnerJoinExpr(RangeTblRef(entry), item, None)
    preserved, other = (item.left, item.right) if item.kind is OuterJoinType.LEFT else (item.right, item.left)
    # A single LATERAL item can read the domain. Items that are joined with each other first cannot.
    if item.kind is OuterJoinType.FULL or (not isinstance(other, RangeTblRef) and _reads_domain(other, query, entry)):
        return None
    with_domain = _add_to_preserved_side(preserved, query, entry)
    if with_domain is None:
        return None
    return replace(item, left=with_domain) if item.kind is OuterJoinType.LEFT else replace(item, right=with_domain)


def _refuse(construct: str, at: int | None) -> Refused:
    return Refused(Reason.CONSTRUCT, construct, hint=_HINT, token=at)
