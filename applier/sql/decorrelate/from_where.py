"""FROM and WHERE -> a left-deep tree of joins. Pure.

Inner joins come first. Their ON conditions and WHERE are one list of conditions. A condition that cannot raise an error
is pushed down as far as possible. It goes below the joins when it reads one FROM item. It becomes a key pair when it is
an equality that PostgreSQL and Spark hash in the same way. Otherwise it becomes the residual of the first join that has
all its columns. A condition that may raise an error stays above all joins, so that it is not evaluated for a row that
PostgreSQL would not evaluate it for.

The next item to join is the first one, in the order of the text, that an equality connects to the items already joined.
Only when there is none, a cross product is used.

An outer join is one item of its list, and has a list of its own for each side. Conditions of WHERE on it are applied
above it, because its NULLs exist only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from applier.functions.allow_list import ENTRIES
from applier.plan.expr import Call, Const, Expr, columns_read, shift
from applier.plan.nodes import Join, OuterJoin, Values, fields
from applier.sql.bound.conditions import can_push_down
from applier.sql.bound.nodes import (
    FromTree,
    FunctionItem,
    InnerJoinTree,
    ItemRef,
    OuterJoinKind,
    OuterJoinTree,
    QueryItem,
    Select,
    ValuesItem,
)
from applier.sql.decorrelate.items import join_lateral, lower_item
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.place_domain import place_domain
from applier.sql.decorrelate.scope import (
    DOMAIN_ITEM,
    Decorrelator,
    Domain,
    OuterRows,
    Rows,
    has_subquery,
    items_of_subquery,
    items_read,
    subqueries_in,
)
from applier.sql.decorrelate.semi_join import filter_by_exists, is_semi_join, join_match, semi_join_rows
from applier.sql.refusal import Reason, Refused


def lower_from_where(decorrelator: Decorrelator, select: Select, domain: Domain | None, where: Sequence[Expr]) -> Rows:
    """Join the FROM items of a Select, and the domain, and apply its conditions."""
    simple = [m for m in select.matches if is_semi_join(select, m)]
    tests = [semi_join_rows(decorrelator, select, match) for match in simple]
    others = [m for m in select.matches if m not in simple]
    limited = [m.test for m in others if m.limited]
    tables = place_domain(select, domain)
    # The condition of an inner join belongs to WHERE, also where it has a subquery.
    on = [c for c in flatten_inner_joins(tables)[1] if has_subquery(select, c)]
    conditions = [*where, *on, *(m.test for m in others)]
    plain = [c for c in conditions if not has_subquery(select, c)]
    with_subquery = [c for c in conditions if has_subquery(select, c)]
    rows = _FromJoins(decorrelator, select, domain).join(tables, plain)
    for match, test in zip(simple, tests, strict=True):
        rows = join_match(rows, match, test)
    for condition in list(with_subquery):
        outer = OuterRows(rows.node, rows.node, rows.scope)
        filtered = None if condition in limited else filter_by_exists(decorrelator, outer, condition)
        if filtered is not None:
            rows = replace(rows, node=filtered)
            with_subquery.remove(condition)
    rows = join_subqueries(decorrelator, rows, [s for c in with_subquery for s in subqueries_in(select, c)])
    scope = rows.scope
    return rows.filter([scope.resolve(c) for c in with_subquery])


def join_subqueries(decorrelator: Decorrelator, rows: Rows, subqueries: Sequence[int]) -> Rows:
    """Join the results of dependent joins to the rows."""
    base = rows.node
    for subquery in subqueries:
        if subquery not in rows.results:
            node, result = decorrelator.join_result(OuterRows(rows.node, base, rows.scope), subquery)
            rows = replace(rows, node=node, results=rows.results | {subquery: result})
    return rows


def flatten_inner_joins(tables: Sequence[FromTree]) -> tuple[list[ItemRef | OuterJoinTree], list[Expr]]:
    """Return the operands of all inner joins, and their conditions; both in the order of the text."""
    found: list[ItemRef | OuterJoinTree] = []
    on: list[Expr] = []
    for item in tables:
        match item:
            case InnerJoinTree():
                inner, below = flatten_inner_joins((item.left, item.right))
                found += inner
                on += [*below, *item.on]
            case ItemRef() | OuterJoinTree():
                found.append(item)
    return found, on


@dataclass(slots=True)
class _Pending:
    """The conditions that are not yet placed, each with the FROM items it reads."""

    conditions: list[tuple[Expr, frozenset[int]]] = field(default_factory=list)

    def take(self, rows: Rows) -> list[Expr]:
        """Resolve, remove and return the conditions that read only these items and can be pushed down."""
        taken: list[Expr] = []
        remaining: list[tuple[Expr, frozenset[int]]] = []
        scope = rows.scope if self.conditions else None
        for condition, reads in self.conditions:
            resolved = scope.resolve(condition) if scope is not None and reads and reads <= rows.items else None
            if resolved is not None and can_push_down(resolved):
                taken.append(resolved)
            else:
                remaining.append((condition, reads))
        self.conditions = remaining
        return taken


class _FromJoins:
    """Joins the FROM items of one Select."""

    def __init__(self, decorrelator: Decorrelator, select: Select, domain: Domain | None) -> None:
        self._decorrelator = decorrelator
        self._select = select
        self._domain = domain

    def join(self, tables: Sequence[FromTree], where: Sequence[Expr]) -> Rows:
        """Join items by inner joins; an item may be an outer join, whose sides are joined in the same way."""
        operands, on = flatten_inner_joins(tables)
        parts = [self._operand(p) for p in operands if not self._is_lateral(p)]
        laterals = [p.item for p in operands if isinstance(p, ItemRef) and self._is_lateral(p)]
        # Conditions with a subquery are applied with those of WHERE.
        conditions = [*(c for c in on if not has_subquery(self._select, c)), *where]
        pending = _Pending([(c, items_read(self._select, c)) for c in conditions])
        if len(parts) > 1 or laterals:
            parts = [part.filter(pending.take(part)) for part in parts]
        current, *rest = parts or [Rows(self._select, self._domain, Values(((),), ()), {}, frozenset())]
        while rest:
            part = next((p for p in rest if self._is_connected(current.items, p.items, pending)), rest[0])
            rest.remove(part)
            product = _cross_product(current, part)
            equi, residual = split_condition(pending.take(product), len(fields(current.node)))
            current = replace(product, node=Join(current.node, part.node, equi, residual))
        for number in laterals:
            current = join_lateral(self._decorrelator, current, number, on=None)
            current = current.filter(pending.take(current))
        scope = current.scope
        return current.filter([scope.resolve(condition) for condition, _ in pending.conditions])

    def _operand(self, item: ItemRef | OuterJoinTree) -> Rows:
        if isinstance(item, ItemRef):
            return lower_item(self._decorrelator, self._select, self._domain, item.item)
        if isinstance(item.right, ItemRef) and self._is_lateral(item.right):
            left = self.join((item.left,), ())
            return join_lateral(self._decorrelator, left, item.right.item, on=tuple(zip(item.on, item.at, strict=True)))
        left, right = self.join((item.left,), ()), self.join((item.right,), ())
        for condition in item.on:
            left, right = self._join_on_subqueries(condition, left, right)
        return self._outer_join(item, left, right)

    def _is_lateral(self, item: FromTree) -> bool:
        """Whether the FROM item is a single item that reads other items or the domain."""
        if not isinstance(item, ItemRef) or item.item == DOMAIN_ITEM:
            return False
        match self._select.items[item.item]:
            case QueryItem(correlation=correlation):
                return bool(correlation.reads)
            case FunctionItem(functions=functions):
                return any(True for f in functions for arg in f.args for _ in columns_read(arg))
            case ValuesItem():
                return True
            case _:
                return False

    def _join_on_subqueries(self, condition: Expr, left: Rows, right: Rows) -> tuple[Rows, Rows]:
        """Join the results of the subqueries of an ON condition to the side of the outer join that they read."""
        for subquery in subqueries_in(self._select, condition):
            read = items_of_subquery(self._select, subquery)
            if read <= right.items:
                right = join_subqueries(self._decorrelator, right, [subquery])
            elif read <= left.items:
                left = join_subqueries(self._decorrelator, left, [subquery])
            else:
                construct = "a subquery in ON that reads both sides of an outer join"
                hint = "compute it in a subquery in FROM"
                raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=self._select.subqueries[subquery].at)
        return left, right

    def _outer_join(self, item: OuterJoinTree, left: Rows, right: Rows) -> Rows:
        """Build LEFT, RIGHT or FULL JOIN; a right join becomes a left join with other ordinals."""
        if item.kind is OuterJoinKind.RIGHT:
            left, right = right, left
        full = item.kind is OuterJoinKind.FULL
        product = _cross_product(left, right)
        scope, own_scope = product.scope, right.scope
        own: list[Expr] = []
        both: list[Expr] = []
        for condition, at in zip(item.on, item.at, strict=True):
            reads = items_read(self._select, condition)
            # A row that a condition on its own side excludes matches no row, so it is filtered before the join.
            # PostgreSQL evaluates the condition there too, so it may raise an error there.
            if not full and reads and reads <= right.items:
                own.append(own_scope.resolve(condition))
                continue
            resolved = scope.resolve(condition)
            if not can_push_down(resolved):
                hint = "compute the expression in a subquery in FROM"
                construct = "an outer join on a condition that may raise an error"
                raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=at)
            both.append(resolved)
        equi, residual = split_condition(both, len(fields(left.node)))
        return replace(product, node=OuterJoin(left.node, right.filter(own).node, equi, residual, full))

    def _is_connected(self, joined: frozenset[int], own: frozenset[int], pending: _Pending) -> bool:
        """Whether a pending condition has the form of an equality between the joined items and these."""
        for condition, reads in pending.conditions:
            if isinstance(condition, Call) and _is_comparison(condition) and reads <= joined | own:
                first, second = (items_read(self._select, arg) for arg in condition.args[:2])
                for ours, theirs in ((first, second), (second, first)):
                    if ours and ours <= joined and theirs and theirs <= own:
                        return True
        return False


def _is_comparison(condition: Call) -> bool:
    """Whether it is a function of two arguments; the comparison of an enum also has its labels."""
    labels = ENTRIES[condition.signature].ordered_labels and isinstance(condition.args[-1], Const)
    return len(condition.args) - labels == 2


def _cross_product(left: Rows, right: Rows) -> Rows:
    """Build the cross product. Conditions are resolved over it, because only then it is known which are key pairs."""
    width = len(fields(left.node))
    return replace(
        left,
        node=Join(left.node, right.node, (), None),
        ordinals=left.ordinals | {key: width + at for key, at in right.ordinals.items()},
        items=left.items | right.items,
        results=left.results | {n: shift(result, width) for n, result in right.results.items()},
    )
