"""bool, float8 and bytea, and casts to text whose spelling both engines share.

NaN equals itself and is the largest, -0 equals 0, in both engines.
"""

from __future__ import annotations

from collections.abc import Iterator

from applier.expressions.entry import Entry, fixed_carrier, io_cast, template
from applier.expressions.integers import CARRIERS as INTEGERS
from applier.expressions.integers import COMPARISONS


def _bools() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"bool{suffix}(bool,bool)",
            carrier=fixed_carrier(["boolean", "boolean"], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("bool", "bool"),),
            hash_equal=suffix == "eq",
        )


def _floats() -> Iterator[Entry]:
    # Not hash_equal: the group of -0 and 0 shows either, so there is no one right answer.
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"float8{suffix}(float8,float8)",
            carrier=fixed_carrier(["double", "double"], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("float8", "float8"),),
        )


def _casts() -> Iterator[Entry]:
    for signature, arguments, result, form, fuzz in (
        ("int4(bool)", "boolean", "int", "CAST({0} AS int)", "bool"),
        ("bool(int4)", "int", "boolean", "({0} <> 0)", "int4"),
        ("text(bool)", "boolean", "string", "CAST({0} AS string)", "bool"),
    ):
        yield Entry(
            signature=signature, carrier=fixed_carrier([arguments], result), sql=template(form), fuzz=((fuzz,),)
        )
    for name, spark in (*INTEGERS.items(), ("uuid", "string")):
        yield Entry(
            signature=io_cast(name, "text"),
            carrier=fixed_carrier([spark], "string"),
            sql=template("CAST({0} AS string)"),
            fuzz=((name,),),
            spelling="({0})::text",
        )


def _float_functions() -> Iterator[Entry]:
    for name, spark in (*INTEGERS.items(), ("float4", "float")):
        yield Entry(
            signature=f"float8({name})",
            carrier=fixed_carrier([spark], "double"),
            sql=template("CAST({0} AS double)"),
            fuzz=((name,),),
        )
    for name, spark in INTEGERS.items():
        yield Entry(
            signature=f"{name}(float8)",
            carrier=fixed_carrier(["double"], spark),
            # PostgreSQL takes halves to the even neighbour, Spark's cast would cut them off.
            sql=template("CAST(rint({0}) AS {type})"),
            fuzz=(("float8",),),
            raises=True,
        )
    for function, form in (
        ("float8um", "(- {0})"),
        ("float8up", "{0}"),
        ("float8abs", "abs({0})"),
        ("abs", "abs({0})"),
        ("round", "rint({0})"),
        ("dround", "rint({0})"),
    ):
        yield Entry(
            signature=f"{function}(float8)",
            carrier=fixed_carrier(["double"], "double"),
            sql=template(form),
            fuzz=(("float8",),),
        )


def _bytes() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"bytea{suffix}(bytea,bytea)",
            carrier=fixed_carrier(["binary", "binary"], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("bytea", "bytea"),),
        )
    for function in ("length", "octet_length"):
        yield Entry(
            signature=f"{function}(bytea)",
            carrier=fixed_carrier(["binary"], "int"),
            sql=template("octet_length({0})"),
            fuzz=(("bytea",),),
        )


ENTRIES: tuple[Entry, ...] = (*_bools(), *_floats(), *_casts(), *_float_functions(), *_bytes())
