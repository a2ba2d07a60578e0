"""LATERAL queries -> joins. Pure.

A LATERAL query reads the FROM items before it. It is evaluated once for all their rows: the rows of the query alone,
joined by its correlated conditions. Where the query groups or limits its rows, this is done per value of its own side
of these conditions, which then must be equalities. Any other query is evaluated over the domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import AggregateCall, Case, Const, Expr
from applier.plan.nodes import Aggregate, Filter, Join, Node, OuterJoin, Project, fields
from applier.sql.bound.columns import BoundColumn, CallCol, KeyCol
from applier.sql.bound.conditions import can_push_down
from applier.sql.bound.nodes import GroupBy, GroupKey, QueryItem, Select, TopRows
from applier.sql.decorrelate.domain import evaluate_query, is_never_empty, join_rows
from applier.sql.decorrelate.grouping import aggregate_by, default_if_no_group, map_key, resolve_calls
from applier.sql.decorrelate.inner_rows import InnerRows, uncorrelated_rows
from applier.sql.decorrelate.key_pairs import split_condition
from applier.sql.decorrelate.lowered import Lowered, bound_columns, project_columns
from applier.sql.decorrelate.null_safe import Pairs
from applier.sql.decorrelate.scope import Decorrelator, OuterRows, Rows, Scope, has_outer_column
from applier.sql.decorrelate.top_rows import keep_top_rows
from applier.sql.refusal import Reason, Refused


@dataclass(frozen=True, slots=True)
class LateralItem:
    """A LATERAL query by the number of its item; `on` has the conditions of a left join, and their positions."""

    number: int
    item: QueryItem
    is_left_join: bool
    on: tuple[tuple[Expr, int | None], ...] = ()


def join_query(decorrelator: Decorrelator, rows: Rows, lateral: LateralItem) -> Rows:
    """Join the query to the rows; its columns follow those of the rows."""
    select = _direct_select(lateral)
    inner = None if select is None else uncorrelated_rows(decorrelator, select)
    if select is None or inner is None or not _can_join_directly(rows, lateral, inner):
        return _join_over_domain(decorrelator, rows, lateral)
    if select.group is not None:
        return _join_grouped(rows, lateral, inner, select.group)
    if isinstance(lateral.item.query, TopRows):
        return _join_first_rows(rows, lateral, inner, lateral.item.query)
    return _join_plain(rows, lateral, inner)


def _direct_select(lateral: LateralItem) -> Select | None:
    """Return the SELECT of a query that reads other items only in WHERE and in its select list; else None."""
    query = lateral.item.query
    select = query.input if isinstance(query, TopRows) else query
    if lateral.on or not isinstance(select, Select) or not lateral.item.correlation.only_in_where_or_targets:
        return None
    has_sets = select.group is not None and select.group.sets is not None
    return None if select.has_windows or select.set_functions or select.set_keys or has_sets else select


def _can_join_directly(rows: Rows, lateral: LateralItem, inner: InnerRows) -> bool:
    """Whether the uncorrelated rows of the query, joined by its correlated conditions, give the result."""
    select, scope, width = inner.rows.select, rows.scope, len(fields(rows.node))
    conditions = inner.conditions(scope, width)
    if not all(can_push_down(c) for c in conditions):
        return False
    limited = isinstance(lateral.item.query, TopRows)
    if select.group is None and not limited:
        return not (lateral.is_left_join and any(has_outer_column(select, t) for t in select.targets))
    if select.group is not None and limited:
        return False
    pairs, residual = split_condition(conditions, width)
    return residual is None and bool(pairs) and not lateral.item.correlation.in_targets


def _join_over_domain(decorrelator: Decorrelator, rows: Rows, lateral: LateralItem) -> Rows:
    """Join a query with any kind of correlation, by evaluating it over the domain."""
    outer, item = OuterRows(rows.node, rows.node, rows.scope), lateral.item
    if not lateral.is_left_join or (not lateral.on and is_never_empty(item.query)):
        node = join_rows(decorrelator, outer, item.query, item.correlation.reads)
        if node is not None:
            return _add_columns(rows, node, lateral)
    result = evaluate_query(decorrelator, outer, item.query, item.correlation.reads)
    node = _join(rows.node, result.node, result.join_keys, None, left_join=lateral.is_left_join)
    joined = _add_columns(rows, node, lateral)
    on = [joined.scope.resolve(c) for c, _ in lateral.on]
    if not all(can_push_down(c) for c in on):
        raise Refused(
            Reason.CONSTRUCT,
            "LEFT JOIN LATERAL on a condition that may raise an error",
            hint="compute the expression in the subquery",
            token=next((at for _, at in lateral.on if at is not None), None),
        )
    equi, residual = split_condition(on, len(fields(rows.node)))
    keys = (*result.join_keys, *equi)
    return replace(joined, node=_join(rows.node, result.node, keys, residual, left_join=lateral.is_left_join))


def _join_plain(rows: Rows, lateral: LateralItem, inner: InnerRows) -> Rows:
    """Join the rows of the query; targets that read outer columns are computed above the join."""
    select, scope, width = inner.rows.select, rows.scope, len(fields(rows.node))
    own_scope, shown = inner.rows.scope, bound_columns(inner.node)
    is_late = [has_outer_column(select, target) for target in select.targets]
    early = tuple(own_scope.resolve(t) for t, late in zip(select.targets, is_late, strict=True) if not late)
    right = project_columns(inner.node, (*shown, *early))
    equi, residual = split_condition(inner.conditions(scope, width), width)
    joined = _join(rows.node, right, equi, residual, left_join=lateral.is_left_join)
    late_values = inner.resolve([t for t, late in zip(select.targets, is_late, strict=True) if late], scope, width)
    early_ordinal, late_ordinal = width + len(shown), len(fields(joined))
    ordinals: dict[tuple[int, int], int] = {}
    for read, late in zip(lateral.item.reads, is_late, strict=True):
        if late:
            ordinals[lateral.number, read], late_ordinal = late_ordinal, late_ordinal + 1
        else:
            ordinals[lateral.number, read], early_ordinal = early_ordinal, early_ordinal + 1
    node = Project(joined, (*bound_columns(joined), *late_values)) if late_values else joined
    return replace(rows, node=node, ordinals=rows.ordinals | ordinals, items=rows.items | {lateral.number})


def _join_first_rows(rows: Rows, lateral: LateralItem, inner: InnerRows, top: TopRows) -> Rows:
    """Join the first rows of each group of equal keys."""
    pairs = _pairs(rows, inner)
    below = Lowered(inner.node, tuple(map(inner.rows.scope.resolve, inner.rows.select.targets)))
    built = keep_top_rows(top, below, [theirs for _, theirs in pairs])
    return _join_by_keys(rows, lateral, built, pairs)


def _join_grouped(rows: Rows, lateral: LateralItem, inner: InnerRows, group: GroupBy) -> Rows:
    """Join an aggregate with GROUP BY, grouped by the keys of the join too."""
    pairs, scope = _pairs(rows, inner), inner.rows.scope
    theirs = tuple(key for _, key in pairs)
    keys = [map_key(key, scope.resolve) for key in (*group.keys, *group.dependent)]
    within = (*theirs, *(key.by for key in keys))
    calls = resolve_calls(group.calls, inner.node, scope.resolve, within)
    distinct = tuple(dict.fromkeys(calls))
    if not group.keys:
        if keys:
            construct = "a column together with an aggregate in LATERAL"
            raise Refused(Reason.CONSTRUCT, construct, hint="join the tables instead")
        return _join_single_group(rows, lateral, inner, pairs, calls)
    planned = [*keys, *(GroupKey(key, key) for key in theirs)]
    node = aggregate_by(inner.node, planned, distinct)
    shown = bound_columns(node)
    results = [shown[len(planned) + distinct.index(call)] for call in calls]
    above = _above(inner, shown[: len(keys)], results)
    if group.having is not None:
        node = Filter(node, above.resolve(group.having))
    exprs = tuple(map(above.resolve, inner.rows.select.targets))
    joining = bound_columns(node)[len(keys) : len(planned)]
    return _join_by_keys(rows, lateral, Lowered(node, exprs, joining), pairs)


def _join_single_group(
    rows: Rows, lateral: LateralItem, inner: InnerRows, pairs: Pairs, calls: Sequence[AggregateCall]
) -> Rows:
    """Join an aggregate without GROUP BY: it has one row per outer row, also where the group is empty."""
    select, width, distinct = inner.rows.select, len(fields(rows.node)), tuple(dict.fromkeys(calls))
    theirs = tuple(key for _, key in pairs)
    aggregated = Aggregate(inner.node, theirs, distinct)
    equi = tuple((ours, key) for (ours, _), key in zip(pairs, bound_columns(aggregated), strict=False))
    joined = OuterJoin(rows.node, aggregated, equi, None, full=False)
    found = bound_columns(joined)[width + len(theirs) :]
    places = [distinct.index(call) for call in calls]
    above = _above(inner, (), [default_if_no_group(distinct[i], found[i]) for i in places])
    results = [above.resolve(target) for target in select.targets]
    node: Node = joined
    if select.group is not None and select.group.having is not None:
        condition = above.resolve(select.group.having)
        if lateral.is_left_join:
            results = [Case(((condition, r),), Const(None, r.type), r.type) for r in results]
        else:
            node = Filter(node, condition)
    return _add_columns(rows, Project(node, (*bound_columns(joined)[:width], *results)), lateral)


def _above(inner: InnerRows, keys: Sequence[Expr], calls: Sequence[Expr]) -> Scope:
    """Return the scope of expressions above the groups of the query."""

    def find(column: BoundColumn) -> Expr | None:
        match column:
            case KeyCol(number=number):
                return keys[number]
            case CallCol(number=number):
                return calls[number]
            case _:
                return None

    return Scope(inner.rows.select, find, None, ())


def _join_by_keys(rows: Rows, lateral: LateralItem, built: Lowered, pairs: Pairs) -> Rows:
    """Join by the key columns, which follow the columns that are read."""
    right = project_columns(built.node, (*built.exprs, *built.domain))
    keys = bound_columns(right)[len(lateral.item.reads) :]
    equi = tuple((ours, key) for (ours, _), key in zip(pairs, keys, strict=True))
    return _add_columns(rows, _join(rows.node, right, equi, None, left_join=lateral.is_left_join), lateral)


def _pairs(rows: Rows, inner: InnerRows) -> Pairs:
    width = len(fields(rows.node))
    return split_condition(inner.conditions(rows.scope, width), width)[0]


def _join(left: Node, right: Node, equi: Pairs, residual: Expr | None, *, left_join: bool) -> Node:
    return OuterJoin(left, right, equi, residual, full=False) if left_join else Join(left, right, equi, residual)


def _add_columns(rows: Rows, node: Node, lateral: LateralItem) -> Rows:
    width = len(fields(rows.node))
    ordinals = {(lateral.number, r): width + i for i, r in enumerate(lateral.item.reads)}
    return replace(rows, node=node, ordinals=rows.ordinals | ordinals, items=rows.items | {lateral.number})
