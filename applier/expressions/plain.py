"""bool and float8: comparisons. NaN equals itself and is the largest, -0 equals 0, in both engines."""

from __future__ import annotations

from collections.abc import Iterator

from applier.expressions.entry import Entry, fixed_carrier, template
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


ENTRIES: tuple[Entry, ...] = (*_bools(), *_floats())
