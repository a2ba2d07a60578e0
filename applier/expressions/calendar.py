"""extract() and date_trunc() with a literal field, over date and timestamp: no time zone takes part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.expressions.entry import Entry, Fixed, Unfit, decimal, literal_text, template
from applier.plan.expr import Call, Expr

_FIELDS = {
    "year": "year({0})",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "week": "weekofyear({0})",
    "day": "day({0})",
    "doy": "dayofyear({0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "hour": "hour({0})",
    "minute": "minute({0})",
}
_TIME_FIELDS = frozenset({"hour", "minute"})
_TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _field(args: tuple[Expr, ...], allowed: Sequence[str]) -> str:
    field = literal_text(args[0]).lower()
    if field not in allowed:
        raise Unfit(f"the field {field!r}", hint=f"use {', '.join(allowed)}")
    return field


def _extract_carrier(spark: str, allowed: Sequence[str], args: tuple[Expr, ...]) -> str:
    _field(args, allowed)
    if args[1].type.spark != spark:
        raise Unfit(f"values held as {args[1].type.spark}")
    return decimal(10, 0)


def _extract(call: Call, args: Sequence[str]) -> str:
    return f"CAST({_FIELDS[literal_text(call.args[0]).lower()].format(args[1])} AS {call.type.spark})"


def _trunc_carrier(args: tuple[Expr, ...]) -> str:
    _field(args, _TRUNCATIONS)
    if args[1].type.spark != "timestamp_ntz":
        raise Unfit(f"values held as {args[1].type.spark}")
    return "timestamp_ntz"


def _entries() -> Iterator[Entry]:
    for name, spark in (("date", "date"), ("timestamp", "timestamp_ntz")):
        allowed = [f for f in _FIELDS if name == "timestamp" or f not in _TIME_FIELDS]
        yield Entry(
            signature=f"extract(text,{name})",
            carrier=partial(_extract_carrier, spark, allowed),
            sql=_extract,
            fuzz=tuple((Fixed(f"'{field}'"), name) for field in allowed),
        )
    yield Entry(
        signature="date_trunc(text,timestamp)",
        carrier=_trunc_carrier,
        # Spark truncates instants only; in UTC an instant reads as the same local time.
        sql=template("CAST(date_trunc({0}, CAST({1} AS timestamp)) AS {type})"),
        fuzz=tuple((Fixed(f"'{field}'"), "timestamp") for field in _TRUNCATIONS),
    )


ENTRIES: tuple[Entry, ...] = tuple(_entries())
