"""Entries for interval, which is stored as text of IntervalStyle postgres and computed in Java, and for shifts by it.

timestamptz is shifted in UTC, the zone in which every definition is analysed.
"""

from __future__ import annotations

from collections.abc import Iterator

from applier.functions.entry import Entry, Fixed, FuzzArg, fixed_physical_type, io_cast, template
from applier.functions.numeric.integers import COMPARISONS

_TEXT = "string"
# Spark converts a timestamp without a zone to an instant in UTC and back without loss.
MICROS = "unix_micros(CAST({0} AS timestamp))"
BACK = "CAST(timestamp_micros({0}) AS {{type}})"
_PHYSICAL_TYPES = {"timestamp": "timestamp_ntz", "timestamptz": "timestamp", "date": "date"}


def interval_micros(place: int) -> str:
    """Return Spark SQL for the argument at a position, as microseconds since 1970."""
    return f"unix_micros(CAST({{{place}}} AS timestamp))"


def instant(micros_sql: str) -> str:
    """Return Spark SQL that converts microseconds since 1970 to the result's type."""
    return f"CAST(timestamp_micros({micros_sql}) AS {{type}})"


def _shifts() -> Iterator[Entry]:
    for name, spark in _PHYSICAL_TYPES.items():
        result = "timestamp" if name == "timestamptz" else "timestamp_ntz"
        for function, java in ((f"{name}_pl_interval", "add"), (f"{name}_mi_interval", "sub")):
            yield Entry(
                f"{function}({name},interval)",
                fixed_physical_type([spark, _TEXT], result),
                template(instant(f"pg_dates_{java}({interval_micros(0)}, {{1}})")),
                ((f"{name}:middle", "interval:small"),),
                session=name == "timestamptz",
            )
    for name in ("timestamp", "timestamptz"):
        spark = _PHYSICAL_TYPES[name]
        yield Entry(
            f"{name}_mi({name},{name})",
            fixed_physical_type([spark, spark], _TEXT),
            template(f"pg_dates_diff({interval_micros(0)}, {interval_micros(1)})"),
            ((name, name),),
        )
        yield Entry(
            f"age({name},{name})",
            fixed_physical_type([spark, spark], _TEXT),
            template(f"pg_dates_age({interval_micros(0)}, {interval_micros(1)})"),
            ((name, name),),
        )
        yield Entry(
            f"date_bin(interval,{name},{name})",
            fixed_physical_type([_TEXT, spark, spark], spark),
            template(instant(f"pg_dates_bin({{0}}, {interval_micros(1)}, {interval_micros(2)})")),
            (
                (Fixed("'15 minutes'"), f"{name}:middle", f"{name}:middle"),
                ("interval:small", f"{name}:middle", f"{name}:middle"),
            ),
            raises=True,
        )
    yield Entry(
        "interval_pl_date(interval,date)",
        fixed_physical_type([_TEXT, "date"], "timestamp_ntz"),
        template(instant(f"pg_dates_add({interval_micros(1)}, {{0}})")),
        (("interval:small", "date:middle"),),
    )
    for name in ("timestamp", "timestamptz"):
        yield Entry(
            f"interval_pl_{name}(interval,{name})",
            fixed_physical_type([_TEXT, _PHYSICAL_TYPES[name]], _PHYSICAL_TYPES[name]),
            template(instant(f"pg_dates_add({interval_micros(1)}, {{0}})")),
            (("interval:small", f"{name}:middle"),),
            session=name == "timestamptz",
        )


def _arithmetic() -> Iterator[Entry]:
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            f"interval_{suffix}(interval,interval)",
            fixed_physical_type([_TEXT, _TEXT], "boolean"),
            template(f"(pg_intervals_cmp({{0}}, {{1}}) {sign} 0)"),
            (("interval", "interval"),),
            key_equal=suffix == "eq",
        )
    for function, java in (("interval_pl", "add"), ("interval_mi", "sub")):
        yield Entry(
            f"{function}(interval,interval)",
            fixed_physical_type([_TEXT, _TEXT], _TEXT),
            template(f"pg_intervals_{java}({{0}}, {{1}})"),
            (("interval", "interval"),),
            raises=True,
            only_out_of_range=True,
        )
    factors: tuple[FuzzArg, ...] = ("float8", "float8:small", Fixed("1.5"), Fixed("-2"))
    for function, java in (("interval_mul", "mul"), ("interval_div", "div")):
        yield Entry(
            f"{function}(interval,float8)",
            fixed_physical_type([_TEXT, "double"], _TEXT),
            template(f"pg_intervals_{java}({{0}}, {{1}})"),
            (*(("interval:small", f) for f in factors[1:]), ("interval", factors[1])),
            raises=True,
        )
    yield Entry(
        "mul_d_interval(float8,interval)",
        fixed_physical_type(["double", _TEXT], _TEXT),
        template("pg_intervals_mul({1}, {0})"),
        (("float8:small", "interval:small"), ("float8:small", "interval")),
        raises=True,
    )
    yield Entry(
        "interval_um(interval)",
        fixed_physical_type([_TEXT], _TEXT),
        template("pg_intervals_neg({0})"),
        (("interval",),),
        raises=True,
    )  # fmt: skip
    for function in ("justify_hours", "justify_days", "justify_interval"):
        yield Entry(
            f"{function}(interval)",
            fixed_physical_type([_TEXT], _TEXT),
            template(f"pg_intervals_{function}({{0}})"),
            (("interval:small",), ("interval",)),
            raises=function != "justify_hours",
        )
    yield Entry(
        io_cast("interval", "text"), fixed_physical_type([_TEXT], _TEXT), template("{0}"), (("interval",),),
        spelling="({0})::text",
    )  # fmt: skip
    yield Entry(
        "make_interval(int4,int4,int4,int4,int4,int4,float8)",
        fixed_physical_type(["int"] * 6 + ["double"], _TEXT),
        template("pg_intervals_make({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
        (("int2:small", Fixed("1"), Fixed("2"), Fixed("-3"), "int2:small", Fixed("5"), "float8:small"),),
    )


def _times() -> Iterator[Entry]:
    # hh:mm:ss.ffffff: the texts of times are equal, and sort, as the times do.
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            f"time_{suffix}(time,time)",
            fixed_physical_type([_TEXT, _TEXT], "boolean"),
            template(f"({{0}} {sign} {{1}})"),
            (("time", "time"),),
            hash_equal=suffix == "eq",
        )
    for function, sign_of_shift in (("time_pl_interval", 1), ("time_mi_interval", -1)):
        yield Entry(
            f"{function}(time,interval)",
            fixed_physical_type([_TEXT, _TEXT], _TEXT),
            template(f"pg_dates_time_add({{0}}, {{1}}, {sign_of_shift})"),
            (("time", "interval"),),
        )
    for signature, physical_types, result, form, fuzz in (
        ("time_mi_time(time,time)", [_TEXT, _TEXT], _TEXT, "pg_dates_time_diff({0}, {1})", ("time", "time")),
        ("time(timestamp)", ["timestamp_ntz"], _TEXT, f"pg_dates_time_of({interval_micros(0)})", ("timestamp",)),
        ("time(interval)", [_TEXT], _TEXT, "pg_intervals_to_time({0})", ("interval:small",)),
        ("interval(time)", [_TEXT], _TEXT, "pg_dates_time_interval({0})", ("time",)),
        (
            "datetime_pl(date,time)", ["date", _TEXT], "timestamp_ntz",
            instant("pg_dates_with_time(unix_date({0}), {1})"), ("date:middle", "time"),
        ),
    ):  # fmt: skip
        yield Entry(signature, fixed_physical_type(physical_types, result), template(form), (fuzz,))
    yield Entry(
        io_cast("time", "text"),
        fixed_physical_type([_TEXT], _TEXT),
        template("{0}"),
        (("time",),),
        spelling="({0})::text",
    )
    yield Entry(
        "make_time(int4,int4,float8)",
        fixed_physical_type(["int", "int", "double"], _TEXT),
        template("pg_dates_make_time({0}, {1}, {2})"),
        (("int2:small", "int2:small", "float8:small"),),
        raises=True,
    )


ENTRIES: tuple[Entry, ...] = (*_shifts(), *_arithmetic(), *_times())
