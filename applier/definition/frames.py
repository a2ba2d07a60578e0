"""The frame of a window: PostgreSQL's option bits and offsets -> a Frame that Spark computes exactly. Pure."""

from __future__ import annotations

from typing import TypeVar

from applier.definition import query_tree, tree
from applier.definition.catalog import Catalog
from applier.definition.compile import Compiler
from applier.definition.fields import unknown
from applier.definition.refusal import Reason, Refused
from applier.definition.spans import literal_micros
from applier.expressions.entry import Unfit, common_decimal, decimal, decimal_of
from applier.plan.expr import Call, Const, Expr, SortKey, ValueType
from applier.plan.window import Bound, BoundKind, Frame, FrameMode
from shared_schema.pg_types import PgType

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
_EXCLUDE_CURRENT, _EXCLUDE_GROUP, _EXCLUDE_TIES = 0x8000, 0x10000, 0x20000
_Option = TypeVar("_Option", FrameMode, BoundKind)
_MOST_ROWS = 2**31 - 1
_INTEGERS = ("smallint", "int", "bigint")


def frame(clause: query_tree.WindowClause, order: tuple[SortKey, ...], catalog: Catalog) -> Frame:
    """The frame of a window clause over an order."""
    mode = _one(_MODES, clause.options)
    ends = _one(_STARTS, clause.options), _one(_ENDS, clause.options)
    known = _WRITTEN_OUT | _EXCLUDE_CURRENT | _EXCLUDE_GROUP | _EXCLUDE_TIES
    if clause.options & ~(known | sum(_MODES) | sum(_STARTS) | sum(_ENDS)):
        raise unknown("a frame of a window")
    offsets = [_offset(e, catalog) for e in (clause.start, clause.end)]
    without_current = bool(clause.options & _EXCLUDE_CURRENT)
    if clause.options & (_EXCLUDE_GROUP | _EXCLUDE_TIES) or (without_current and mode is not FrameMode.ROWS):
        hint = "use EXCLUDE CURRENT ROW of a ROWS frame, or leave EXCLUDE out"
        raise Refused(Reason.FRAME, "this EXCLUDE of a window frame", hint=hint)
    if not order and mode is not FrameMode.ROWS:
        # Without an order all rows are peers.
        return Frame(FrameMode.ROWS, Bound(BoundKind.FIRST), Bound(BoundKind.LAST), without_current)
    start, end = _sized(mode, offsets, order)
    found = Frame(mode, Bound(ends[0], start), Bound(ends[1], end), without_current)
    if _empty(found):
        raise Refused(Reason.FRAME, "a frame of ROWS, RANGE or GROUPS that ends before it begins", hint="swap its ends")
    return found


def _one(of: dict[int, _Option], options: int) -> _Option:
    found = [value for bit, value in of.items() if options & bit]
    if len(found) != 1:
        raise unknown("a frame of a window")
    return found[0]


def _offset(expression: tree.Expression | None, catalog: Catalog) -> Const | None:
    if expression is None:
        return None
    compiled: Expr = Compiler(catalog, lambda _: None).compile(expression)
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
        raise Refused(
            Reason.FRAME, "a frame of ROWS or GROUPS of that size", hint="write a number from 0 to 2147483647"
        )
    if counted or not given:
        return offsets
    if order[0].expr.type.spark in ("date", "timestamp_ntz"):
        return [None if o is None else _micros(o) for o in offsets]
    try:
        carrier = _measure(order[0].expr, given)
    except Unfit as error:
        hint = "use an offset over integers or numeric(p,s), or ROWS"
        raise Refused(Reason.FRAME, f"a RANGE of {error.problem}", hint=error.hint or hint) from error
    return [None if o is None else Const(o.value, ValueType(o.type.pg, carrier)) for o in offsets]


def _micros(offset: Const) -> Const:
    micros = literal_micros(offset)
    if micros is None or micros < 0:
        hint = "write the offset as a literal of days, hours, minutes and seconds"
        raise Refused(Reason.FRAME, "a RANGE of months or of a computed interval", hint=hint)
    return Const(micros, ValueType(PgType(20, -1, "int8", "bigint"), "bigint"))


def _measure(key: Expr, offsets: list[Const]) -> str:
    exprs: list[Expr] = [key, *offsets]
    if all(e.type.spark in _INTEGERS for e in exprs):
        return "bigint" if all(e.type.spark != "bigint" for e in exprs) else decimal(20, 0)
    if all(e.type.spark.startswith("decimal(") for e in exprs):
        sizes = [decimal_of(e) for e in exprs]
        digits = max(p - s for p, s in sizes) + 1
        scale = max(s for _, s in sizes)
        return common_decimal([(digits + scale, scale)])
    raise Unfit(f"values of type {key.type.pg.display}")


def _empty(found: Frame) -> bool:
    """Whether no row can be in it: Spark does not take such a frame."""
    start, end = found.start, found.end
    if start.offset is None or end.offset is None or start.kind is not end.kind:
        return False
    larger, smaller = (start, end) if start.kind is BoundKind.FOLLOWING else (end, start)
    return bool(_size(larger) > _size(smaller))


def _size(bound: Bound) -> int:
    value = bound.offset.value if bound.offset is not None else 0
    return value if isinstance(value, int) else int(str(value).partition(".")[0])
