"""Lists every aggregate that a plan may contain, by its exact pg_proc signature."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from applier.functions.aggregates import lists, min_max, ordered_sets
from applier.functions.aggregates.aggregate_entry import (
    LIMBS,
    Additive,
    AggregateEntry,
    Form,
    OfList,
    OfSet,
    Sum,
    over_values,
    plain,
)
from applier.functions.aggregates.folds import entry_of_fold
from applier.functions.arrays import ranges
from applier.functions.entry import Fixed, UnsuitableArguments, decimal, decimal_of, fixed_physical_type
from applier.functions.literals import quote_text
from applier.functions.numeric import by_scale
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.functions.numeric.physical_types import as_text, digits, is_text, of_numerics, outgrows_decimal
from applier.plan.expr import AggregateCall, Expr, ValueType
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, PgType

_NUMERICS = (("numeric(10,2)",), ("numeric(38,10)",), ("numeric(4,4)",))


def _counts() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature="count()",
        physical_type=fixed_physical_type([], "bigint"),
        form=plain(result="{n}"),
        fuzz=((),),
        never_null=True,
        takes_distinct=False,
    )
    yield AggregateEntry(
        signature="count(any)",
        physical_type=lambda args: "bigint",
        form=plain(result="{n}"),
        fuzz=(("int4",), ("text",), ("numeric(10,2)",), ("bool",), ("timestamptz",)),
        never_null=True,
    )


def _sum_of(call: AggregateCall) -> tuple[Sum, ...]:
    return (Sum(call.type.spark, "{0}"),)


_SUM = Additive(_sum_of, lambda _: "if({n} = 0, NULL, {0})")


def _numeric_sum(args: tuple[Expr, ...]) -> str:
    is_long = is_text(args[0]) or outgrows_decimal(args[0])
    return "string" if is_long else decimal(MAX_DECIMAL_DIGITS, decimal_of(args[0])[1])


def _over_doubles(function: str, *more: str) -> OfList:
    """Return a form that calls a Java function over the list of arguments as doubles."""
    arguments = ", ".join(["transform({list}, x -> CAST(x.a0 AS double))", *more])
    return OfList(lambda _: f"{function}({arguments})", default_order=True)


def _scale(call: AggregateCall) -> int:
    size = digits(call.args[0])
    if size is None:
        raise AssertionError(f"{call.signature} over a numeric of unknown size")
    return size[1]


def _sum_limbs(call: AggregateCall) -> tuple[Sum, ...]:
    """Return the sums of the 15-digit parts of a long numeric, the lowest part first."""
    kind, value = decimal(MAX_DECIMAL_DIGITS, 0), as_text(call.args[0], "{0}")
    return tuple(Sum(kind, f"pg_aggregates_limb({value}, {_scale(call)}, {i})") for i in range(LIMBS))


def _combine_limbs(call: AggregateCall) -> str:
    parts = ", ".join(f"CAST({{{i}}} AS string)" for i in range(LIMBS))
    return f"pg_aggregates_of_limbs({_scale(call)}, {parts})"


def _sums() -> Iterator[AggregateEntry]:
    for name, result in (("int2", "bigint"), ("int4", "bigint"), ("int8", decimal(MAX_DECIMAL_DIGITS, 0))):
        yield AggregateEntry(
            signature=f"sum({name})",
            physical_type=fixed_physical_type([INTEGERS[name]], result),
            form=_SUM,
            fuzz=((name,),),
        )
    yield AggregateEntry(
        signature="sum(numeric)",
        physical_type=_numeric_sum,
        form=_SUM,
        text_form=over_values("pg_aggregates_numeric_sum"),
        long_form=Additive(_sum_limbs, lambda call: f"if({{n}} = 0, NULL, {_combine_limbs(call)})"),
        fuzz=(("numeric(10,2)",), ("numeric(30,10)",), ("numeric(38,10)",), ("numeric",)),
    )


def _booleans() -> Iterator[AggregateEntry]:
    # Counting the values that decide the result keeps these aggregates additive.
    for function, decisive, outcome in (
        ("bool_and", "NOT {0}", "= 0"),
        ("every", "NOT {0}", "= 0"),
        ("bool_or", "{0}", "> 0"),
    ):
        yield AggregateEntry(
            signature=f"{function}(bool)",
            physical_type=fixed_physical_type(["boolean"], "boolean"),
            form=plain(Sum("bigint", f"if({decisive}, 1, 0)"), result=f"if({{n}} = 0, NULL, {{0}} {outcome})"),
            fuzz=(("bool",),),
        )


def _bits() -> Iterator[AggregateEntry]:
    for name, spark in INTEGERS.items():
        for function in ("bit_and", "bit_or"):
            yield AggregateEntry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], spark),
                form=OfSet(f"{function}({{0}})"),
                fuzz=((name,),),
            )
        yield AggregateEntry(
            signature=f"bit_xor({name})",
            physical_type=fixed_physical_type([spark], spark),
            form=OfList(_xor, default_order=True),
            fuzz=((name,),),
        )


def _xor(call: AggregateCall) -> str:
    spark = call.type.spark
    return f"aggregate({{list}}, CAST(0 AS {spark}), (s, x) -> CAST(s ^ x.a0 AS {spark}))"


def _intervals() -> Iterator[AggregateEntry]:
    for function in ("sum", "avg"):
        yield AggregateEntry(
            signature=f"{function}(interval)",
            physical_type=fixed_physical_type(["string"], "string"),
            form=over_values(f"pg_aggregates_interval_{function}"),
            fuzz=(("interval:small",),),
            takes_distinct=False,
        )


def _any_physical_type(args: tuple[Expr, ...]) -> str:
    if args[0].type.spark in ("double", "float"):
        raise UnsuitableArguments(f"values of type {args[0].type.pg.display}", hint="use min or max")
    return args[0].type.spark


def _any_value() -> Iterator[AggregateEntry]:
    # PostgreSQL documents that it may be any of the values; here it is the smallest. The tests use equal values only.
    yield AggregateEntry(
        signature="any_value(anyelement)",
        physical_type=_any_physical_type,
        form=OfSet("min({0})"),
        fuzz=((Fixed("g"),), (Fixed("g::text"),)),
    )


def _quotient(_: AggregateCall) -> str:
    return "if({n} = 0, NULL, pg_numeric_div(CAST({0} AS string), CAST({n} AS string)))"


def _averages() -> Iterator[AggregateEntry]:
    for name, spark in INTEGERS.items():
        total = Sum("bigint" if name != "int8" else decimal(MAX_DECIMAL_DIGITS, 0), "{0}")
        yield AggregateEntry(
            signature=f"avg({name})",
            physical_type=fixed_physical_type([spark], "string"),
            form=Additive(partial(_single_sum, total), _quotient),
            fuzz=((name,),),
        )
    yield AggregateEntry(
        signature="avg(numeric)",
        physical_type=of_numerics("string"),
        form=Additive(lambda call: (Sum(_numeric_sum(call.args), "{0}"),), _quotient),
        text_form=over_values("pg_aggregates_numeric_avg"),
        long_form=Additive(
            _sum_limbs,
            lambda call: f"if({{n}} = 0, NULL, pg_numeric_div({_combine_limbs(call)}, CAST({{n}} AS string)))",
        ),
        fuzz=(("numeric(10,2)",), ("numeric(30,10)",), ("numeric(38,10)",), ("numeric(4,4)",), ("numeric",)),
    )


def _single_sum(total: Sum, call: AggregateCall) -> tuple[Sum, ...]:
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
                physical_type=fixed_physical_type([spark], "string"),
                form=exact,
                fuzz=((name,),),
            )
        yield AggregateEntry(
            signature=f"{function}(numeric)",
            physical_type=of_numerics("string"),
            form=exact,
            fuzz=(*_NUMERICS, ("numeric",)),
        )
        for name, spark in (("float8", "double"), ("float4", "float")):
            yield AggregateEntry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], "double"),
                form=_over_doubles("pg_aggregates_float8_variance", which),
                fuzz=((f"{name}:near",),),
            )


def _floats() -> Iterator[AggregateEntry]:
    """PostgreSQL adds floats in the undefined order in which it reads them; here they are added in value order."""
    for function, name, spark in (("sum", "float8", "double"), ("avg", "float8", "double"), ("sum", "float4", "float")):
        yield AggregateEntry(
            signature=f"{function}({name})",
            physical_type=fixed_physical_type([spark], spark),
            form=over_values(f"pg_aggregates_{name}_{function}"),
            fuzz=((f"{name}:near",),),
        )
    yield AggregateEntry(
        signature="avg(float4)",
        physical_type=fixed_physical_type(["float"], "double"),
        form=_over_doubles("pg_aggregates_float8_avg"),
        fuzz=(("float4:near",),),
    )
    two = ("covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy")
    for function in (*two, "regr_r2", "regr_slope", "regr_intercept"):
        yield AggregateEntry(
            signature=f"{function}(float8,float8)",
            physical_type=fixed_physical_type(["double", "double"], "double"),
            form=OfList(partial(_regression, function), default_order=True),
            fuzz=(("float8:near", "float8:near"),),
        )
    yield AggregateEntry(
        signature="regr_count(float8,float8)",
        physical_type=fixed_physical_type(["double", "double"], "bigint"),
        form=plain(result="{n}"),
        fuzz=(("float8:near", "float8:near"),),
        never_null=True,
    )


def _regression(function: str, call: AggregateCall) -> str:
    sides = ", ".join(f"transform({{list}}, x -> x.a{i})" for i in range(2))
    return f"pg_aggregates_regression('{function}', {sides})"


ONLY_ROW = "only_row(any)"
"""Not a PostgreSQL function: the value of a subquery that may return at most one row."""


def _only_row(call: AggregateCall) -> str:
    problem = quote_text("more than one row returned by a subquery used as an expression")
    return f"if(size({{list}}) > 1, raise_error({problem}), get({{list}}, 0).a0)"


def _subqueries() -> Iterator[AggregateEntry]:
    yield AggregateEntry(
        signature=ONLY_ROW,
        physical_type=lambda args: args[0].type.spark,
        form=OfList(_only_row, default_order=True),
        fuzz=(),
        skips_null=False,
        takes_distinct=False,
        internal=True,
    )


_SHOWN = {"string": "min({0})"} | {
    spark: f"CAST(min(CAST({{0}} AS string)) AS {spark})" for spark in ("double", "float")
}


def shown_of(value: Expr) -> AggregateCall:
    """Return the call that chooses among equal values with different texts: the smallest text is shown."""
    return AggregateCall(f"shown_of({value.type.spark})", (value,), value.type)


def _shown_values() -> Iterator[AggregateEntry]:
    for spark, text in _SHOWN.items():
        yield AggregateEntry(f"shown_of({spark})", fixed_physical_type([spark], spark), OfSet(text), (), internal=True)


COUNT_CALL = AggregateCall("count()", (), ValueType.of_column(PgType(20, -1, "int8", "bigint")), nullable=False)
"""count(*)."""

_FAMILIES = (
    _averages,
    by_scale.by_scale_entries,
    _spreads,
    _floats,
    _subqueries,
    _shown_values,
    ordered_sets.ordered_set_entries,
    _counts,
    _sums,
    min_max.min_max_entries,
    _booleans,
    _bits,
    lists.list_entries,
    ranges.range_aggregates,
    _intervals,
    _any_value,
)

AGGREGATES: dict[str, AggregateEntry] = {}
for _family in _FAMILIES:
    for _entry in _family():
        if _entry.signature in AGGREGATES:
            raise AssertionError(f"{_entry.signature} is listed twice")
        AGGREGATES[_entry.signature] = _entry


def entry_of(call: AggregateCall) -> AggregateEntry:
    """Return the entry of the aggregate of a call."""
    return AGGREGATES[call.signature] if call.fold is None else entry_of_fold(call.signature, call.fold)


def form_of(call: AggregateCall) -> Form:
    """Return how a call is computed."""
    return entry_of(call).form_of(call.args)


def on_empty(call: AggregateCall) -> int | float:
    """Return the result of an aggregate that is never NULL if no row counts."""
    form = AGGREGATES[call.signature].form
    text = form.on_empty if isinstance(form, OfList) else ""
    return float(text[:-1]) if text.endswith("D") else int(text[:-1] or "0")
