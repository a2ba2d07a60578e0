"""Entries for GREATEST and LEAST of two values: they skip NULLs and use the type's own order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.datetime.datetimes import DATETIME_TYPES as DATETIMES
from applier.functions.entry import (
    CollationNeed,
    Entry,
    UnsuitableArguments,
    decimal,
    decimal_of,
    extreme,
    fixed_physical_type,
    template,
)
from applier.functions.numeric.integers import INTEGER_TYPES as INTEGERS
from applier.plan.expr import Call, Expr

FUNCTIONS = ("GREATEST", "LEAST")
_PHYSICAL_TYPES = {
    **INTEGERS, **DATETIMES, "text": "string", "bpchar": "string", "float8": "double", "float4": "float",
    "bool": "boolean", "uuid": "string", "time": "string",
}  # fmt: skip


def _common_physical_type(args: tuple[Expr, ...]) -> str:
    if all(arg.type.spark == "string" for arg in args):
        return "string"
    sizes = {decimal_of(arg) for arg in args}
    if len(sizes) != 1:
        raise UnsuitableArguments("numerics of different sizes")
    return decimal(*sizes.pop())


def _write_java_call(java: str, function: str, call: Call, args: Sequence[str]) -> str:
    if call.type.spark != "string":
        return f"{function}({args[0]}, {args[1]})"
    return f"coalesce({java}_{function}({args[0]}, {args[1]}), {args[0]}, {args[1]})"


def _entries() -> Iterator[Entry]:
    for function in FUNCTIONS:
        spelling = f"{function}({{all}})"
        for name, spark in _PHYSICAL_TYPES.items():
            values = "char(6)" if name == "bpchar" else name
            yield Entry(
                signature=extreme(function, name),
                physical_type=fixed_physical_type([spark, spark], spark),
                sql=template(f"{function.lower()}({{0}}, {{1}})"),
                fuzz=((values, values),),
                collation=CollationNeed.ORDER if name in ("text", "bpchar") else CollationNeed.NONE,
                strict=False,
                spelling=spelling,
            )
        yield Entry(
            signature=extreme(function, "numeric"),
            physical_type=_common_physical_type,
            sql=partial(_write_java_call, "pg_numeric", function.lower()),
            fuzz=(("numeric(10,2)", "numeric(10,2)"), ("numeric(38,10)", "numeric(38,10)"), ("numeric", "numeric")),
            strict=False,
            spelling=spelling,
        )
        yield Entry(
            signature=extreme(function, "interval"),
            physical_type=fixed_physical_type(["string", "string"], "string"),
            sql=partial(_write_java_call, "pg_intervals", function.lower()),
            fuzz=(("interval", "interval"),),
            strict=False,
            spelling=spelling,
        )


ENTRIES: tuple[Entry, ...] = tuple(_entries())
