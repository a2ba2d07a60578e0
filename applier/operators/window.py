"""Rows -> the same rows with one column per window function.

    Δ(ω(A)) = ω(A'_K) − ω(A_K),   K = the values in ΔA of the keys by which all calls partition

Every affected partition is evaluated again, before and after: see `support.partitions`. Where a call has no PARTITION
BY, or the calls have no key in common, that is the whole input. Rows whose values stay the same cancel out inside the
query. Reads the input's trace at the lower end of the LSN range, restricted to K; keeps no state.

Intuitively: a new row can renumber its whole partition, but never another one.

    A: (x, 1) (x, 2) (y, 9)   ω: row_number() OVER (PARTITION BY first ORDER BY second column)
    result (x, 1, 1) (x, 2, 2) (y, 9, 1)
    ΔA: −(x, 1)  →  K = {x}  →  before {(x, 1, 1), (x, 2, 2)} after {(x, 2, 1)}
        →  delta −(x, 1, 1) −(x, 2, 2) +(x, 2, 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from applier.functions.aggregates.aggregate_entry import Additive, OfSet
from applier.functions.aggregates.aggregates import form_of
from applier.functions.emit import spark_sql
from applier.functions.literals import literal
from applier.operators.support.delta_plan import OrderedDelta
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.listed_frames import evaluate_over_list, is_counted_sql, list_frame, needs_listed_frame
from applier.operators.support.partitions import (
    SIDE,
    affected_rows,
    drop_cancelled,
    expand_weights,
    order_by_key,
    over_clause,
    plan_partitions_delta,
)
from applier.plan.expr import INT8, AggregateCall, Const
from applier.plan.nodes import Window, fields
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall
from applier.zset import ZSet, column_names

_COMBINE = {"min": "least", "max": "greatest"}
"""The function that combines the minima or maxima of two parts of a frame."""
_ONE = Const(1, INT8)
_LAST_BEFORE, _FIRST_AFTER = Bound(BoundKind.PRECEDING, _ONE), Bound(BoundKind.FOLLOWING, _ONE)


def snapshot_window(node: Window, zset: ZSet) -> ZSet:
    """Return ω of a whole Z-set."""
    return _evaluate_calls(node, expand_weights(fields(node.input), zset))


def plan_window_delta(node: Window, inputs: InputPlans) -> OrderedDelta | None:
    """Plan ω(A'_K) − ω(A_K)."""
    return plan_partitions_delta(node, inputs)


def render_window_delta(node: Window, before: ZSet, delta: ZSet) -> ZSet:
    """Return ω(A'_K) − ω(A_K)."""
    rows = affected_rows(fields(node.input), before, delta)
    return drop_cancelled(fields(node), _evaluate_calls(node, rows))


def _evaluate_calls(node: Window, rows: str) -> ZSet:
    calls = [_Call(call, i) for i, call in enumerate(node.calls)]
    for stage in (
        [text for call in calls for text in call.number_columns()],
        [text for c in calls for text in c.list_columns()],
    ):
        if stage:
            rows = f"SELECT *, {', '.join(stage)} FROM ({rows})"
    texts = [f"CAST({call.text()} AS {of.type.spark})" for call, of in zip(calls, node.calls, strict=True)]
    return ZSet.select_from(f"({rows})", [*column_names(len(fields(node.input))), *texts], SIDE)


class _Call:
    """Writes one call as Spark SQL."""

    def __init__(self, call: WindowCall, number: int) -> None:
        self._call = call
        self._group, self._row, self._list = (f"__{name}{number}" for name in ("group", "row", "list"))
        self._keys = [spark_sql(key) for key in call.partition]
        self._order = [order_by_key(key) for key in call.order]

    def number_columns(self) -> Iterator[str]:
        """Yield the columns of the first stage: numbers of peer groups, so that an offset in groups becomes a RANGE."""
        in_list = needs_listed_frame(self._call)
        if in_list or (self._call.frame is not None and self._call.frame.mode is FrameMode.GROUPS):
            yield f"dense_rank() {over_clause(self._keys, self._order or ['1'])} AS {self._group}"
        if in_list:
            yield f"row_number() {over_clause(self._keys, self._order or ['1'])} AS {self._row}"

    def list_columns(self) -> Iterator[str]:
        """Yield the columns of the second stage: the list of the frame's rows, where the function needs a list."""
        frame = self._call.frame
        if frame is not None and needs_listed_frame(self._call):
            rows = over_clause(self._keys, ()) if frame.by_calendar or frame.empty else self._over(frame)
            yield f"{list_frame(self._call, frame, rows, self._group, self._row)} AS {self._list}"

    def text(self) -> str:
        """Return the function with its OVER clause."""
        call = self._call
        args = [spark_sql(arg) for arg in call.args]
        if call.frame is None:
            return f"{call.function.value}({', '.join(args)}) {over_clause(self._keys, self._order or ['1'])}"
        if needs_listed_frame(call):
            return evaluate_over_list(call, self._list)
        if call.aggregate is None:
            return f"{call.function.value}({', '.join(args)}) {self._over(call.frame)}"
        parts = [call.frame] if call.frame.exclude is Exclude.NOTHING else _split_around_current_row(call.frame)
        return self._aggregate(call.aggregate, [self._over(part) for part in parts])

    def _aggregate(self, call: AggregateCall, parts: list[str]) -> str:
        """Return the aggregate over all parts of the frame together."""
        args, is_counted = [spark_sql(arg) for arg in call.args], is_counted_sql(call)
        form = form_of(call)
        match form:
            case Additive():
                n = _sum_sql([f"count(if({is_counted}, 1, NULL)) {part}" for part in parts], "bigint")
                sums = []
                for part_sum in form.sums(call):
                    value = f"if({is_counted}, CAST({part_sum.text.format(*args)} AS {part_sum.type}), NULL)"
                    sums.append(_sum_sql([f"sum({value}) {part}" for part in parts], part_sum.type))
                return form.result(call).format(*sums, n=n)
            case OfSet():
                value = form.text.format(f"if({is_counted}, {args[0]}, NULL)", *args[1:])
                texts = [f"{value} {part}" for part in parts]
                if len(texts) < 2:
                    return texts[0] if texts else "NULL"
                return f"{_COMBINE[call.signature.partition('(')[0]]}({', '.join(texts)})"
            case _:
                raise AssertionError("an aggregate over a list has no OVER clause")

    def _over(self, frame: Frame) -> str:
        if frame.whole:
            # The order still matters to first_value, last_value and nth_value.
            order = self._order
        elif frame.mode is FrameMode.GROUPS:
            order = [f"{self._group} ASC"]
        else:
            order = self._offset_order() if frame.mode is FrameMode.RANGE and _has_offset(frame) else self._order
        if not order and (frame.whole or frame.mode is not FrameMode.ROWS):
            # All rows of the partition are peers.
            return over_clause(self._keys, ())
        # Rows are counted in any order only where they are equal.
        order = order or ["1"]
        bounds = f"{_bound_sql(frame.start, frame.mode)} AND {_bound_sql(frame.end, frame.mode)}"
        mode = "ROWS" if frame.whole or frame.mode is FrameMode.ROWS else "RANGE"
        return over_clause(self._keys, order, f"{mode} BETWEEN {bounds}")

    def _offset_order(self) -> list[str]:
        """Return the one sort key in the type of the offsets, in which nothing overflows."""
        frame, (key,) = self._call.frame, self._call.order
        offsets = [b.offset for b in (frame.start, frame.end) if b.offset is not None] if frame else []
        written = order_by_key(key).removeprefix(spark_sql(key.expr))
        value = spark_sql(key.expr)
        if key.expr.type.spark in ("date", "timestamp_ntz", "timestamp"):
            return [f"unix_micros(CAST({value} AS timestamp)){written}"]
        return [f"CAST({value} AS {offsets[0].type.spark}){written}"]


def _sum_sql(texts: list[str], spark: str) -> str:
    total = " + ".join(f"coalesce({text}, CAST(0 AS {spark}))" for text in texts)
    return f"CAST({total or '0'} AS {spark})"


def _has_offset(frame: Frame) -> bool:
    return frame.start.offset is not None or frame.end.offset is not None


def _split_around_current_row(frame: Frame) -> list[Frame]:
    """Split a ROWS frame without the current row into the part before that row and the part after it, if any."""
    parts = []
    if frame.start.kind in (BoundKind.FIRST, BoundKind.PRECEDING):
        reaches_current = frame.end.kind is not BoundKind.PRECEDING
        parts.append(Frame(frame.mode, frame.start, _LAST_BEFORE if reaches_current else frame.end))
    if frame.end.kind in (BoundKind.FOLLOWING, BoundKind.LAST):
        reaches_current = frame.start.kind is not BoundKind.FOLLOWING
        parts.append(Frame(frame.mode, _FIRST_AFTER if reaches_current else frame.start, frame.end))
    return parts


def _bound_sql(bound: Bound, mode: FrameMode) -> str:
    match bound.kind:
        case BoundKind.FIRST | BoundKind.CURRENT | BoundKind.LAST:
            return str(bound.kind.value)
        case BoundKind.PRECEDING | BoundKind.FOLLOWING:
            if bound.offset is None:
                raise AssertionError("a bound without its offset")
            offset = literal(bound.offset) if mode is FrameMode.RANGE else str(bound.offset.value)
            return f"{offset} {bound.kind.value}"
        case _:
            assert_never(bound.kind)
