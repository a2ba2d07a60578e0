"""Equality of types that are stored only as PostgreSQL's text: values are equal if and only if their texts are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from applier.functions.entry import Entry, UnsuitableArguments, template
from applier.plan.expr import Expr

_TYPES = {
    "network_{}(inet,inet)": (("inet",), ("inet", "cidr")),
    "macaddr_{}(macaddr,macaddr)": (("macaddr",), ("macaddr",)),
    "bit{}(bit,bit)": (("bit(4)",), ("bit",)),
    "varbit{}(varbit,varbit)": (("varbit",), ("varbit",)),
    "range_{}(anyrange,anyrange)": (("int4range", "daterange"), ("int4range", "int8range", "daterange")),
}
"""By function: the types of its fuzz tests and the types that it is accepted for.

A cidr is not compared with an inet: the text of a cidr always has a mask. numrange is missing because [1,2] and
[1.0,2] are equal but have different texts.
"""


def _physical_type(names: tuple[str, ...], args: tuple[Expr, ...]) -> str:
    given = {arg.type.pg.name for arg in args}
    if len(given) != 1 or not given <= set(names):
        raise UnsuitableArguments(f"values of type {' and '.join(sorted(arg.type.pg.display for arg in args))}")
    return "boolean"


def _equalities() -> Iterator[Entry]:
    for name, (tried, names) in _TYPES.items():
        for suffix, sign in (("eq", "="), ("ne", "<>")):
            yield Entry(
                signature=name.format(suffix),
                physical_type=partial(_physical_type, names),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=tuple((kind, kind) for kind in tried),
                hash_equal=suffix == "eq",
            )


ENTRIES: tuple[Entry, ...] = tuple(_equalities())
