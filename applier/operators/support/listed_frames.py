"""Window functions over frames that Spark does not support: collect the rows of the frame, evaluate over that list.

    ω(r) = f([x ∈ frame(r) : x is not left out])

The rows of a list are in the window's order, and rows that are equal in it are ordered by their values: the same rows
always make the same list. This needs memory for the frame of every row; frames that Spark supports never come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from applier.functions.aggregates.aggregate_entry import Additive, Form, OfList, OfSet
from applier.functions.aggregates.aggregates import entry_of, form_of
from applier.functions.emit import spark_sql
from applier.operators.support.accumulators import sum_over_list
from applier.plan.expr import AggregateCall, Call, Expr, SortKey, ValueType
from applier.plan.window import OF_FRAME_ROWS, Bound, BoundKind, Exclude, Frame, FrameMode, WindowCall, WindowFunction
from shared_schema.pg_types import PgType

_MIN_MAX = {"min({0})": "array_min", "max({0})": "array_max"}
_KINDS = {"date": "date", "timestamp_ntz": "timestamp", "timestamp": "timestamptz"}


def needs_listed_frame(call: WindowCall) -> bool:
    """Whether the call is computed from a list of the frame's rows."""
    frame = call.frame
    if frame is None:
        return False
    if isinstance(_form(call), OfList) or frame.by_calendar or frame.empty:
        return True
    match frame.exclude:
        case Exclude.NOTHING:
            return False
        case Exclude.CURRENT:
            return frame.mode is not FrameMode.ROWS or call.function in OF_FRAME_ROWS
        case Exclude.GROUP | Exclude.TIES:
            return True
        case _:
            assert_never(frame.exclude)


def is_computable(call: WindowCall) -> bool:
    """Whether the function can be computed over a frame that leaves rows out."""
    form = _form(call)
    parts = needs_listed_frame(call) or (call.frame is not None and call.frame.exclude is not Exclude.NOTHING)
    return not (parts and isinstance(form, OfSet)) or form.text in _MIN_MAX


def _form(call: WindowCall) -> Form | None:
    return None if call.aggregate is None else form_of(call.aggregate)


def is_counted_sql(call: AggregateCall) -> str:
    """Return the condition that a row counts for an aggregate."""
    conditions = [] if call.filter is None else [f"coalesce({spark_sql(call.filter)}, false)"]
    if entry_of(call).skips_null:
        conditions += [f"{spark_sql(arg)} IS NOT NULL" for arg in call.args]
    return " AND ".join(conditions) or "true"


def list_frame(call: WindowCall, frame: Frame, over: str, group: str, row: str) -> str:
    """Return the list of the frame's rows: `over` selects them, `group` and `row` number the peer groups and rows."""
    args = call.args if call.aggregate is None else call.aggregate.args
    fields = [f"{group} AS g", *(f"{spark_sql(arg)} AS a{i}" for i, arg in enumerate(args)), f"{row} AS r"]
    if frame.by_calendar:
        fields.append(f"{spark_sql(call.order[0].expr)} AS k")
    is_counted = "true" if call.aggregate is None else is_counted_sql(call.aggregate)
    rows = f"collect_list(if({is_counted}, struct({', '.join(fields)}), NULL)) {over}"
    conditions = _exclude_conditions(frame.exclude, group, row)
    if frame.empty:
        # The frame of a row with a NULL key is its peers, whatever the offsets are.
        peers = f"{spark_sql(call.order[0].expr)} IS NULL AND x.g = {group}"
        conditions.append(peers if frame.mode is FrameMode.RANGE else "false")
    elif frame.by_calendar:
        conditions += _bound_conditions(frame, call.order[0], group)
    filtered = f"filter({rows}, x -> {' AND '.join(conditions)})" if conditions else rows
    return f"array_sort({filtered})"


def _exclude_conditions(exclude: Exclude, group: str, row: str) -> list[str]:
    match exclude:
        case Exclude.NOTHING:
            return []
        case Exclude.CURRENT:
            return [f"x.r <> {row}"]
        case Exclude.GROUP:
            return [f"x.g <> {group}"]
        case Exclude.TIES:
            return [f"(x.g <> {group} OR x.r = {row})"]
        case _:
            assert_never(exclude)


def _bound_conditions(frame: Frame, key: SortKey, group: str) -> list[str]:
    """Return conditions for rows between key ± interval and key ± interval, by the calendar; NULL keys: the peers."""
    conditions = []
    for bound, sign, beyond in ((frame.start, ">=", not key.nulls_first), (frame.end, "<=", key.nulls_first)):
        if bound.kind in (BoundKind.FIRST, BoundKind.LAST):
            continue
        limit, own = _limit_expr(bound, key), spark_sql(key.expr)
        comparison = sign if not key.descending else {">=": "<=", "<=": ">="}[sign]
        conditions.append(
            f"CASE WHEN {own} IS NULL THEN x.g {sign} {group} WHEN x.k IS NULL THEN {str(beyond).lower()} "
            f"ELSE CAST(x.k AS {limit.type.spark}) {comparison} {spark_sql(limit)} END"
        )
    return conditions


def _limit_expr(bound: Bound, key: SortKey) -> Expr:
    """Return the expression at which a frame begins or ends, as a timestamp."""
    kind = _KINDS[key.expr.type.spark]
    moment = "timestamptz" if kind == "timestamptz" else "timestamp"
    spark = "timestamp" if kind == "timestamptz" else "timestamp_ntz"
    if bound.offset is None:
        return key.expr
    later = (bound.kind is BoundKind.FOLLOWING) != key.descending
    signature = f"{kind}_{'pl' if later else 'mi'}_interval({kind},interval)"
    return Call(signature, (key.expr, bound.offset), ValueType(PgType(0, -1, moment, moment), spark))


def evaluate_over_list(call: WindowCall, rows: str) -> str:
    """Return the function over the list."""
    args: Sequence[Expr] = call.args
    match call.function:
        case WindowFunction.FIRST_VALUE:
            return f"get({rows}, 0).a0"
        case WindowFunction.LAST_VALUE:
            return f"get({rows}, size({rows}) - 1).a0"
        case WindowFunction.NTH_VALUE:
            return f"get({rows}, {spark_sql(args[1])} - 1).a0"
        case _:
            if call.aggregate is None:
                raise AssertionError(f"{call.function.value} does not read a frame")
            return _aggregate_list(call.aggregate, rows)


def _aggregate_list(call: AggregateCall, rows: str) -> str:
    form = form_of(call)
    match form:
        case Additive():
            return sum_over_list(form, call, rows)
        case OfSet():
            return f"{_MIN_MAX[form.text]}(transform({rows}, x -> x.a0))"
        case OfList():
            empty = form.on_empty or f"CAST(NULL AS {call.type.spark})"
            return f"if(size({rows}) = 0, {empty}, {form.result(call).format(list=rows)})"
        case _:
            assert_never(form)
