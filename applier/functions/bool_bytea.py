"""Entries for bool and bytea, and for casts between text and simple types."""

from __future__ import annotations

from collections.abc import Iterator

from applier.functions.entry import Entry, fixed_physical_type, io_cast, template
from applier.functions.numeric.integers import COMPARISONS
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS

_BITS = {"int2": 15, "int4": 31, "int8": 63}


def _bools() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"bool{suffix}(bool,bool)",
            physical_type=fixed_physical_type(["boolean", "boolean"], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("bool", "bool"),),
            hash_equal=suffix == "eq",
        )


def _casts() -> Iterator[Entry]:
    for signature, arguments, result, form, fuzz in (
        ("int4(bool)", "boolean", "int", "CAST({0} AS int)", "bool"),
        ("bool(int4)", "int", "boolean", "({0} <> 0)", "int4"),
        ("text(bool)", "boolean", "string", "CAST({0} AS string)", "bool"),
    ):
        yield Entry(
            signature=signature,
            physical_type=fixed_physical_type([arguments], result),
            sql=template(form),
            fuzz=((fuzz,),),
        )
    for name, spark in (*INTEGERS.items(), ("uuid", "string")):
        yield Entry(
            signature=io_cast(name, "text"),
            physical_type=fixed_physical_type([spark], "string"),
            sql=template("CAST({0} AS string)"),
            fuzz=((name,),),
            spelling="({0})::text",
        )
    for name, spark in INTEGERS.items():
        top = 1 << _BITS[name]
        yield Entry(
            signature=io_cast("text", name),
            physical_type=fixed_physical_type(["string"], spark),
            sql=template(f"CAST(pg_casts_in_int({{0}}, CAST('{-top}' AS bigint), {top - 1}L) AS {{type}})"),
            fuzz=(("text",), ("text:number",)),
            raises=True,
            spelling=f"({{0}})::{name}",
        )
    for name, spark, fuzz in (
        ("bool", "boolean", "text:bool"),
        ("uuid", "string", "text:uuid"),
        ("bytea", "binary", "text:bytea"),
    ):
        yield Entry(
            signature=io_cast("text", name),
            physical_type=fixed_physical_type(["string"], spark),
            sql=template(f"pg_casts_in_{name}({{0}})"),
            fuzz=(("text",), (fuzz,)),
            raises=True,
            spelling=f"({{0}})::{name}",
        )
    yield Entry(
        signature=io_cast("bytea", "text"),
        physical_type=fixed_physical_type(["binary"], "string"),
        sql=template("pg_casts_out_bytea({0})"),
        fuzz=(("bytea",),),
        spelling="({0})::text",
    )


def _bytes() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"bytea{suffix}(bytea,bytea)",
            physical_type=fixed_physical_type(["binary", "binary"], "boolean"),
            sql=template(f"({{0}} {sign} {{1}})"),
            fuzz=(("bytea", "bytea"),),
        )
    for function in ("length", "octet_length"):
        yield Entry(
            signature=f"{function}(bytea)",
            physical_type=fixed_physical_type(["binary"], "int"),
            sql=template("octet_length({0})"),
            fuzz=(("bytea",),),
        )


ENTRIES: tuple[Entry, ...] = (*_bools(), *_casts(), *_bytes())
