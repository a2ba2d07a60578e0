"""Entries for float8 and float4: arithmetic with PostgreSQL's range errors, exact functions, texts.

NaN equals itself and is the largest, -0 equals 0, in both engines. What depends on a mathematics library (sin, exp,
powers that are not whole) is not listed: two libraries differ in the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from applier.functions.entry import Entry, Fixed, FuzzArg, UnsuitableArguments, fixed_physical_type, io_cast, template
from applier.functions.numeric.integers import COMPARISONS
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.plan.expr import Call, Const, Expr

FLOAT_TYPES = {"float8": "double", "float4": "float"}
_BITS = {"int2": 15, "int4": 31, "int8": 63}
_LARGEST_POWER = 64
_RADIANS_PER_DEGREE = "0.017453292519943295D"
_POWER_HINT = "cast the base to numeric: the last digit of a double's power depends on the mathematics library"
_ARITHMETIC = {"pl": "add", "mi": "sub", "mul": "mul", "div": "div"}


def _pairs() -> Iterator[Entry]:
    for left, right in product(FLOAT_TYPES, repeat=2):
        name = left if left == right else f"float{left[-1]}{right[-1]}"
        arguments = [FLOAT_TYPES[left], FLOAT_TYPES[right]]
        single = left == right == "float4"
        first, second = (f"CAST({{{i}}} AS double)" if not single else f"{{{i}}}" for i in (0, 1))
        for suffix, java in _ARITHMETIC.items():
            yield Entry(
                signature=f"{name}{suffix}({left},{right})",
                physical_type=fixed_physical_type(arguments, "float" if single else "double"),
                sql=template(f"pg_floats_{java}{'4' if single else ''}({first}, {second})"),
                fuzz=((left, right),),
                # No float4 is large enough to make a float8 overflow.
                raises=left == right or suffix in ("mul", "div"),
            )
        for suffix, sign in COMPARISONS.items():
            yield Entry(
                signature=f"{name}{suffix}({left},{right})",
                physical_type=fixed_physical_type(arguments, "boolean"),
                sql=template(f"({first} {sign} {second})"),
                fuzz=((left, right),),
                # 0 and -0 are equal but have different representations.
                key_equal=suffix == "eq" and left == right,
            )


def _functions() -> Iterator[Entry]:
    for name, spark in FLOAT_TYPES.items():
        for function, form in (
            (f"{name}um", "(- {0})"),
            (f"{name}up", "{0}"),
            (f"{name}abs", "abs({0})"),
            ("abs", "abs({0})"),
        ):
            yield Entry(f"{function}({name})", fixed_physical_type([spark], spark), template(form), ((name,),))
    for functions, form, raises in (
        (("round", "dround"), "rint({0})", False),
        (("ceil", "ceiling"), "pg_floats_ceil({0})", False),
        (("floor",), "pg_floats_floor({0})", False),
        (("trunc", "dtrunc"), "pg_floats_trunc({0})", False),
        (("sign",), "pg_floats_sign({0})", False),
        (("sqrt", "dsqrt"), "pg_floats_sqrt({0})", True),
        (("radians",), f"pg_floats_mul({{0}}, {_RADIANS_PER_DEGREE})", True),
        (("degrees",), f"pg_floats_div({{0}}, {_RADIANS_PER_DEGREE})", True),
    ):
        for function in functions:
            yield Entry(
                f"{function}(float8)",
                fixed_physical_type(["double"], "double"),
                template(form),
                (("float8",),),
                raises=raises,
            )


def _literal_exponent(arg: Expr) -> int | None:
    match arg:
        case Call(args=(Const(value=int() as value),)):
            return value
        case Const(value=float() as value) if value.is_integer():
            return int(value)
        case _:
            return None


def _is_whole(arg: Expr) -> bool:
    integers = ("float8(int2)", "float8(int4)", "float8(int8)")
    return _literal_exponent(arg) is not None or (isinstance(arg, Call) and arg.signature in integers)


def _power_physical_type(args: tuple[Expr, ...]) -> str:
    exponent = _literal_exponent(args[1])
    if exponent is None or not 0 <= exponent <= _LARGEST_POWER or not _is_whole(args[0]):
        raise UnsuitableArguments("double precision", hint=_POWER_HINT)
    return fixed_physical_type(["double", "double"], "double")(args)


def _powers() -> Iterator[Entry]:
    # Beyond 53 bits it raises, because PostgreSQL's last digit depends on its mathematics library.
    calls: tuple[tuple[FuzzArg, ...], ...] = (
        *(("int2", Fixed(n)) for n in ("0", "1", "2", "3")),
        ("int2:small", Fixed("10")),
    )
    for function in ("dpow", "power", "pow"):
        form = template("pg_floats_whole_power({0}, {1})")
        yield Entry(f"{function}(float8,float8)", _power_physical_type, form, calls)


def _casts() -> Iterator[Entry]:
    for name, spark in FLOAT_TYPES.items():
        for integer, integer_type in INTEGERS.items():
            yield Entry(
                f"{name}({integer})",
                fixed_physical_type([integer_type], spark),
                template("CAST({0} AS {type})"),
                ((integer,),),
            )
            bound = f"{1 << _BITS[integer]}.0D"
            yield Entry(
                f"{integer}({name})",
                fixed_physical_type([spark], integer_type),
                template(f"CAST(pg_floats_to_int(CAST({{0}} AS double), -{bound}, {bound}) AS {{type}})"),
                ((name,),),
                raises=True,
            )
        digit = name[-1]
        yield Entry(
            io_cast(name, "text"),
            fixed_physical_type([spark], "string"),
            template(f"pg_floats_out{digit}({{0}})"),
            ((name,),),
            spelling="({0})::text",
        )
        yield Entry(
            io_cast("text", name),
            fixed_physical_type(["string"], spark),
            template(f"pg_floats_in{digit}({{0}})"),
            (("text",), ("text:number",)),
            raises=True,
            spelling=f"({{0}})::{name}",
        )
    yield Entry(
        "float8(float4)", fixed_physical_type(["float"], "double"), template("CAST({0} AS double)"), (("float4",),)
    )
    yield Entry(
        "float4(float8)",
        fixed_physical_type(["double"], "float"),
        template("pg_floats_to_float4({0})"),
        (("float8",),),
        raises=True,
    )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_pairs(), *_functions(), *_powers(), *_casts())
