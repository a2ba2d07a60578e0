"""Aggregates WITHIN GROUP: percentiles, the mode, and the place a value would have among those of the group."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from applier.expressions.aggregate_entry import AggregateEntry, OfList
from applier.expressions.emit import spark_sql
from applier.expressions.entry import Fixed, Unfit, fixed_carrier
from applier.plan.expr import AggregateCall, Call, Const, Expr, columns_read


def _percent(args: tuple[Expr, ...]) -> float:
    percent = args[0].args[0] if isinstance(args[0], Call) and args[0].signature.startswith("float8(") else args[0]
    if isinstance(percent, Const) and isinstance(percent.value, int | float | Decimal) and 0 <= percent.value <= 1:
        return float(percent.value)
    raise Unfit("a percentile that is not a literal between 0 and 1", hint="write the number itself")


def _cont_carrier(args: tuple[Expr, ...]) -> str:
    _percent(args)
    return fixed_carrier(["double", "double"], "double")(args)


def _cont(call: AggregateCall) -> str:
    """Between the two neighbours of the place, as PostgreSQL's float8_lerp goes."""
    place = f"({_percent(call.direct)!r}D * (size({{list}}) - 1))"
    low, high = (f"get({{list}}, CAST({end}({place}) AS int)).a0" for end in ("floor", "ceil"))
    between = f"{low} + ({place} - floor({place})) * ({high} - {low})"
    return f"if(floor({place}) = ceil({place}), {low}, {between})"


def _disc_carrier(args: tuple[Expr, ...]) -> str:
    _percent(args)
    return args[1].type.spark


def _disc(call: AggregateCall) -> str:
    place = f"ceil({_percent(call.direct)!r}D * size({{list}}))"
    return f"get({{list}}, CAST(greatest({place}, 1) - 1 AS int)).a0"


def _mode(call: AggregateCall) -> str:
    """The first of the values that come most often: b best so far and n how often, c the current one and m."""
    spark = call.type.spark
    start = f"struct(CAST(NULL AS {spark}) AS b, 0 AS n, CAST(NULL AS {spark}) AS c, 0 AS m)"
    count = "if(s.c = x.a0, s.m + 1, 1)"
    step = f"struct(if({count} > s.n, x.a0, s.b) AS b, greatest({count}, s.n) AS n, x.a0 AS c, {count} AS m)"
    return f"aggregate({{list}}, {start}, (s, x) -> {step}).b"


def _percentiles() -> Iterator[AggregateEntry]:
    percents = (Fixed("0"), Fixed("0.25"), Fixed("0.5"), Fixed("0.9"), Fixed("1"))
    yield AggregateEntry(
        signature="percentile_cont(float8,float8)",
        carrier=_cont_carrier,
        form=OfList(_cont),
        fuzz=tuple((percent, "float8") for percent in percents),
        takes_distinct=False,
        within_group=True,
    )
    types = ("int4", "text", "numeric(10,2)", "date", "float8")
    yield AggregateEntry(
        signature="percentile_disc(float8,anyelement)",
        carrier=_disc_carrier,
        form=OfList(_disc),
        fuzz=tuple((percent, t) for percent, t in zip(percents, types, strict=True)),
        takes_distinct=False,
        within_group=True,
    )
    yield AggregateEntry(
        signature="mode(anyelement)",
        carrier=lambda args: args[0].type.spark,
        form=OfList(_mode),
        fuzz=tuple((t,) for t in types),
        takes_distinct=False,
        within_group=True,
    )


def _before(call: AggregateCall, *, peers: bool) -> str:
    """Whether a row x comes before the one that is imagined; with `peers` also whether it stands beside it."""
    text = "true" if peers else "false"
    for i, (key, value) in reversed(list(enumerate(zip(call.order, call.direct, strict=True)))):
        own, other = f"x.o{i}", spark_sql(value)
        less = f"{own} > {other}" if key.descending else f"{own} < {other}"
        first = f"CASE WHEN {own} IS NULL AND {other} IS NULL THEN NULL WHEN {own} IS NULL THEN {key.nulls_first} "
        first += f"WHEN {other} IS NULL THEN {not key.nulls_first} WHEN {own} = {other} THEN NULL ELSE {less} END"
        text = f"coalesce({first}, {text})"
    return f"filter({{list}}, x -> {text})"


def _rank(call: AggregateCall) -> str:
    return f"CAST(size({_before(call, peers=False)}) + 1 AS bigint)"


def _dense_rank(call: AggregateCall) -> str:
    keys = ", ".join(f"x.o{i}" for i in range(len(call.order)))
    return f"CAST(size(array_distinct(transform({_before(call, peers=False)}, x -> struct({keys})))) + 1 AS bigint)"


def _percent_rank(call: AggregateCall) -> str:
    return f"(CAST(size({_before(call, peers=False)}) AS double) / size({{list}}))"


def _cume_dist(call: AggregateCall) -> str:
    return f"((size({_before(call, peers=True)}) + 1D) / (size({{list}}) + 1D))"


def _imagined(result: str, args: tuple[Expr, ...]) -> str:
    half = len(args) // 2
    for value, column in zip(args[:half], args[half:], strict=True):
        if next(columns_read(value), None) is not None:
            raise Unfit("an imagined row that is not written out", hint="write the values themselves")
        if value.type.spark.partition("(")[0] != column.type.spark.partition("(")[0]:
            raise Unfit(f"values held as {value.type.spark} and {column.type.spark}")
    return result


def _places() -> Iterator[AggregateEntry]:
    for function, form, result, on_empty in (
        ("rank", _rank, "bigint", "1L"),
        ("dense_rank", _dense_rank, "bigint", "1L"),
        ("percent_rank", _percent_rank, "double", "0D"),
        ("cume_dist", _cume_dist, "double", "1D"),
    ):
        yield AggregateEntry(
            signature=f"{function}(any)",
            carrier=partial(_imagined, result),
            form=OfList(form, default_order=True, on_empty=on_empty),
            fuzz=(
                (Fixed("7"), "int4"),
                (Fixed("'ab'"), "text"),
                (Fixed("-1.5::numeric(10,2)"), "numeric(10,2)"),
                (Fixed("NULL::int4"), "int4"),
                (Fixed("'2000-01-01'::date"), "date"),
                (Fixed("'NaN'::float8"), "float8"),
            ),
            skips_null=False,
            never_null=True,
            takes_distinct=False,
            within_group=True,
        )


def entries() -> Iterator[AggregateEntry]:
    """All of them."""
    yield from _percentiles()
    yield from _places()
