"""Entries for int2, int4, int8: arithmetic that raises on overflow like PostgreSQL's, comparisons, casts.

Spark in ANSI mode raises on overflow and division by zero too. DIV truncates like PostgreSQL but is a BIGINT, so the
cast back makes -32768 / -1 raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from applier.functions.entry import Entry, Fixed, fixed_physical_type, template

INTEGER_TYPES = {"int2": "smallint", "int4": "int", "int8": "bigint"}
_SIZE = {"int2": 2, "int4": 4, "int8": 8}
_SHORT = {"int2": "2", "int4": "4", "int8": "8"}

_ARITHMETIC = {"pl": "({0} + {1})", "mi": "({0} - {1})", "mul": "({0} * {1})", "div": "CAST({0} DIV {1} AS {{type}})"}
COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _function_prefix(left: str, right: str) -> str:
    return left if left == right else f"int{_SHORT[left]}{_SHORT[right]}"


def _widen(left: str, right: str) -> tuple[str, str, str]:
    """Return the wider type, and both arguments as templates of that type."""
    wider = max(left, right, key=lambda t: _SIZE[t])
    cast = [
        place if t == wider else f"CAST({place} AS {INTEGER_TYPES[wider]})"
        for place, t in (("{0}", left), ("{1}", right))
    ]
    return wider, cast[0], cast[1]


def _pairs() -> Iterator[Entry]:
    for left, right in product(INTEGER_TYPES, repeat=2):
        wider, first, second = _widen(left, right)
        arguments = [INTEGER_TYPES[left], INTEGER_TYPES[right]]
        for suffix, form in _ARITHMETIC.items():
            yield Entry(
                signature=f"{_function_prefix(left, right)}{suffix}({left},{right})",
                physical_type=fixed_physical_type(arguments, INTEGER_TYPES[wider]),
                sql=template(form.format(first, second)),
                fuzz=((left, right),),
                raises=True,
                only_out_of_range=suffix != "div",
            )
        for suffix, sign in COMPARISONS.items():
            yield Entry(
                signature=f"{_function_prefix(left, right)}{suffix}({left},{right})",
                physical_type=fixed_physical_type(arguments, "boolean"),
                sql=template(f"({first} {sign} {second})"),
                fuzz=((left, right),),
                hash_equal=suffix == "eq",
            )


def _single() -> Iterator[Entry]:
    for name, spark in INTEGER_TYPES.items():
        for function in (f"{name}mod", "mod"):
            yield Entry(
                signature=f"{function}({name},{name})",
                physical_type=fixed_physical_type([spark, spark], spark),
                sql=template("({0} % {1})"),
                fuzz=((name, name),),
                raises=True,
            )
        for function, form in ((f"{name}um", "(- {0})"), (f"{name}abs", "abs({0})"), ("abs", "abs({0})")):
            yield Entry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], spark),
                sql=template(form),
                fuzz=((name,),),
                raises=True,
                only_out_of_range=True,
            )
        for function, form in ((f"{name}up", "{0}"), (f"{name}not", "(~ {0})")):
            yield Entry(
                signature=f"{function}({name})",
                physical_type=fixed_physical_type([spark], spark),
                sql=template(form),
                fuzz=((name,),),
            )
        for suffix, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            yield Entry(
                signature=f"{name}{suffix}({name},{name})",
                physical_type=fixed_physical_type([spark, spark], spark),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=((name, name),),
            )


def _shifts() -> Iterator[Entry]:
    # Both engines use the count modulo the width; a smallint is shifted as an integer and truncated.
    for name, spark in INTEGER_TYPES.items():
        for suffix, function in (("shl", "shiftleft"), ("shr", "shiftright")):
            form = f"{function}({{0}}, {{1}})"
            if name == "int2":
                wide = f"({function}(CAST({{0}} AS int), {{1}}) & 65535)"
                form = f"CAST(({wide} - if({wide} > 32767, 65536, 0)) AS smallint)"
            yield Entry(
                signature=f"{name}{suffix}({name},int4)",
                physical_type=fixed_physical_type([spark, "int"], spark),
                sql=template(form),
                fuzz=((name, "int4"), (name, "int2:small"), (name, Fixed("40"))),
            )


def _casts() -> Iterator[Entry]:
    for source, target in product(INTEGER_TYPES, repeat=2):
        if source != target:
            yield Entry(
                signature=f"{target}({source})",
                physical_type=fixed_physical_type([INTEGER_TYPES[source]], INTEGER_TYPES[target]),
                sql=template("CAST({0} AS {type})"),
                fuzz=((source,),),
                raises=_SIZE[target] < _SIZE[source],
                only_out_of_range=True,
            )


ENTRIES: tuple[Entry, ...] = (*_pairs(), *_single(), *_shifts(), *_casts())
