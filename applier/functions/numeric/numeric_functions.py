"""Entries for numeric functions that Spark lacks, computed in Java: roots, powers, logarithms, texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, fixed_physical_type, io_cast, template
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.functions.numeric.physical_types import as_text, check_numeric, of_numerics
from applier.plan.expr import Call, Expr

_ONE: tuple[tuple[FuzzArg, ...], ...] = (("numeric(10,2)",), ("numeric(38,10)",), ("numeric",))
_TWO: tuple[tuple[FuzzArg, ...], ...] = (
    ("numeric(10,2)", "numeric(5,0)"),
    ("numeric", "numeric(4,4)"),
    ("numeric", "numeric"),
)


def _java_template(form: str) -> Callable[[Call, Sequence[str]], str]:
    def write(call: Call, args: Sequence[str]) -> str:
        return form.format(*map(as_text, call.args, args))

    return write


def _functions() -> Iterator[Entry]:
    small: tuple[tuple[FuzzArg, ...], ...] = (("numeric(4,4)",), ("numeric(6,3)",), ("numeric(10,2)",), ("numeric",))
    for functions, java, fuzz in (
        (("sqrt", "numeric_sqrt"), "pg_numeric_sqrt({0})", _ONE),
        (("exp", "numeric_exp"), "pg_numeric_exp({0})", small),
        (("ln", "numeric_ln"), "pg_numeric_ln({0})", small),
        (("log", "log10"), "pg_numeric_log('10', {0})", small),
        (("trim_scale",), "pg_numeric_trim_scale({0})", _ONE),
    ):
        for function in functions:
            raises = function != "trim_scale"
            yield Entry(f"{function}(numeric)", of_numerics("string"), _java_template(java), fuzz, raises=raises)
    powers: tuple[tuple[FuzzArg, ...], ...] = (
        ("numeric(6,3)", "numeric(4,2)"),
        ("numeric(6,3)", "numeric(2,0)"),
        ("numeric(4,4)", "numeric(6,3)"),
        ("numeric(6,3)", Fixed("'NaN'")),
        ("numeric(6,3)", Fixed("'-Infinity'")),
        ("numeric", Fixed("3")),
        ("numeric", Fixed("0.5")),
    )
    for function in ("power", "pow", "numeric_power"):
        java = "pg_numeric_power({0}, {1})"
        yield Entry(f"{function}(numeric,numeric)", of_numerics("string"), _java_template(java), powers, raises=True)
    logs: tuple[tuple[FuzzArg, ...], ...] = (("numeric(6,3)", "numeric(6,3)"), ("numeric(6,3)", "numeric"))
    for function in ("log", "numeric_log"):
        java = "pg_numeric_log({0}, {1})"
        yield Entry(f"{function}(numeric,numeric)", of_numerics("string"), _java_template(java), logs, raises=True)
    for function, java, raises in (
        ("div", "pg_numeric_div_trunc", True),
        ("gcd", "pg_numeric_gcd", False),
        ("lcm", "pg_numeric_lcm", False),
    ):
        yield Entry(
            f"{function}(numeric,numeric)",
            of_numerics("string"),
            _java_template(f"{java}({{0}}, {{1}})"),
            _TWO,
            raises=raises,
        )
    for function in ("scale", "min_scale"):
        yield Entry(f"{function}(numeric)", of_numerics("int"), _java_template(f"pg_numeric_{function}({{0}})"), _ONE)
    yield Entry(
        "factorial(int8)", fixed_physical_type(["bigint"], "string"), template("pg_numeric_factorial({0})"),
        (("int8",),), raises=True,
    )  # fmt: skip
    yield Entry(
        "width_bucket(numeric,numeric,numeric,int4)",
        _bucket_physical_type,
        _write_bucket,
        (("numeric(10,2)", Fixed("-5.5"), Fixed("100"), Fixed("7")), ("numeric", "numeric", "numeric", Fixed("5"))),
        raises=True,
    )


def _bucket_physical_type(args: tuple[Expr, ...]) -> str:
    check_numeric(args[:3])
    if args[3].type.spark != "int":
        raise UnsuitableArguments(f"values held as {args[3].type.spark}")
    return "int"


def _write_bucket(call: Call, args: Sequence[str]) -> str:
    bounds = ", ".join(map(as_text, call.args[:3], args[:3]))
    return f"pg_numeric_width_bucket({bounds}, {args[3]})"


def _integers() -> Iterator[Entry]:
    for name in ("int4", "int8"):
        spark = INTEGERS[name]
        top = {"int4": 31, "int8": 63}[name]
        bounds = f"CAST('{-(1 << top)}' AS bigint), {(1 << top) - 1}L"
        for function in ("gcd", "lcm"):
            found = f"pg_numeric_{function}(CAST({{0}} AS string), CAST({{1}} AS string))"
            yield Entry(
                f"{function}({name},{name})",
                fixed_physical_type([spark, spark], spark),
                template(f"CAST(pg_numeric_to_int({found}, {bounds}) AS {{type}})"),
                ((name, name),),
                raises=True,
            )


def _texts() -> Iterator[Entry]:
    yield Entry(
        io_cast("numeric", "text"),
        of_numerics("string"),
        lambda call, args: as_text(call.args[0], args[0]),
        _ONE,
        spelling="({0})::text",
    )
    yield Entry(
        io_cast("text", "numeric"),
        fixed_physical_type(["string"], "string"),
        template("pg_numeric_in({0})"),
        (("text",), ("text:number",)),
        raises=True,
        spelling="({0})::numeric",
    )


ENTRIES: tuple[Entry, ...] = (*_functions(), *_integers(), *_texts())
