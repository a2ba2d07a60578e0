"""numeric held as DECIMAL(p,s): PostgreSQL's exact arithmetic inside 38 digits, never rounded.

Every value of a carrier DECIMAL(p,s) has display scale s, and the results keep PostgreSQL's rules for it: the larger
scale for + and -, the sum for *. A result that could need more than 38 digits is refused at definition, unless an
operand is already 38 wide (the sum of a column, whose true size nobody knows): then the carrier stays 38 wide and a
value that does not fit raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.expressions.entry import (
    BOUNDED_HINT,
    Entry,
    Fixed,
    FuzzArg,
    Unfit,
    common_decimal,
    decimal,
    decimal_of,
    fixed_carrier,
    literal_int,
    template,
)
from applier.expressions.integers import CARRIERS as INTEGERS
from applier.expressions.integers import COMPARISONS
from applier.plan.expr import Call, Expr
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, VARHDRSZ, PgType

_FUZZ_PAIRS: tuple[tuple[FuzzArg, ...], ...] = (
    ("numeric(10,2)", "numeric(10,2)"),
    ("numeric(5,0)", "numeric(18,9)"),
    ("numeric(19,4)", "numeric(4,4)"),
)
_FUZZ_SINGLE: tuple[tuple[FuzzArg, ...], ...] = (("numeric(10,2)",), ("numeric(38,10)",), ("numeric(4,4)",))

# Spark's own unary minus and abs() round beyond 34 digits; its subtraction is exact.
_NEGATED = "CAST((CAST(0 AS {type}) - {0}) AS {type})"
_ABSOLUTE = "CASE WHEN {0} < CAST(0 AS {type}) THEN " + _NEGATED + " ELSE {0} END"

_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}


def _sized(precision: int, scale: int, operands: Sequence[tuple[int, int]]) -> str:
    open_ended = any(p == MAX_DECIMAL_DIGITS for p, _ in operands)
    if scale > MAX_DECIMAL_DIGITS or (precision > MAX_DECIMAL_DIGITS and not open_ended):
        raise Unfit(f"a numeric result of up to {precision} digits", hint=BOUNDED_HINT)
    return decimal(min(precision, MAX_DECIMAL_DIGITS), scale)


def _sum_carrier(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    scale = max(s for _, s in sizes)
    return _sized(max(p - s for p, s in sizes) + 1 + scale, scale, sizes)


def _product_carrier(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    return _sized(sum(p for p, _ in sizes), sum(s for _, s in sizes), sizes)


def _comparable(args: tuple[Expr, ...]) -> str:
    common_decimal([decimal_of(arg) for arg in args])
    return "boolean"


def _compare(sign: str, call: Call, args: Sequence[str]) -> str:
    common = common_decimal([decimal_of(arg) for arg in call.args])
    sides = [
        text if arg.type.spark == common else f"CAST({text} AS {common})"
        for text, arg in zip(args, call.args, strict=True)
    ]
    return f"({sides[0]} {sign} {sides[1]})"


def _same(args: tuple[Expr, ...]) -> str:
    return decimal(*decimal_of(args[0]))


def _comparisons() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"numeric_{suffix}(numeric,numeric)",
            carrier=_comparable,
            sql=partial(_compare, sign),
            fuzz=_FUZZ_PAIRS,
            hash_equal=suffix == "eq",
        )


def _arithmetic() -> Iterator[Entry]:
    pairs = (
        ("numeric_add", "+", _sum_carrier),
        ("numeric_sub", "-", _sum_carrier),
        ("numeric_mul", "*", _product_carrier),
    )
    for function, sign, carrier in pairs:
        yield Entry(
            signature=f"{function}(numeric,numeric)",
            carrier=carrier,
            sql=template(f"CAST(({{0}} {sign} {{1}}) AS {{type}})"),
            fuzz=_FUZZ_PAIRS,
        )
    singles = (
        ("numeric_uminus", _NEGATED),
        ("numeric_uplus", "{0}"),
        ("numeric_abs", _ABSOLUTE),
        ("abs", _ABSOLUTE),
    )
    for function, form in singles:
        yield Entry(signature=f"{function}(numeric)", carrier=_same, sql=template(form), fuzz=_FUZZ_SINGLE)


def _whole(args: tuple[Expr, ...]) -> str:
    precision, scale = decimal_of(args[0])
    return decimal(min(precision - scale + 1, MAX_DECIMAL_DIGITS), 0)


def _rounded(args: tuple[Expr, ...]) -> str:
    (precision, scale), places = decimal_of(args[0]), literal_int(args[1])
    if not 0 <= places <= MAX_DECIMAL_DIGITS:
        raise Unfit(f"rounding to {places} places", hint="round to 0 to 38 places")
    return _sized(precision - scale + 1 + places, places, [(precision, scale)])


def _cast_to_size(args: tuple[Expr, ...]) -> str:
    decimal_of(args[0])
    size = PgType(1700, literal_int(args[1]), "numeric", "").precision_scale
    if size is None or size[0] > MAX_DECIMAL_DIGITS or not 0 <= size[1] <= size[0]:
        raise Unfit("a numeric of more than 38 digits or a negative scale", hint=BOUNDED_HINT)
    return decimal(*size)


def _remainder_carrier(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    scale = max(s for _, s in sizes)
    return _sized(min(p - s for p, s in sizes) + scale, scale, sizes)


def _remainders() -> Iterator[Entry]:
    for function in ("numeric_mod", "mod"):
        yield Entry(
            signature=f"{function}(numeric,numeric)",
            carrier=_remainder_carrier,
            sql=template("CAST(({0} % {1}) AS {type})"),
            fuzz=_FUZZ_PAIRS,
            raises=True,
        )
    yield Entry(
        signature="sign(numeric)",
        carrier=_sign_carrier,
        sql=template("CAST(sign({0}) AS {type})"),
        fuzz=_FUZZ_SINGLE,
    )
    yield Entry(
        signature="trunc(numeric)",
        carrier=_whole,
        # What is left of a division by one, taken away; Spark's own casts would round.
        sql=template("CAST(({0} - ({0} % CAST(1 AS decimal(1,0)))) AS {type})"),
        fuzz=_FUZZ_SINGLE,
    )


def _sign_carrier(args: tuple[Expr, ...]) -> str:
    decimal_of(args[0])
    return decimal(1, 0)


def _typmod(precision: int, scale: int) -> Fixed:
    return Fixed(str((precision << 16 | scale) + VARHDRSZ))


def _roundings() -> Iterator[Entry]:
    # Spark's decimal casts and round() take halves away from zero, as PostgreSQL's numeric does.
    for function, form in (
        ("round", "CAST({0} AS {type})"),
        ("ceil", "CAST(ceil({0}) AS {type})"),
        ("ceiling", "CAST(ceil({0}) AS {type})"),
        ("floor", "CAST(floor({0}) AS {type})"),
    ):
        yield Entry(signature=f"{function}(numeric)", carrier=_whole, sql=template(form), fuzz=_FUZZ_SINGLE)
    yield Entry(
        signature="round(numeric,int4)",
        carrier=_rounded,
        sql=template("CAST({0} AS {type})"),
        fuzz=(("numeric(10,2)", Fixed("1")), ("numeric(20,10)", Fixed("3")), ("numeric(10,2)", Fixed("5"))),
    )
    yield Entry(
        signature="numeric(numeric,int4)",
        carrier=_cast_to_size,
        sql=template("CAST({0} AS {type})"),
        fuzz=(("numeric(10,2)", _typmod(5, 1)), ("numeric(20,10)", _typmod(12, 12))),
        raises=True,
    )


def _other(spark: str, args: tuple[Expr, ...]) -> str:
    decimal_of(args[0])
    return spark


def _casts() -> Iterator[Entry]:
    for name, spark in INTEGERS.items():
        yield Entry(
            signature=f"numeric({name})",
            carrier=fixed_carrier([spark], decimal(_INTEGER_DIGITS[name], 0)),
            sql=template("CAST({0} AS {type})"),
            fuzz=((name,),),
        )
        yield Entry(
            signature=f"{name}(numeric)",
            carrier=partial(_other, spark),
            sql=template("CAST(round({0}, 0) AS {type})"),
            fuzz=_FUZZ_SINGLE,
            raises=True,
        )
    yield Entry(
        signature="float8(numeric)",
        carrier=partial(_other, "double"),
        sql=template("CAST({0} AS double)"),
        fuzz=_FUZZ_SINGLE,
    )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_arithmetic(), *_remainders(), *_roundings(), *_casts())
