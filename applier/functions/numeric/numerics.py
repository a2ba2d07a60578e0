"""Entries for numeric: DECIMAL(p,s) if 38 digits always suffice, else PostgreSQL's text and the Java functions.

Every value of a physical type DECIMAL(p,s) equals PostgreSQL's value, and results follow PostgreSQL's rules for the
scale: the larger one for + and -, the sum for *. If an operand already has 38 digits (the sum of a column, whose true
size is unknown), the physical type stays at 38 digits and a value that does not fit raises. A result that could need
more than 38 digits, a quotient, NaN and the infinities are stored as text: exact, about ten times slower.

The display scale (1.5 or 1.50) is PostgreSQL's in both physical types: a column with values of two scales (`CASE`,
`COALESCE`) is stored as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from applier.functions.entry import (
    BOUNDED_HINT,
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    common_decimal,
    decimal,
    decimal_of,
    fixed_physical_type,
    literal_int,
    template,
)
from applier.functions.numeric.integers import COMPARISONS
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.functions.numeric.physical_types import as_text, check_numeric, is_text, of_numerics
from applier.plan.expr import Call, Expr
from shared_schema.pg_types import MAX_DECIMAL_DIGITS, VARHDRSZ, PgType

SizeOf = Callable[[tuple[Expr, ...]], str]
Fuzz = tuple[tuple[FuzzArg, ...], ...]

_FUZZ_PAIRS: Fuzz = (
    ("numeric(10,2)", "numeric(10,2)"),
    ("numeric(5,0)", "numeric(18,9)"),
    ("numeric(19,4)", "numeric(4,4)"),
    ("numeric(38,10)", "numeric(18,9)"),
    ("numeric", "numeric"),
    ("numeric(10,2)", "numeric"),
)
_FUZZ_SINGLE: Fuzz = (("numeric(10,2)",), ("numeric(38,10)",), ("numeric(4,4)",), ("numeric",))

# Spark's own unary minus and abs() round beyond 34 digits; its subtraction is exact.
_NEGATED = "CAST((CAST(0 AS {type}) - {0}) AS {type})"
_ABSOLUTE = "CASE WHEN {0} < CAST(0 AS {type}) THEN " + _NEGATED + " ELSE {0} END"

_INTEGER_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_INTEGER_BITS = {"int2": 15, "int4": 31, "int8": 63}


def _fit_decimal(precision: int, scale: int, operands: Sequence[Expr]) -> str:
    # 38 digits without a declaration come from a sum. A sum that needs more is an error, not a reason to use text.
    open_ended = any(decimal_of(a)[0] == MAX_DECIMAL_DIGITS and a.type.pg.precision_scale is None for a in operands)
    if scale > MAX_DECIMAL_DIGITS or (precision > MAX_DECIMAL_DIGITS and not open_ended):
        raise UnsuitableArguments(f"a numeric result of up to {precision} digits", hint=BOUNDED_HINT)
    return decimal(min(precision, MAX_DECIMAL_DIGITS), scale)


def _sum_size(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    scale = max(s for _, s in sizes)
    return _fit_decimal(max(p - s for p, s in sizes) + 1 + scale, scale, args)


def _product_size(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    return _fit_decimal(sum(p for p, _ in sizes), sum(s for _, s in sizes), args)


def _remainder_size(args: tuple[Expr, ...]) -> str:
    sizes = [decimal_of(arg) for arg in args]
    scale = max(s for _, s in sizes)
    return _fit_decimal(min(p - s for p, s in sizes) + scale, scale, args)


def _same_size(args: tuple[Expr, ...]) -> str:
    return decimal(*decimal_of(args[0]))


def _whole_size(args: tuple[Expr, ...]) -> str:
    precision, scale = decimal_of(args[0])
    return decimal(min(precision - scale + 1, MAX_DECIMAL_DIGITS), 0)


def _sign_size(args: tuple[Expr, ...]) -> str:
    decimal_of(args[0])
    return decimal(1, 0)


def _rounded_size(args: tuple[Expr, ...]) -> str:
    (precision, scale), places = decimal_of(args[0]), literal_int(args[1])
    if not 0 <= places <= MAX_DECIMAL_DIGITS:
        raise UnsuitableArguments(f"rounding to {places} places")
    return _fit_decimal(precision - scale + 1 + places, places, args[:1])


def _decimal_or_text(signature: str, size: SizeOf, forms: tuple[str, str], fuzz: Fuzz, raises: bool = False) -> Entry:
    """Return an entry for a function that has a DECIMAL form and a text form."""
    decimal_form, text_form = forms

    def physical_type(args: tuple[Expr, ...]) -> str:
        check_numeric(args)
        try:
            return size(args)
        except UnsuitableArguments:
            return "string"

    def sql(call: Call, args: Sequence[str]) -> str:
        if call.type.spark == "string":
            return text_form.format(*map(as_text, call.args, args))
        return decimal_form.format(*args, type=call.type.spark)

    return Entry(signature=signature, physical_type=physical_type, sql=sql, fuzz=fuzz, raises=raises)


def _write_comparison(sign: str, call: Call, args: Sequence[str]) -> str:
    try:
        common = common_decimal([decimal_of(arg) for arg in call.args])
    except UnsuitableArguments:
        first, second = map(as_text, call.args, args)
        return f"(pg_numeric_cmp({first}, {second}) {sign} 0)"
    sides = [
        text if arg.type.spark == common else f"CAST({text} AS {common})"
        for text, arg in zip(args, call.args, strict=True)
    ]
    return f"({sides[0]} {sign} {sides[1]})"


def _comparisons() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"numeric_{suffix}(numeric,numeric)",
            physical_type=of_numerics("boolean"),
            sql=partial(_write_comparison, sign),
            fuzz=_FUZZ_PAIRS,
            hash_equal=suffix == "eq",
        )


def _write_quotient(call: Call, args: Sequence[str]) -> str:
    if any(is_text(arg) for arg in call.args):
        args = list(map(as_text, call.args, args))
    return f"pg_numeric_div({args[0]}, {args[1]})"


def _arithmetic() -> Iterator[Entry]:
    pairs = (
        ("numeric_add", "+", "pg_numeric_add", _sum_size),
        ("numeric_sub", "-", "pg_numeric_sub", _sum_size),
        ("numeric_mul", "*", "pg_numeric_mul", _product_size),
    )
    for function, sign, java, size in pairs:
        forms = (f"CAST(({{0}} {sign} {{1}}) AS {{type}})", f"{java}({{0}}, {{1}})")
        yield _decimal_or_text(f"{function}(numeric,numeric)", size, forms, _FUZZ_PAIRS)
    yield Entry(
        signature="numeric_div(numeric,numeric)",
        physical_type=of_numerics("string"),
        sql=_write_quotient,
        fuzz=_FUZZ_PAIRS,
        raises=True,
    )
    singles = (
        ("numeric_uminus", _NEGATED, "pg_numeric_neg({0})"),
        ("numeric_uplus", "{0}", "{0}"),
        ("numeric_abs", _ABSOLUTE, "pg_numeric_abs({0})"),
        ("abs", _ABSOLUTE, "pg_numeric_abs({0})"),
    )
    for function, form, java in singles:
        yield _decimal_or_text(f"{function}(numeric)", _same_size, (form, java), _FUZZ_SINGLE)


def _remainders() -> Iterator[Entry]:
    for function in ("numeric_mod", "mod"):
        forms = ("CAST(({0} % {1}) AS {type})", "pg_numeric_mod({0}, {1})")
        yield _decimal_or_text(f"{function}(numeric,numeric)", _remainder_size, forms, _FUZZ_PAIRS, raises=True)
    forms = ("CAST(sign({0}) AS {type})", "pg_numeric_sign({0})")
    yield _decimal_or_text("sign(numeric)", _sign_size, forms, _FUZZ_SINGLE)
    # Subtract the remainder of a division by one; Spark's own casts would round.
    truncated = "CAST(({0} - ({0} % CAST(1 AS decimal(1,0)))) AS {type})"
    yield _decimal_or_text("trunc(numeric)", _whole_size, (truncated, "pg_numeric_trunc({0}, 0)"), _FUZZ_SINGLE)


def _typmod(precision: int, scale: int) -> Fixed:
    return Fixed(str((precision << 16 | (scale & 0x7FF)) + VARHDRSZ))


def _roundings() -> Iterator[Entry]:
    # Spark's decimal casts and round() round halves away from zero, as PostgreSQL's numeric does.
    for function, form, java in (
        ("round", "CAST({0} AS {type})", "pg_numeric_round({0}, 0)"),
        ("ceil", "CAST(ceil({0}) AS {type})", "pg_numeric_ceil({0})"),
        ("ceiling", "CAST(ceil({0}) AS {type})", "pg_numeric_ceil({0})"),
        ("floor", "CAST(floor({0}) AS {type})", "pg_numeric_floor({0})"),
    ):
        yield _decimal_or_text(f"{function}(numeric)", _whole_size, (form, java), _FUZZ_SINGLE)
    numbers = ("numeric(10,2)", "numeric(20,10)", "numeric")
    yield Entry(
        signature="round(numeric,int4)",
        physical_type=partial(_rounding_physical_type, _rounded_size),
        sql=partial(_write_rounding, "CAST({0} AS {type})", "pg_numeric_round({0}, {1})"),
        fuzz=tuple((n, Fixed(places)) for n in numbers for places in ("1", "3", "-2", "50")),
    )
    yield Entry(
        signature="trunc(numeric,int4)",
        physical_type=partial(_rounding_physical_type, None),
        sql=partial(_write_rounding, "", "pg_numeric_trunc({0}, {1})"),
        fuzz=tuple((n, Fixed(places)) for n in numbers for places in ("1", "3", "-2", "50")),
    )
    yield Entry(
        signature="numeric(numeric,int4)",
        physical_type=_cast_physical_type,
        sql=_write_cast,
        fuzz=(
            *((n, _typmod(5, 1)) for n in ("numeric(10,2)", "numeric:finite")),
            *((n, _typmod(12, 12)) for n in ("numeric(20,10)", "numeric:finite")),
            *((n, _typmod(3, -2)) for n in ("numeric(10,2)", "numeric")),
            ("numeric", _typmod(50, 10)),
        ),
        raises=True,
    )


def _rounding_physical_type(size: SizeOf | None, args: tuple[Expr, ...]) -> str:
    check_numeric(args[:1])
    if args[1].type.spark != "int":
        raise UnsuitableArguments(f"values held as {args[1].type.spark}")
    try:
        if size is not None:
            return size(args)
    except UnsuitableArguments:
        pass
    return "string"


def _write_rounding(decimal_form: str, text_form: str, call: Call, args: Sequence[str]) -> str:
    if call.type.spark == "string":
        return text_form.format(as_text(call.args[0], args[0]), args[1])
    return decimal_form.format(*args, type=call.type.spark)


def _size_of(args: tuple[Expr, ...]) -> tuple[int, int]:
    size = PgType(1700, literal_int(args[1]), "numeric", "").precision_scale
    if size is None:
        raise UnsuitableArguments("a numeric without a size")
    return size


def _cast_physical_type(args: tuple[Expr, ...]) -> str:
    check_numeric(args[:1])
    precision, scale = _size_of(args)
    return decimal(precision, scale) if precision <= MAX_DECIMAL_DIGITS and 0 <= scale <= precision else "string"


def _write_cast(call: Call, args: Sequence[str]) -> str:
    precision, scale = _size_of(call.args)
    if call.type.spark != "string" and not is_text(call.args[0]):
        return f"CAST({args[0]} AS {call.type.spark})"
    sized = f"pg_numeric_sized({as_text(call.args[0], args[0])}, {precision}, {scale})"
    return sized if call.type.spark == "string" else f"CAST({sized} AS {call.type.spark})"


def _write_integer(bits: int, call: Call, args: Sequence[str]) -> str:
    if not is_text(call.args[0]):
        return f"CAST(round({args[0]}, 0) AS {call.type.spark})"
    # Spark has no literal for the smallest bigint.
    bounds = f"CAST('{-(1 << bits)}' AS bigint), {(1 << bits) - 1}L"
    return f"CAST(pg_numeric_to_int({args[0]}, {bounds}) AS {call.type.spark})"


def _write_float(java: str, call: Call, args: Sequence[str]) -> str:
    return f"{java}({as_text(call.args[0], args[0])})"


def _casts() -> Iterator[Entry]:
    for name, spark in INTEGERS.items():
        yield Entry(
            signature=f"numeric({name})",
            physical_type=fixed_physical_type([spark], decimal(_INTEGER_DIGITS[name], 0)),
            sql=template("CAST({0} AS {type})"),
            fuzz=((name,),),
        )
        yield Entry(
            signature=f"{name}(numeric)",
            physical_type=of_numerics(spark),
            sql=partial(_write_integer, _INTEGER_BITS[name]),
            fuzz=_FUZZ_SINGLE,
            raises=True,
        )
    for name, spark in (("float8", "double"), ("float4", "float")):
        yield Entry(
            signature=f"{name}(numeric)",
            physical_type=of_numerics(spark),
            sql=partial(_write_float, f"pg_numeric_to_{name}"),
            fuzz=_FUZZ_SINGLE,
            raises=True,
        )
        yield Entry(
            signature=f"numeric({name})",
            physical_type=fixed_physical_type([spark], "string"),
            sql=template(f"pg_numeric_of_{name}({{0}})"),
            fuzz=((name,),),
        )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_arithmetic(), *_remainders(), *_roundings(), *_casts())
