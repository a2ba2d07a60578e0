"""Every aggregate that may stand in a plan, by its exact pg_proc signature."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from applier.expressions.aggregate_entry import Additive, AggregateEntry, OfList, OfSet, Sum, plain
from applier.expressions.datetimes import CARRIERS as DATETIMES
from applier.expressions.entry import CollationNeed, Fixed, Unfit, decimal, decimal_of, fixed_carrier, literal_text
from applier.expressions.integers import CARRIERS as INTEGERS
from applier.expressions.literals import quote
from applier.expressions.numtext import check_numeric, has_known_scale, is_text, scale_known
from applier.plan.expr import AggregateCall, Call, Const, Expr, ValueType
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, PgType

_NUMERICS = (("numeric(10,2)",), ("numeric(38,10)",), ("numeric(4,4)",))


def _counts() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature="count()",
        carrier=fixed_carrier([], "bigint"),
        form=plain(result="{n}"),
        fuzz=((),),
        never_null=True,
        takes_distinct=False,
    )
    yield AggregateEntry(
        signature="count(any)",
        carrier=lambda args: "bigint",
        form=plain(result="{n}"),
        fuzz=(("int4",), ("text",), ("numeric(10,2)",), ("bool",), ("timestamptz",)),
        never_null=True,
    )


def _sum_of(call: AggregateCall) -> tuple[Sum, ...]:
    return (Sum(call.type.spark, "{0}"),)


_SUM = Additive(_sum_of, lambda _: "if({n} = 0, NULL, {0})")


def _numeric_sum(args: tuple[Expr, ...]) -> str:
    return "string" if is_text(args[0]) else decimal(MAX_DECIMAL_DIGITS, decimal_of(args[0])[1])


def _over_values(function: str, *more: str) -> OfList:
    """One of our functions over the list of the arguments; it does not ask for their order."""
    arguments = ", ".join(["transform({list}, x -> x.a0)", *more])
    return OfList(lambda _: f"{function}({arguments})", default_order=True)


def _sums() -> Iterator[AggregateEntry]:
    for name, result in (("int2", "bigint"), ("int4", "bigint"), ("int8", decimal(MAX_DECIMAL_DIGITS, 0))):
        yield AggregateEntry(
            signature=f"sum({name})",
            carrier=fixed_carrier([INTEGERS[name]], result),
            form=_SUM,
            fuzz=((name,),),
        )
    yield AggregateEntry(
        signature="sum(numeric)",
        carrier=_numeric_sum,
        form=_SUM,
        text_form=_over_values("pg_aggregates_numeric_sum"),
        fuzz=(("numeric(10,2)",), ("numeric(30,10)",), ("numeric",)),
    )


def _same_numeric(args: tuple[Expr, ...]) -> str:
    return "string" if is_text(args[0]) else decimal(*decimal_of(args[0]))


def _extremes() -> Iterator[AggregateEntry]:
    for function in ("min", "max"):
        carriers = {**INTEGERS, **DATETIMES, "float8": "double", "float4": "float"}
        for name, spark in carriers.items():
            yield AggregateEntry(
                signature=f"{function}({name})",
                carrier=fixed_carrier([spark], spark),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((name,),),
            )
        for name, fuzz in (("text", "text"), ("bpchar", "char(6)")):
            yield AggregateEntry(
                signature=f"{function}({name})",
                carrier=fixed_carrier(["string"], "string"),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((fuzz,),),
                collation=CollationNeed.ORDER,
            )
        yield AggregateEntry(
            signature=f"{function}(numeric)",
            carrier=_same_numeric,
            form=OfSet(f"{function}({{0}})"),
            text_form=_over_values("pg_aggregates_numeric_extreme", "true" if function == "max" else "false"),
            fuzz=(*_NUMERICS, ("numeric",)),
        )


def _truths() -> Iterator[AggregateEntry]:
    # Counting what would decide the answer keeps them additive.
    for function, decisive, answer in (
        ("bool_and", "NOT {0}", "= 0"),
        ("every", "NOT {0}", "= 0"),
        ("bool_or", "{0}", "> 0"),
    ):
        yield AggregateEntry(
            signature=f"{function}(bool)",
            carrier=fixed_carrier(["boolean"], "boolean"),
            form=plain(Sum("bigint", f"if({decisive}, 1, 0)"), result=f"if({{n}} = 0, NULL, {{0}} {answer})"),
            fuzz=(("bool",),),
        )


def _bits() -> Iterator[AggregateEntry]:
    for name, spark in INTEGERS.items():
        for function in ("bit_and", "bit_or"):
            yield AggregateEntry(
                signature=f"{function}({name})",
                carrier=fixed_carrier([spark], spark),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((name,),),
            )


def _string_carrier(args: tuple[Expr, ...]) -> str:
    literal_text(args[1])
    return fixed_carrier(["string", "string"], "string")(args)


def _strings() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature="string_agg(text,text)",
        carrier=_string_carrier,
        form=OfList(lambda call: f"array_join(transform({{list}}, x -> x.a0), {quote(literal_text(call.args[1]))})"),
        fuzz=(("text", Fixed("', '")), ("text", Fixed("''"))),
    )


_BARE = quote(r'^[^{}",\\\s]+\z')
_TO_ESCAPE, _ESCAPED = quote(r'(["\\])'), quote(r"\\$1")
_MARK, _OPEN, _CLOSE = quote('"'), quote("{"), quote("}")


def _element(call: AggregateCall) -> str:
    """An element x.a0 of an array's text, as array_out prints it; NULL stays NULL."""
    if call.args[0].type.spark != "string":
        return "CAST(x.a0 AS string)"
    escaped = f"concat({_MARK}, regexp_replace(x.a0, {_TO_ESCAPE}, {_ESCAPED}), {_MARK})"
    return f"if(rlike(x.a0, {_BARE}) AND upper(x.a0) <> 'NULL', x.a0, {escaped})"


def _array(call: AggregateCall) -> str:
    elements = f"array_join(transform({{list}}, x -> {_element(call)}), ',', 'NULL')"
    return f"concat({_OPEN}, {elements}, {_CLOSE})"


_PRINTED_ALIKE = frozenset({*INTEGERS, "text", "varchar", "uuid", "date"})
"""Types whose text both engines spell alike, as elements of an array."""


def _array_carrier(args: tuple[Expr, ...]) -> str:
    if args[0].type.pg.name not in _PRINTED_ALIKE and not args[0].type.spark.startswith("decimal("):
        raise Unfit(f"values of type {args[0].type.pg.display}")
    return "string"


def _arrays() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature="array_agg(anynonarray)",
        carrier=_array_carrier,
        form=OfList(_array),
        fuzz=(("int4",), ("text",), ("date",), ("numeric(10,2)",), ("uuid",)),
        skips_null=False,
    )


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


def _ordered_sets() -> Iterator[AggregateEntry]:
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


def _numeric_avg(args: tuple[Expr, ...]) -> str:
    check_numeric(args)
    return "string"


def _quotient(call: AggregateCall) -> str:
    # The display scale of the sum decides that of the average where it is the larger one.
    function = "pg_numeric_div" if has_known_scale(call.args[0]) else "pg_numeric_div_by_value"
    return f"if({{n}} = 0, NULL, {function}(CAST({{0}} AS string), CAST({{n}} AS string)))"


def _averages() -> Iterator[AggregateEntry]:
    for name, spark in INTEGERS.items():
        total = Sum("bigint" if name != "int8" else decimal(MAX_DECIMAL_DIGITS, 0), "{0}")
        yield AggregateEntry(
            signature=f"avg({name})",
            carrier=fixed_carrier([spark], "string"),
            form=Additive(partial(_only, total), _quotient),
            fuzz=((name,),),
        )
    yield AggregateEntry(
        signature="avg(numeric)",
        carrier=_numeric_avg,
        form=Additive(lambda call: (Sum(_numeric_sum(call.args), "{0}"),), _quotient),
        text_form=_over_values("pg_aggregates_numeric_avg"),
        fuzz=(("numeric(10,2)",), ("numeric(30,10)",), ("numeric(4,4)",), ("numeric",)),
    )


def _only(total: Sum, call: AggregateCall) -> tuple[Sum, ...]:
    return (total,)


_SPREADS = {
    "var_pop": "false, false",
    "var_samp": "true, false",
    "variance": "true, false",
    "stddev_pop": "false, true",
    "stddev_samp": "true, true",
    "stddev": "true, true",
}


def _texts(function: str, more: str) -> OfList:
    return OfList(
        lambda call: f"{function}(transform({{list}}, x -> CAST(x.a0 AS string)), {more})", default_order=True
    )


def _spreads() -> Iterator[AggregateEntry]:
    for function, which in _SPREADS.items():
        exact = _texts("pg_aggregates_numeric_variance", which)
        for name, spark in INTEGERS.items():
            yield AggregateEntry(
                signature=f"{function}({name})",
                carrier=fixed_carrier([spark], "string"),
                form=exact,
                fuzz=((name,),),
            )
        yield AggregateEntry(
            signature=f"{function}(numeric)", carrier=_known_scale, form=exact, fuzz=(*_NUMERICS, ("numeric",))
        )
        yield AggregateEntry(
            signature=f"{function}(float8)",
            carrier=fixed_carrier(["double"], "double"),
            form=_over_values("pg_aggregates_float8_variance", which),
            fuzz=(("float8:near",),),
        )


def _known_scale(args: tuple[Expr, ...]) -> str:
    check_numeric(args)
    scale_known(args[0])
    return "string"


def _floats() -> Iterator[AggregateEntry]:
    """PostgreSQL adds floats in the order it meets them, which is nobody's; here it is that of the values."""
    for function, name, spark in (("sum", "float8", "double"), ("avg", "float8", "double"), ("sum", "float4", "float")):
        yield AggregateEntry(
            signature=f"{function}({name})",
            carrier=fixed_carrier([spark], spark),
            form=_over_values(f"pg_aggregates_{name}_{function}"),
            fuzz=((f"{name}:near",),),
        )
    two = ("covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy")
    for function in (*two, "regr_r2", "regr_slope", "regr_intercept"):
        yield AggregateEntry(
            signature=f"{function}(float8,float8)",
            carrier=fixed_carrier(["double", "double"], "double"),
            form=OfList(partial(_regression, function), default_order=True),
            fuzz=(("float8:near", "float8:near"),),
        )
    yield AggregateEntry(
        signature="regr_count(float8,float8)",
        carrier=fixed_carrier(["double", "double"], "bigint"),
        form=plain(result="{n}"),
        fuzz=(("float8:near", "float8:near"),),
        never_null=True,
    )


def _regression(function: str, call: AggregateCall) -> str:
    sides = ", ".join(f"transform({{list}}, x -> x.a{i})" for i in range(2))
    return f"pg_aggregates_regression('{function}', {sides})"


ONLY_ROW = "only_row(any)"
"""No function of PostgreSQL: the value of a subquery that may have one row at most."""


def _only_row(call: AggregateCall) -> str:
    problem = quote("more than one row returned by a subquery used as an expression")
    return f"if(size({{list}}) > 1, raise_error({problem}), get({{list}}, 0).a0)"


def _subqueries() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature=ONLY_ROW,
        carrier=lambda args: args[0].type.spark,
        form=OfList(_only_row, default_order=True),
        fuzz=(),
        skips_null=False,
        takes_distinct=False,
    )


COUNT = AggregateCall("count()", (), ValueType.of_column(PgType(20, -1, "int8", "bigint")), nullable=False)
"""count(*)."""

_FAMILIES = (
    _averages,
    _spreads,
    _floats,
    _subqueries,
    _ordered_sets,
    _counts,
    _sums,
    _extremes,
    _truths,
    _bits,
    _strings,
    _arrays,
)

AGGREGATES: dict[str, AggregateEntry] = {}
for _family in _FAMILIES:
    for _entry in _family():
        if _entry.signature in AGGREGATES:
            raise AssertionError(f"{_entry.signature} is listed twice")
        AGGREGATES[_entry.signature] = _entry
