"""The option bits and offsets of a PostgreSQL window frame -> a Frame that Spark computes exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeVar

from applier.functions.entry import UnsuitableArguments, common_decimal, decimal, decimal_of
from applier.plan.expr import INT8, Call, Const, Expr, SortKey, ValueType
from applier.plan.window import Bound, BoundKind, Exclude, Frame, FrameMode
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import compile_expression
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
_EXPLICIT = 0x1 | 0x10
_EXCLUDES = {0x8000: Exclude.CURRENT, 0x10000: Exclude.GROUP, 0x20000: Exclude.TIES}
_Option = TypeVar("_Option", FrameMode, BoundKind)
_MAX_ROWS = 2**31 - 1
_INTEGERS = ("smallint", "int", "bigint")
_DATETIMES = ("date", "timestamp_ntz", "timestamp")


def bind_frame(clause: query_tree.WindowClause, order: tuple[SortKey, ...], catalog: CatalogSnapshot) -> Frame:
    """Bind the frame of a window clause whose rows have this order."""
    mode = _single_option(_MODES, clause.options)
    ends = _single_option(_STARTS, clause.options), _single_option(_ENDS, clause.options)
    if clause.options & ~(_EXPLICIT | sum(_EXCLUDES) | sum(_MODES) | sum(_STARTS) | sum(_ENDS)):
        raise unknown("a frame of a window")
    offsets = [_offset(e, catalog) for e in (clause.start, clause.end)]
    exclude = next((kind for bit, kind in _EXCLUDES.items() if clause.options & bit), Exclude.NOTHING)
    if not order and mode is not FrameMode.ROWS:
        # Without an order all rows are peers.
        return Frame(FrameMode.ROWS, Bound(BoundKind.FIRST), Bound(BoundKind.LAST), exclude)
    start, end = _convert_offsets(mode, offsets, order)
    return Frame(mode, Bound(ends[0], start), Bound(ends[1], end), exclude)


def _single_option(options_by_bit: dict[int, _Option], options: int) -> _Option:
    found = [value for bit, value in options_by_bit.items() if options & bit]
    if len(found) != 1:
        raise unknown("a frame of a window")
    return found[0]


def _offset(expression: tree.Expression | None, catalog: CatalogSnapshot) -> Const | None:
    if expression is None:
        return None
    compiled: Expr = compile_expression(expression, {}, catalog)
    if isinstance(compiled, Call) and len(compiled.args) == 1:
        (compiled,) = compiled.args
    if isinstance(compiled, Const) and compiled.value is not None:
        return compiled
    raise Refused(
        Reason.FRAME, "a ROWS, RANGE or GROUPS frame whose offset is not a literal", hint="write a literal number"
    )


def _convert_offsets(mode: FrameMode, offsets: list[Const | None], order: tuple[SortKey, ...]) -> list[Const | None]:
    """Convert offsets for Spark: keep row and group counts, give values a type that is wide enough for key ± offset."""
    present = [o for o in offsets if o is not None]
    is_count = mode is not FrameMode.RANGE
    if is_count and any(not isinstance(o.value, int) or not 0 <= o.value <= _MAX_ROWS for o in present):
        hint, is_only_too_large = (
            "write a number from 0 to 2147483647",
            all(isinstance(o.value, int) and o.value >= 0 for o in present),
        )
        construct = "a ROWS or GROUPS frame with an offset of this size"
        raise Refused(Reason.FRAME, construct, hint=hint, full_in_postgres=is_only_too_large)
    if is_count or not present:
        return offsets
    key = order[0].expr
    if key.type.spark in _DATETIMES:
        return _convert_intervals(offsets)
    try:
        physical_type = _offset_type(key, present)
    except UnsuitableArguments as error:
        hint = "order by integers, numeric(p,s), floats, dates or timestamps, or use ROWS"
        raise Refused(Reason.FRAME, f"a RANGE frame over {error.problem}", hint=error.hint or hint) from error
    return [
        None if o is None else Const(_convert_number(o, physical_type), ValueType(o.type.pg, physical_type))
        for o in offsets
    ]


def _negative_offset(hint: str) -> Refused:
    """Refuse a negative offset. PostgreSQL raises an error for it as soon as there is a row."""
    return Refused(Reason.FRAME, "a RANGE frame with a negative offset", hint=hint, full_in_postgres=False)


def _convert_number(offset: Const, physical_type: str) -> Value:
    value = offset.value
    if not isinstance(value, int | float | Decimal) or not value >= 0:
        raise _negative_offset("write a number that is not negative")
    return float(value) if physical_type == "double" else value


def _convert_intervals(offsets: list[Const | None]) -> list[Const | None]:
    """Convert intervals to microseconds with days of 24 hours; keep intervals that have months."""
    micros = [None if o is None else literal_micros(o) for o in offsets]
    for offset, length in zip(offsets, micros, strict=True):
        if offset is not None and ("-" in str(offset.value) if length is None else length < 0):
            raise _negative_offset("write an interval that is not negative")
    if any(o is not None and length is None for o, length in zip(offsets, micros, strict=True)):
        return offsets
    return [None if length is None else Const(length, INT8) for length in micros]


def _offset_type(key: Expr, offsets: list[Const]) -> str:
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
