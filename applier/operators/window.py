"""Δ(ω(A)) = ω(A'_K) − ω(A_K), K = the values that ΔA has of what all calls partition by.

Every touched partition anew, before and after: see `partitions`. Where a call has no PARTITION BY, or the calls have
nothing in common there, that is the whole input. Rows whose values stay cancel out within the
query. Reads the input's trace before the window, restricted to K; keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from applier.functions.aggregates.aggregate_entry import Additive, OfSet
from applier.functions.aggregates.aggregates import form_of
from applier.functions.emit import spark_sql
from applier.functions.literals import literal
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.listed_frames import evaluate_over_list, is_counted_sql, list_frame, needs_listed_frame
from applier.operators.support.partitions import (
    SIDE,
    affected_rows,
    drop_cancelled,
    expand_weights,
    order_by_key,
    over_clause,
)
from applier.plan.expr import INT8, AggregateCall, Const
from applier.plan.nodes import Window, fields
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall
from applier.zset import column_names, select

_BOTH = {"min": "least", "max": "greatest"}
"""How the extremes of two parts of a frame become one."""
_ONE = Const(1, INT8)
_LAST_BEFORE, _FIRST_AFTER = Bound(BoundKind.PRECEDING, _ONE), Bound(BoundKind.FOLLOWING, _ONE)


def snapshot_window(node: Window, zset: str) -> str:
    """ω of a whole Z-set."""
    return _computed(node, expand_weights(fields(node.input), zset))


def delta_window(node: Window, before: Callable[[KeyFilter], str], delta: str, *, small: bool) -> str:
    """ω(A'_K) − ω(A_K)."""
    rows = affected_rows(fields(node.input), node.keys, before, delta, small=small)
    return drop_cancelled(fields(node), _computed(node, rows))


def _computed(node: Window, rows: str) -> str:
    calls = [_Call(call, i) for i, call in enumerate(node.calls)]
    for stage in ([text for call in calls for text in call.numbered()], [text for c in calls for text in c.listed()]):
        if stage:
            rows = f"SELECT *, {', '.join(stage)} FROM ({rows})"
    texts = [f"CAST({call.text()} AS {of.type.spark})" for call, of in zip(calls, node.calls, strict=True)]
    return select([*column_names(len(fields(node.input))), *texts], SIDE, f"({rows})")


class _Call:
    """One call as Spark SQL."""

    def __init__(self, call: WindowCall, number: int) -> None:
        self._call = call
        self._group, self._row, self._list = (f"__{name}{number}" for name in ("group", "row", "list"))
        self._keys = [spark_sql(key) for key in call.partition]
        self._order = [order_by_key(key) for key in call.order]

    def numbered(self) -> Iterator[str]:
        """Groups of peers are numbered first: an offset in groups is then a range of those numbers."""
        in_list = needs_listed_frame(self._call)
        if in_list or (self._call.frame is not None and self._call.frame.mode is FrameMode.GROUPS):
            yield f"dense_rank() {over_clause(self._keys, self._order or ['1'])} AS {self._group}"
        if in_list:
            yield f"row_number() {over_clause(self._keys, self._order or ['1'])} AS {self._row}"

    def listed(self) -> Iterator[str]:
        """Then the rows of each frame are listed, where the function is asked of a list."""
        frame = self._call.frame
        if frame is not None and needs_listed_frame(self._call):
            rows = over_clause(self._keys, ()) if frame.by_calendar or frame.empty else self._over(frame)
            yield f"{list_frame(self._call, frame, rows, self._group, self._row)} AS {self._list}"

    def text(self) -> str:
        """The function with its OVER clause."""
        call = self._call
        args = [spark_sql(arg) for arg in call.args]
        if call.frame is None:
            return f"{call.function.value}({', '.join(args)}) {over_clause(self._keys, self._order or ['1'])}"
        if needs_listed_frame(call):
            return evaluate_over_list(call, self._list)
        if call.aggregate is None:
            return f"{call.function.value}({', '.join(args)}) {self._over(call.frame)}"
        parts = [call.frame] if call.frame.exclude is Exclude.NOTHING else _around(call.frame)
        return self._aggregate(call.aggregate, [self._over(part) for part in parts])

    def _aggregate(self, call: AggregateCall, parts: list[str]) -> str:
        """The aggregate over what lies in all parts of the frame together."""
        args, there = [spark_sql(arg) for arg in call.args], is_counted_sql(call)
        form = form_of(call)
        match form:
            case Additive():
                n = _summed([f"count(if({there}, 1, NULL)) {part}" for part in parts], "bigint")
                sums = []
                for one in form.sums(call):
                    value = f"if({there}, CAST({one.text.format(*args)} AS {one.type}), NULL)"
                    sums.append(_summed([f"sum({value}) {part}" for part in parts], one.type))
                return form.result(call).format(*sums, n=n)
            case OfSet():
                value = form.text.format(f"if({there}, {args[0]}, NULL)", *args[1:])
                texts = [f"{value} {part}" for part in parts]
                if len(texts) < 2:
                    return texts[0] if texts else "NULL"
                return f"{_BOTH[call.signature.partition('(')[0]]}({', '.join(texts)})"
            case _:
                raise AssertionError("an aggregate of a list over a window")

    def _over(self, frame: Frame) -> str:
        if frame.whole:
            # The order is kept for whoever asks which row is first.
            order = self._order
        elif frame.mode is FrameMode.GROUPS:
            order = [f"{self._group} ASC"]
        else:
            order = self._measured() if frame.mode is FrameMode.RANGE and _has_offset(frame) else self._order
        if not order:
            return over_clause(self._keys, ())
        bounds = f"{_bound(frame.start, frame.mode)} AND {_bound(frame.end, frame.mode)}"
        mode = "ROWS" if frame.whole or frame.mode is FrameMode.ROWS else "RANGE"
        return over_clause(self._keys, order, f"{mode} BETWEEN {bounds}")

    def _measured(self) -> list[str]:
        """The one sort key in the type of the offsets, in which nothing overflows."""
        frame, (key,) = self._call.frame, self._call.order
        offsets = [b.offset for b in (frame.start, frame.end) if b.offset is not None] if frame else []
        written = order_by_key(key).removeprefix(spark_sql(key.expr))
        value = spark_sql(key.expr)
        if key.expr.type.spark in ("date", "timestamp_ntz", "timestamp"):
            return [f"unix_micros(CAST({value} AS timestamp)){written}"]
        return [f"CAST({value} AS {offsets[0].type.spark}){written}"]


def _summed(texts: list[str], spark: str) -> str:
    total = " + ".join(f"coalesce({text}, CAST(0 AS {spark}))" for text in texts)
    return f"CAST({total or '0'} AS {spark})"


def _has_offset(frame: Frame) -> bool:
    return frame.start.offset is not None or frame.end.offset is not None


def _around(frame: Frame) -> list[Frame]:
    """A frame of rows without its own row: what lies before it and what lies after it, where there is anything."""
    found = []
    if frame.start.kind in (BoundKind.FIRST, BoundKind.PRECEDING):
        reaches = frame.end.kind is not BoundKind.PRECEDING
        found.append(Frame(frame.mode, frame.start, _LAST_BEFORE if reaches else frame.end))
    if frame.end.kind in (BoundKind.FOLLOWING, BoundKind.LAST):
        reaches = frame.start.kind is not BoundKind.FOLLOWING
        found.append(Frame(frame.mode, _FIRST_AFTER if reaches else frame.start, frame.end))
    return found


def _bound(bound: Bound, mode: FrameMode) -> str:
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
