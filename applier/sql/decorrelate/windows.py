"""Window functions -> Window nodes, one per partition and order. Pure.

Below them a projection computes the partition keys, the sort keys, the arguments and the selected columns, and nothing
else: rows that are equal in all of these are the same row for the window.

A function that depends on a row's exact position is accepted only when the order has no ties. A function that has the
same result for all peers is always accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from applier.functions.aggregates.aggregate_entry import OfList
from applier.functions.aggregates.aggregates import form_of
from applier.plan.expr import Col, Const, Expr, columns_read, renumber
from applier.plan.keys import identifies_rows
from applier.plan.nodes import Node, Window, fields
from applier.plan.sort import fixed_columns
from applier.plan.window import OF_FRAME_ROWS, OF_PEERS, OF_PLACES, FrameMode, WindowCall
from applier.sql.bound.columns import WindowCol
from applier.sql.bound.nodes import BoundWindow
from applier.sql.decorrelate.lowered import Lowered, bound_columns, project_columns, resolve_columns
from applier.sql.decorrelate.scope import Scope


def lower_targets(node: Node, scope: Scope, domain_at: int | None) -> Lowered:
    """Compute the targets of a Select over a node, with the Window nodes that they need in between.

    The columns of the domain are among the targets, before the one at `domain_at`; None is the end.
    """
    select, domain = scope.select, scope.domain_columns
    if not select.windows:
        return Lowered(node, tuple(map(scope.resolve, select.targets)), domain)
    width, at = len(fields(node)), len(select.targets) if domain_at is None else domain_at
    planned = [
        replace(c, partition=(*c.partition, *domain)) for c in (w.call.over(scope.resolve) for w in select.windows)
    ]

    def column(reference: Col) -> Expr:
        found = select.columns[reference.ordinal]
        if isinstance(found, WindowCol):
            call = planned[found.number]
            return Col(width + found.number, call.type, call.nullable)
        return scope.column(reference.ordinal)

    targets = [resolve_columns(target, column) for target in select.targets]
    selected = [*targets[:at], *domain, *targets[at:]]
    passed_through = dict.fromkeys(o for e in selected for o in columns_read(e) if o < width)
    shown = bound_columns(node)
    inputs = list(
        dict.fromkeys([*(shown[o] for o in passed_through), *(e for c in planned for e in _computed_inputs(c))])
    )
    ordinal_of = {e: i for i, e in enumerate(inputs)}
    base = project_columns(node, tuple(inputs))
    below = bound_columns(base)
    rebased = [c.over(lambda e: e if isinstance(e, Const) else below[ordinal_of[e]]) for c in planned]
    _check_deterministic(base, rebased, select.windows)
    result, outputs = _stack_windows(base, rebased)
    new_ordinals = {o: ordinal_of[shown[o]] for o in passed_through} | {width + i: o for i, o in outputs.items()}
    exprs = tuple(renumber(e, new_ordinals.__getitem__) for e in selected)
    end = at + len(domain)
    return Lowered(result, (*exprs[:at], *exprs[end:]), exprs[at:end])


def _computed_inputs(call: WindowCall) -> Iterator[Expr]:
    """Yield every expression that the call needs from the node below; literals are not computed there."""
    return (expr for expr in call.inputs() if not isinstance(expr, Const))


def _stack_windows(node: Node, calls: Sequence[WindowCall]) -> tuple[Node, dict[int, int]]:
    """Stack as few Window nodes as possible without reading more rows; also return the ordinal of each call's result.

    A call without a partition reads every row, and then the other calls are computed with it. Otherwise calls with the
    same partition are computed together.
    """
    partitions = [frozenset(c.partition) for c in calls]
    together = not all(partitions)
    outputs: dict[int, int] = {}
    for partition in [frozenset[Expr]()] if together else list(dict.fromkeys(partitions)):
        members = [i for i, keys_of_call in enumerate(partitions) if together or keys_of_call == partition]
        outputs |= {i: len(fields(node)) + n for n, i in enumerate(members)}
        keys = () if together else calls[members[0]].partition
        node = Window(node, keys, tuple(calls[i] for i in members))
    return node, outputs


def _check_deterministic(node: Node, calls: Sequence[WindowCall], windows: Sequence[BoundWindow]) -> None:
    """Refuse a call whose result is not deterministic because of ties.

    Each call is checked over the results of the calls before it: two different numberings of equal rows do not agree.
    """
    specs = dict.fromkeys((c.partition, c.order) for c in calls)
    for partition, order in specs:
        same_window = [
            (c, w) for c, w in zip(calls, windows, strict=True) if (c.partition, c.order) == (partition, order)
        ]
        for call, window in same_window:
            if not _is_deterministic(node, call):
                raise window.refusal
        node = Window(node, (), tuple(call for call, _ in same_window))


def _is_deterministic(node: Node, call: WindowCall) -> bool:
    order_columns = (*call.partition, *(key.expr for key in call.order))
    if call.function in OF_PEERS or identifies_rows(node, order_columns):
        return True
    by_peers = call.frame is not None and (call.frame.unbounded or call.frame.mode is not FrameMode.ROWS)
    args = call.args
    if call.aggregate is not None:
        args = call.aggregate.args
        form = form_of(call.aggregate)
        if not isinstance(form, OfList) or form.default_order:
            return by_peers
    if call.function in OF_FRAME_ROWS or call.aggregate is not None:
        return by_peers and {o for arg in args for o in columns_read(arg)} <= fixed_columns(order_columns)
    return by_peers and call.function not in OF_PLACES
