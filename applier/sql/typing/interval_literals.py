"""A literal interval -> its length in microseconds, if it always has the same length. Pure."""

from __future__ import annotations

import re

from applier.plan.expr import Const, Expr

DAY_MICROS = 86_400_000_000
_SPAN = re.compile(r"(?:([+-]?\d+) days?)?\s*(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")


def literal_micros(expr: Expr) -> int | None:
    """Return the microseconds of a literal interval with days of 24 hours; None for months and computed intervals."""
    if not isinstance(expr, Const) or expr.type.pg.name != "interval" or not isinstance(expr.value, str):
        return None
    found = _SPAN.fullmatch(expr.value)
    if found is None or not expr.value:
        return None
    days, sign, hours, minutes, seconds, fraction = found.groups()
    clock = 0
    if hours is not None:
        clock = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int(
            (fraction or "0").ljust(6, "0")
        )
    return int(days or 0) * DAY_MICROS + (-clock if sign == "-" else clock)
