"""GROUP BY, GROUPING SETS and aggregates -> Aggregate nodes, and the scope of the expressions above them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from applier.functions.aggregates.aggregates import on_empty, shown_of
from applier.functions.comparison_keys import PLACE_OF
from applier.plan.expr import INT4, AggregateCall, Call, Coalesce, Const, Expr
from applier.plan.keys import identifies_rows
from applier.plan.nodes import Aggregate, Node, OuterJoin, Project, UnionAll
from applier.plan.sort import SortKey
from applier.sql.bound.columns import BoundColumn, CallCol, GroupingCol, KeyCol
from applier.sql.bound.nodes import BoundCall, GroupBy, GroupKey, OrderCheck
from applier.sql.decorrelate.lowered import bound_columns
from applier.sql.decorrelate.null_safe import null_safe_pairs
from applier.sql.decorrelate.scope import Domain
from applier.sql.refusal import Reason, Refused

ResolveExpr = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a query: the node, its keys, aggregates and GROUPING(), and the columns of the domain."""

    node: Node
    keys: tuple[Expr, ...]
    calls: tuple[Expr, ...]
    grouping: tuple[Expr, ...]
    domain: tuple[Expr, ...]

    def find(self, column: BoundColumn) -> Expr | None:
        """Return a column above the groups."""
        match column:
            case KeyCol(number=number):
                return self.keys[number]
            case CallCol(number=number):
                return self.calls[number]
            case GroupingCol(number=number):
                return self.grouping[number]
            case _:
                return None


def lower_groups(
    node: Node, group: GroupBy, resolve: ResolveExpr, domain: tuple[Domain, tuple[Expr, ...]] | None
) -> Groups:
    """Group the rows of a node; `resolve` resolves expressions over it. `domain` has its columns over the node too.

    Over a domain, rows are grouped by its columns too. Without GROUP BY there is one group per row of the domain, also
    where the group is empty.
    """
    keys = [map_key(key, resolve) for key in group.keys]
    dependent = [map_key(key, resolve) for key in group.dependent]
    domain_keys = [] if domain is None else [GroupKey(column, column) for column in domain[1]]
    planned = [*keys, *domain_keys, *dependent]
    within = () if group.sets is not None else tuple(key.by for key in planned)
    calls = resolve_calls(group.calls, node, resolve, within)
    if group.sets is not None:
        return _group_by_sets(node, group, keys, calls)
    distinct = tuple(dict.fromkeys(calls))
    grouped = aggregate_by(node, planned, distinct)
    ordinals = [*range(len(keys)), *range(len(keys) + len(domain_keys), len(planned))]
    if domain is not None and not group.keys:
        joined, width = _join_domain(domain[0].node, grouped), len(domain_keys)
        shown = bound_columns(joined)
        found = [default_if_no_group(c, shown[width + len(planned) + i]) for i, c in enumerate(distinct)]
        results = tuple(found[distinct.index(call)] for call in calls)
        return Groups(joined, tuple(shown[width + i] for i in ordinals), results, (), shown[:width])
    shown = bound_columns(grouped)
    results = tuple(shown[len(planned) + distinct.index(call)] for call in calls)
    # A key of GROUP BY may be a column of the domain itself.
    values = [key.value for key in planned]
    domain_columns = tuple(shown[values.index(key.value)] for key in domain_keys)
    return Groups(grouped, tuple(shown[i] for i in ordinals), results, (), domain_columns)


def resolve_calls(
    calls: Sequence[BoundCall], node: Node, resolve: ResolveExpr, within: tuple[Expr, ...]
) -> list[AggregateCall]:
    """Resolve aggregates over a node; refuse one whose order does not determine it among rows with equal `within`."""
    found = []
    for bound in calls:
        if bound.check is not None and not _is_deterministic(bound.check, node, resolve, within):
            raise bound.check.refusal
        found.append(map_call(bound.call, resolve))
    return found


def map_key(key: GroupKey, change: ResolveExpr) -> GroupKey:
    """Return the same key with other columns."""
    return GroupKey(change(key.value), change(key.by))


def map_order(order: Sequence[SortKey], change: ResolveExpr) -> tuple[SortKey, ...]:
    """Return the same order with other columns."""
    return tuple(replace(key, expr=change(key.expr)) for key in order)


def map_call(call: AggregateCall, change: ResolveExpr) -> AggregateCall:
    """Return the same aggregate with other columns."""
    return replace(
        call,
        args=tuple(map(change, call.args)),
        filter=None if call.filter is None else change(call.filter),
        order=map_order(call.order, change),
        direct=tuple(map(change, call.direct)),
        distinct_by=tuple(map(change, call.distinct_by)),
    )


def aggregate_by(below: Node, keys: Sequence[GroupKey], calls: Sequence[AggregateCall]) -> Node:
    """Aggregate the node by the keys; the output has their values, then one column per call."""
    value_calls = [None if key.by == key.value else shown_of(key.value) for key in keys]
    extra_calls = tuple(dict.fromkeys(call for call in value_calls if call is not None))
    node = Aggregate(below, tuple(key.by for key in keys), (*calls, *extra_calls))
    if not extra_calls:
        return node
    output, first = bound_columns(node), len(keys) + len(calls)
    values = (
        output[i] if call is None else output[first + extra_calls.index(call)] for i, call in enumerate(value_calls)
    )
    return Project(node, (*values, *output[len(keys) : first]))


def default_if_no_group(call: AggregateCall, result: Expr) -> Expr:
    """Return the result of an aggregate, or its result over no rows where an outer join found no group."""
    if call.fold is not None and not call.fold.null_of_none:
        construct = f"the aggregate {call.signature} in a subquery that may find no rows"
        raise Refused(Reason.CONSTRUCT, construct, hint="aggregate in a subquery in FROM with GROUP BY, and join it")
    return Coalesce((result, Const(on_empty(call), call.type)), call.type) if not call.nullable else result


def _join_domain(domain: Node, groups: Node) -> Node:
    """Join each row of the domain with its group."""
    pairs = null_safe_pairs(zip(bound_columns(domain), bound_columns(groups), strict=False))
    return OuterJoin(domain, groups, pairs, None, full=False)


def _group_by_sets(node: Node, group: GroupBy, keys: Sequence[GroupKey], calls: Sequence[AggregateCall]) -> Groups:
    """Group once per grouping set, with NULL for keys outside the set."""
    distinct = tuple(dict.fromkeys(calls))
    union = UnionAll(tuple(_aggregate_set(node, group, keys, distinct, chosen) for chosen in group.sets or ()))
    shown, first = bound_columns(union), len(keys)
    results = tuple(shown[first + distinct.index(call)] for call in calls)
    return Groups(union, shown[:first], results, shown[first + len(distinct) :], ())


def _aggregate_set(
    below: Node, group: GroupBy, keys: Sequence[GroupKey], calls: tuple[AggregateCall, ...], chosen: tuple[int, ...]
) -> Node:
    places = [i for i in range(len(keys)) if i in chosen]
    node = aggregate_by(below, [keys[i] for i in places], calls)
    shown = bound_columns(node)
    exprs: list[Expr] = [
        shown[places.index(i)] if i in places else Const(None, key.value.type) for i, key in enumerate(keys)
    ]
    exprs += shown[len(places) :]
    exprs += [Const(_grouping_mask(named, chosen), INT4) for named in group.grouping]
    return Project(node, tuple(exprs))


def _grouping_mask(named: Sequence[int], chosen: Sequence[int]) -> int:
    """Compute GROUPING(): one bit per key, the last key lowest; 1 where the set does not have the key."""
    mask = 0
    for key in named:
        mask = mask * 2 + (key not in chosen)
    return mask


def _is_deterministic(check: OrderCheck, node: Node, resolve: ResolveExpr, within: tuple[Expr, ...]) -> bool:
    """Whether the order determines the result: rows that are equal in it must also have the same arguments."""
    order, args = [resolve(key.expr) for key in check.order], [resolve(arg) for arg in check.args]
    keys = set(order)
    if check.any_of_equals:
        keys |= {key.args[0] for key in keys if isinstance(key, Call) and key.signature.startswith(PLACE_OF)}
    by_arguments = all(isinstance(arg, Const) or arg in keys for arg in args)
    return bool(order) and (identifies_rows(node, (*within, *order)) or by_arguments)
