"""Entries for extract(), date_part() and date_trunc() with a literal field; the only time zone is UTC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from applier.functions.datetime.intervals import interval_micros
from applier.functions.entry import Entry, Fixed, UnsuitableArguments, decimal, literal_text
from applier.functions.literals import quote_text
from applier.plan.expr import Call, Expr

_NAMES = {
    "millennium": "millennium mil millennia mils",
    "century": "century c cent centuries",
    "decade": "decade dec decades decs",
    "year": "year y yr years yrs",
    "quarter": "quarter qtr",
    "month": "month mon months mons",
    "week": "week w weeks",
    "day": "day d days",
    "hour": "hour h hours hr hrs",
    "minute": "minute m min mins minutes",
    "second": "second s sec secs seconds",
    "milliseconds": "milliseconds ms msec msecs millisecond msecond mseconds",
    "microseconds": "microseconds us usec usecs microsecond useconds usecond",
    "dow": "dow",
    "isodow": "isodow",
    "doy": "doy",
    "isoyear": "isoyear",
    "julian": "julian",
    "epoch": "epoch",
    "timezone": "timezone",
    "timezone_hour": "timezone_h timezone_hour",
    "timezone_minute": "timezone_m timezone_minute",
}
CALENDAR_FIELDS = {name: field for field, names in _NAMES.items() for name in names.split()}
"""PostgreSQL's spellings of each field."""

_CLOCK = ("hour", "minute", "second", "milliseconds", "microseconds")
_CALENDAR = (
    "millennium", "century", "decade", "year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "isoyear",
)  # fmt: skip
_ZONE = ("timezone", "timezone_hour", "timezone_minute")
_OF = {
    "date": (*_CALENDAR, "julian", "epoch"),
    "timestamp": (*_CALENDAR, *_CLOCK, "epoch"),
    "timestamptz": (*_CALENDAR, *_CLOCK, "epoch", *_ZONE),
    "time": (*_CLOCK, "epoch"),
    # PostgreSQL 18 changed how weeks and quarters of intervals are counted.
    "interval": ("millennium", "century", "decade", "year", "month", "day", *_CLOCK, "epoch"),
}
_PHYSICAL_TYPES = {
    "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "time": "string", "interval": "string",
}  # fmt: skip
_SCALES = {"second": 6, "milliseconds": 3, "epoch": 6}
_TRUNCATIONS = (
    "millennium", "century", "decade", "year", "quarter", "month", "week", "day", *_CLOCK,
)  # fmt: skip


def _field(arg: Expr, allowed: Sequence[str]) -> str:
    written = literal_text(arg).lower()
    field = CALENDAR_FIELDS.get(written)
    if field is None or field not in allowed:
        raise UnsuitableArguments(f"the field {written!r}", hint=f"use {', '.join(allowed)}")
    return field


def _scale(name: str, field: str) -> int:
    return 0 if name == "date" and field == "epoch" else _SCALES.get(field, 0)


def _write_whole(name: str, field: str, arg: str) -> str:
    """Write the field as a BIGINT in units of its last decimal place; seconds and their parts in microseconds."""
    if name == "interval":
        return f"pg_intervals_field({quote_text(field)}, {arg})"
    if name == "time":
        return f"pg_dates_time_field({quote_text(field)}, {arg})"
    return f"pg_dates_field({quote_text(field)}, {interval_micros(0).format(arg)})"


def _physical_type(name: str, result: str, args: tuple[Expr, ...]) -> str:
    field = _field(args[0], _OF[name])
    if args[1].type.spark != _PHYSICAL_TYPES[name]:
        raise UnsuitableArguments(f"values held as {args[1].type.spark}")
    if result:
        return result
    return "string" if (name, field) == ("interval", "epoch") else decimal(20, _scale(name, field))


def _write_extract(name: str, call: Call, args: Sequence[str]) -> str:
    field = _field(call.args[0], _OF[name])
    if (name, field) == ("interval", "epoch"):
        return f"pg_intervals_epoch({args[1]})"
    whole = f"CAST({_write_whole(name, field, args[1])} AS decimal(20,0))"
    if name == "date" and field == "epoch":
        whole = f"({whole} / CAST(1000000 AS decimal(20,0)))"
    scale = _scale(name, field)
    if field == "milliseconds":
        return f"CAST({whole} / CAST(1000 AS decimal(4,0)) AS {call.type.spark})"
    return (
        f"CAST({whole} / CAST({10**scale} AS decimal(7,0)) AS {call.type.spark})"
        if scale
        else f"CAST({whole} AS {call.type.spark})"
    )


def _write_part(name: str, call: Call, args: Sequence[str]) -> str:
    field = _field(call.args[0], _OF[name])
    if (name, field) == ("interval", "epoch"):
        return f"pg_intervals_epoch_double({args[1]})"
    whole = _write_whole(name, field, args[1])
    match field:
        case "epoch":
            return f"(CAST({whole} AS double) / 1000000.0D)"
        case "second":
            return f"(CAST({whole} DIV 1000000L AS double) + CAST({whole} % 1000000L AS double) / 1000000.0D)"
        case "milliseconds":
            return f"(CAST({whole} DIV 1000000L AS double) * 1000.0D + CAST({whole} % 1000000L AS double) / 1000.0D)"
        case _:
            return f"CAST({whole} AS double)"


def _extracts() -> Iterator[Entry]:
    for name, allowed in _OF.items():
        for function, result, write in (("extract", "", _write_extract), ("date_part", "double", _write_part)):
            if function == "date_part" and name == "date":
                continue
            yield Entry(
                signature=f"{function}(text,{name})",
                physical_type=partial(_physical_type, name, result),
                sql=partial(write, name),
                fuzz=tuple((Fixed(f"'{field}'"), name) for field in allowed),
                session=name == "timestamptz",
            )
    yield Entry(
        signature="date_part(text,date)",
        physical_type=partial(_physical_type, "date", "double"),
        sql=partial(_write_part, "date"),
        fuzz=tuple((Fixed(f"'{field}'"), "date") for field in _CALENDAR),
    )


def _trunc_physical_type(spark: str, args: tuple[Expr, ...]) -> str:
    _field(args[0], _TRUNCATIONS)
    if args[1].type.spark != spark:
        raise UnsuitableArguments(f"values held as {args[1].type.spark}")
    return spark


def _write_trunc(name: str, call: Call, args: Sequence[str]) -> str:
    field = quote_text(_field(call.args[0], _TRUNCATIONS))
    if name == "interval":
        return f"pg_dates_trunc_interval({field}, {args[1]})"
    return f"CAST(timestamp_micros(pg_dates_trunc({field}, {interval_micros(0).format(args[1])})) AS {call.type.spark})"


def _truncations() -> Iterator[Entry]:
    for name in ("timestamp", "timestamptz", "interval"):
        fields = [f for f in _TRUNCATIONS if name != "interval" or f != "week"]
        yield Entry(
            signature=f"date_trunc(text,{name})",
            physical_type=partial(_trunc_physical_type, _PHYSICAL_TYPES[name]),
            sql=partial(_write_trunc, name),
            fuzz=tuple((Fixed(f"'{f}'"), name if name == "interval" else f"{name}:middle") for f in fields),
            session=name == "timestamptz",
        )


ENTRIES: tuple[Entry, ...] = (*_extracts(), *_truncations())
