"""GREATEST and LEAST, two values at a time: NULLs are skipped, the order is that of the type's own comparison."""

from __future__ import annotations

from collections.abc import Iterator

from applier.expressions.datetimes import CARRIERS as DATETIMES
from applier.expressions.entry import CollationNeed, Entry, Unfit, decimal, decimal_of, extreme, fixed_carrier, template
from applier.expressions.integers import CARRIERS as INTEGERS
from applier.plan.expr import Expr

FUNCTIONS = ("GREATEST", "LEAST")


def _one_size(args: tuple[Expr, ...]) -> str:
    sizes = {decimal_of(arg) for arg in args}
    if len(sizes) != 1:
        raise Unfit("numerics of different sizes")
    return decimal(*sizes.pop())


def _entries() -> Iterator[Entry]:
    plain = {**INTEGERS, **DATETIMES, "text": "string", "float8": "double"}
    for function in FUNCTIONS:
        for name, spark in plain.items():
            yield Entry(
                signature=extreme(function, name),
                carrier=fixed_carrier([spark, spark], spark),
                sql=template(f"{function.lower()}({{0}}, {{1}})"),
                fuzz=((name, name),),
                collation=CollationNeed.ORDER if name == "text" else CollationNeed.NONE,
                spelling=f"{function}({{all}})",
            )
        yield Entry(
            signature=extreme(function, "numeric"),
            carrier=_one_size,
            sql=template(f"{function.lower()}({{0}}, {{1}})"),
            fuzz=(("numeric(10,2)", "numeric(10,2)"), ("numeric(38,10)", "numeric(38,10)")),
            spelling=f"{function}({{all}})",
        )


ENTRIES: tuple[Entry, ...] = tuple(_entries())
