"""Entries for WITHIN GROUP aggregates: percentiles, the mode, and the rank of a hypothetical row in its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList
from applier.functions.emit import spark_sql
from applier.functions.entry import Fixed, UnsuitableArguments, fixed_physical_type
from applier.functions.output_text import output_text_sql
from applier.plan.expr import AggregateCall, Call, Const, Expr, columns_read


def _fraction(value: object) -> float:
    if isinstance(value, int | float | Decimal) and 0 <= value <= 1:
        return float(value)
    raise UnsuitableArguments("a percentile that is not a literal between 0 and 1", hint="write the number itself")


def _literal_fraction(arg: Expr) -> float | None:
    """Return a literal fraction, which may be written as another type of number; None is NULL."""
    inner = arg.args[0] if isinstance(arg, Call) and arg.signature.startswith("float8(") else arg
    if not isinstance(inner, Const):
        raise UnsuitableArguments("a percentile that is not a literal between 0 and 1", hint="write the number itself")
    return None if inner.value is None else _fraction(inner.value)


def _percent(args: tuple[Expr, ...]) -> float:
    return _fraction(_literal_fraction(args[0]))


def _percents(args: tuple[Expr, ...]) -> list[float | None]:
    """Return the fractions of a literal array."""
    match args[0]:
        case Call(signature="array_of(any)", args=elements):
            return [_literal_fraction(element) for element in elements]
        case Const(value=str() as text) if "{" not in text[1:]:
            words = text.strip("{}").split(",") if text != "{}" else []
            return [None if word == "NULL" else _fraction(float(word)) for word in words]
        case _:
            raise UnsuitableArguments(
                "percentiles that are not an array of literals", hint="write ARRAY[0.25, 0.5, 0.75]"
            )


def _neighbours(percent: float) -> tuple[str, str, str]:
    """Return the two rows next to the percentile and its distance from the lower one; NULL if it is a row itself."""
    place = f"({percent!r}D * (size({{list}}) - 1))"
    low, high = (f"get({{list}}, CAST({end}({place}) AS int)).a0" for end in ("floor", "ceil"))
    return low, high, f"nullif({place} - floor({place}), 0D)"


def _float_cont(percent: float) -> str:
    """Interpolate as PostgreSQL's float8_lerp does."""
    low, high, part = _neighbours(percent)
    return f"coalesce({low} + {part} * ({high} - {low}), {low})"


def _interval_cont(percent: float) -> str:
    """Interpolate as PostgreSQL's interval_lerp does."""
    low, high, part = _neighbours(percent)
    return f"coalesce(pg_intervals_add(pg_intervals_mul(pg_intervals_sub({high}, {low}), {part}), {low}), {low})"


def _disc(percent: float) -> str:
    place = f"ceil({percent!r}D * size({{list}}))"
    return f"get({{list}}, CAST(greatest({place}, 1) - 1 AS int)).a0"


def _write_percentile(form: Callable[[float], str], call: AggregateCall) -> str:
    return form(_percent(call.direct))


def _write_percentiles(form: Callable[[float], str], call: AggregateCall) -> str:
    """Write an array with the result for each fraction."""
    value = call.args[0]
    parts = ["NULL" if p is None else output_text_sql(value, form(p)) for p in _percents(call.direct)]
    return f"pg_arrays_make(CAST(array({', '.join(parts)}) AS array<string>))"


def _check_percentile(
    fractions: Callable[[tuple[Expr, ...]], object], physical_type: Callable[[Expr], str], args: tuple[Expr, ...]
) -> str:
    fractions(args)
    return physical_type(args[1])


def _array_physical_type(of: Callable[[Expr], str], arg: Expr) -> str:
    of(arg)
    output_text_sql(arg, "")
    return "string"


def _require_physical_type(spark: str, arg: Expr) -> str:
    return fixed_physical_type([spark], spark)((arg,))


def _same_physical_type(arg: Expr) -> str:
    return arg.type.spark


def _mode(call: AggregateCall) -> str:
    """Write the first of the most frequent values: b and its count n are the best so far, c and m the current ones."""
    spark = call.type.spark
    start = f"struct(CAST(NULL AS {spark}) AS b, 0 AS n, CAST(NULL AS {spark}) AS c, 0 AS m)"
    count = "if(s.c = x.a0, s.m + 1, 1)"
    step = f"struct(if({count} > s.n, x.a0, s.b) AS b, greatest({count}, s.n) AS n, x.a0 AS c, {count} AS m)"
    return f"aggregate({{list}}, {start}, (s, x) -> {step}).b"


_TYPES = ("int4", "text", "numeric(10,2)", "date", "float8")
_KINDS: tuple[tuple[str, str, Callable[[float], str], Callable[[Expr], str], tuple[str, ...]], ...] = (
    ("percentile_cont", "float8", _float_cont, partial(_require_physical_type, "double"), ("float8",)),
    ("percentile_cont", "interval", _interval_cont, partial(_require_physical_type, "string"), ("interval:unequal",)),
    ("percentile_disc", "anyelement", _disc, _same_physical_type, _TYPES),
)


def _percentiles() -> Iterator[AggregateEntry]:
    percents = (Fixed("0"), Fixed("0.25"), Fixed("0.5"), Fixed("0.9"), Fixed("1"))
    lists = (Fixed("ARRAY[0.25, 1, NULL, 0.5, 0]"), Fixed("'{0.1,0.9,0.9}'::float8[]"), Fixed("'{}'::float8[]"))
    for name, argument, form, physical_type, types in _KINDS:
        yield AggregateEntry(
            signature=f"{name}(float8,{argument})",
            physical_type=partial(_check_percentile, _percent, physical_type),
            form=OfList(partial(_write_percentile, form)),
            fuzz=tuple((percent, types[i % len(types)]) for i, percent in enumerate(percents)),
            takes_distinct=False,
            within_group=True,
            any_of_equals=True,
        )
        yield AggregateEntry(
            signature=f"{name}(_float8,{argument})",
            physical_type=partial(_check_percentile, _percents, partial(_array_physical_type, physical_type)),
            form=OfList(partial(_write_percentiles, form)),
            fuzz=tuple((lists[i % len(lists)], types[i % len(types)]) for i in range(max(len(lists), len(types)))),
            takes_distinct=False,
            within_group=True,
            any_of_equals=True,
        )
    yield AggregateEntry(
        signature="mode(anyelement)",
        physical_type=lambda args: args[0].type.spark,
        form=OfList(_mode),
        fuzz=tuple((t,) for t in _TYPES),
        takes_distinct=False,
        within_group=True,
    )


def _rows_before(call: AggregateCall, *, peers: bool) -> str:
    """Write the rows x that sort before the hypothetical row; with `peers` also its peers."""
    text = "true" if peers else "false"
    for i, (key, value) in reversed(list(enumerate(zip(call.order, call.direct, strict=True)))):
        own, other = f"x.o{i}", spark_sql(value)
        less = f"{own} > {other}" if key.descending else f"{own} < {other}"
        first = f"CASE WHEN {own} IS NULL AND {other} IS NULL THEN NULL WHEN {own} IS NULL THEN {key.nulls_first} "
        first += f"WHEN {other} IS NULL THEN {not key.nulls_first} WHEN {own} = {other} THEN NULL ELSE {less} END"
        text = f"coalesce({first}, {text})"
    return f"filter({{list}}, x -> {text})"


def _rank(call: AggregateCall) -> str:
    return f"CAST(size({_rows_before(call, peers=False)}) + 1 AS bigint)"


def _dense_rank(call: AggregateCall) -> str:
    keys = ", ".join(f"x.o{i}" for i in range(len(call.order)))
    return (
        f"CAST(size(array_distinct(transform({_rows_before(call, peers=False)}, x -> struct({keys})))) + 1 AS bigint)"
    )


def _percent_rank(call: AggregateCall) -> str:
    return f"(CAST(size({_rows_before(call, peers=False)}) AS double) / size({{list}}))"


def _cume_dist(call: AggregateCall) -> str:
    return f"((size({_rows_before(call, peers=True)}) + 1D) / (size({{list}}) + 1D))"


def _check_hypothetical_row(result: str, args: tuple[Expr, ...]) -> str:
    half = len(args) // 2
    for value, column in zip(args[:half], args[half:], strict=True):
        if next(columns_read(value), None) is not None:
            raise UnsuitableArguments("an imagined row that is not written out", hint="write the values themselves")
        if value.type.spark.partition("(")[0] != column.type.spark.partition("(")[0]:
            raise UnsuitableArguments(f"values held as {value.type.spark} and {column.type.spark}")
    return result


def _hypothetical_ranks() -> Iterator[AggregateEntry]:
    for function, form, result, on_empty in (
        ("rank", _rank, "bigint", "1L"),
        ("dense_rank", _dense_rank, "bigint", "1L"),
        ("percent_rank", _percent_rank, "double", "0D"),
        ("cume_dist", _cume_dist, "double", "1D"),
    ):
        yield AggregateEntry(
            signature=f"{function}(any)",
            physical_type=partial(_check_hypothetical_row, result),
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


def ordered_set_entries() -> Iterator[AggregateEntry]:
    """Yield all entries of this module."""
    yield from _percentiles()
    yield from _hypothetical_ranks()
