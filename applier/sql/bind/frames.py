"""The frame of a window: PostgreSQL's option bits and offsets -> a Frame that Spark computes exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeVar

from applier.functions.entry import UnsuitableArguments, common_decimal, decimal, decimal_of
from applier.plan.expr import INT8, Call, Const, Expr, SortKey, ValueType
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler
from applier.sql.typing.interval_literals import literal_micros
from shared_schema.change_row import Value

_MODES = {0x2: FrameMode.RANGE, 0x4: FrameMode.ROWS, 0x8: FrameMode.GROUPS}
_STARTS = {
    0x20: BoundKind.FIRST,
    0x200: BoundKind.CURRENT,
    0x800: BoundKind.PRECEDING,
    0x2000: BoundKind.FOLLOWING,
}
_ENDS = {
    0x100: BoundKind.LAST,
    0x400: BoundKind.CURRENT,
    0x1000: BoundKind.PRECEDING,
    0x4000: BoundKind.FOLLOWING,
}
_WRITTEN_OUT = 0x1 | 0x10
_EXCLUDES = {0x8000: Exclude.CURRENT, 0x10000: Exclude.GROUP, 0x20000: Exclude.TIES}
_Option = TypeVar("_Option", FrameMode, BoundKind)
_MOST_ROWS = 2**31 - 1
_INTEGERS = ("smallint", "int", "bigint")
_MOMENTS = ("date", "timestamp_ntz", "timestamp")


def bind_frame(clause: query_tree.WindowClause, order: tuple[SortKey, ...], catalog: SystemCatalog) -> Frame:
    """The frame of a window clause over an order."""
    mode = _one(_MODES, clause.options)
    ends = _one(_STARTS, clause.options), _one(_ENDS, clause.options)
    if clause.options & ~(_WRITTEN_OUT | sum(_EXCLUDES) | sum(_MODES) | sum(_STARTS) | sum(_ENDS)):
        raise unknown("a frame of a window")
    offsets = [_offset(e, catalog) for e in (clause.start, clause.end)]
    exclude = next((kind for bit, kind in _EXCLUDES.items() if clause.options & bit), Exclude.NOTHING)
    if not order and mode is not FrameMode.ROWS:
        # Without an order all rows are peers.
        return Frame(FrameMode.ROWS, Bound(BoundKind.FIRST), Bound(BoundKind.LAST), exclude)
    start, end = _sized(mode, offsets, order)
    return Frame(mode, Bound(ends[0], start), Bound(ends[1], end), exclude)


def _one(of: dict[int, _Option], options: int) -> _Option:
    found = [value for bit, value in of.items() if options & bit]
    if len(found) != 1:
        raise unknown("a frame of a window")
    return found[0]


def _offset(expression: tree.Expression | None, catalog: SystemCatalog) -> Const | None:
    if expression is None:
        return None
    compiled: Expr = ExpressionCompiler(catalog, lambda _: None).compile(expression)
    if isinstance(compiled, Call) and len(compiled.args) == 1:
        (compiled,) = compiled.args
    if isinstance(compiled, Const) and compiled.value is not None:
        return compiled
    raise Refused(Reason.FRAME, "a frame of ROWS, RANGE or GROUPS of computed size", hint="write the number itself")


def _sized(mode: FrameMode, offsets: list[Const | None], order: tuple[SortKey, ...]) -> list[Const | None]:
    """Offsets that Spark can count with: rows and groups as they are, values in a type wide enough for key ± offset."""
    given = [o for o in offsets if o is not None]
    counted = mode is not FrameMode.RANGE
    if counted and any(not isinstance(o.value, int) or not 0 <= o.value <= _MOST_ROWS for o in given):
        hint, larger = (
            "write a number from 0 to 2147483647",
            all(isinstance(o.value, int) and o.value >= 0 for o in given),
        )
        construct = "a frame of ROWS or GROUPS of that size"
        raise Refused(Reason.FRAME, construct, hint=hint, full_in_postgres=larger)
    if counted or not given:
        return offsets
    key = order[0].expr
    if key.type.spark in _MOMENTS:
        return _spans(offsets)
    try:
        physical_type = _measure(key, given)
    except UnsuitableArguments as error:
        hint = "use an offset over integers, numeric(p,s), floats, dates or timestamps, or ROWS"
        raise Refused(Reason.FRAME, f"a RANGE of {error.problem}", hint=error.hint or hint) from error
    return [
        None if o is None else Const(_number(o, physical_type), ValueType(o.type.pg, physical_type)) for o in offsets
    ]


def _negative(hint: str) -> Refused:
    """To PostgreSQL an error, as soon as there is a row."""
    return Refused(Reason.FRAME, "a RANGE of less than nothing", hint=hint, full_in_postgres=False)


def _number(offset: Const, physical_type: str) -> Value:
    value = offset.value
    if not isinstance(value, int | float | Decimal) or not value >= 0:
        raise _negative("write a number that is not negative")
    return float(value) if physical_type == "double" else value


def _spans(offsets: list[Const | None]) -> list[Const | None]:
    """Microseconds, where a day has 24 hours; intervals as they are where they have months."""
    micros = [None if o is None else literal_micros(o) for o in offsets]
    for offset, length in zip(offsets, micros, strict=True):
        if offset is not None and ("-" in str(offset.value) if length is None else length < 0):
            raise _negative("write an interval that is not negative")
    if any(o is not None and length is None for o, length in zip(offsets, micros, strict=True)):
        return offsets
    return [None if length is None else Const(length, INT8) for length in micros]


def _measure(key: Expr, offsets: list[Const]) -> str:
    exprs: list[Expr] = [key, *offsets]
    if all(e.type.spark in _INTEGERS for e in exprs):
        return "bigint" if all(e.type.spark != "bigint" for e in exprs) else decimal(20, 0)
    if key.type.spark in ("float", "double"):
        return "double"
    if all(e.type.spark.startswith("decimal(") for e in exprs):
        sizes = [decimal_of(e) for e in exprs]
        digits = max(p - s for p, s in sizes) + 1
        scale = max(s for _, s in sizes)
        return common_decimal([(digits + scale, scale)])
    raise UnsuitableArguments(f"values of type {key.type.pg.display}")
