"""Entries for date, timestamp, timestamptz: comparisons, casts, texts, days between dates, zones.

What PostgreSQL computes in the session's time zone is computed in UTC: every definition is analysed in UTC and Spark
runs in UTC. Texts use DateStyle ISO. Years before 1 and after 9999 have no physical type: such a result raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from zoneinfo import available_timezones

from applier.functions.datetime.intervals import instant, interval_micros
from applier.functions.entry import (
    Entry,
    Fixed,
    FuzzArg,
    UnsuitableArguments,
    fixed_physical_type,
    io_cast,
    literal_text,
    template,
)
from applier.functions.literals import quote_text
from applier.functions.numeric.integers import COMPARISONS
from applier.plan.expr import Call, Expr

DATETIME_TYPES = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
_DATE = "date_from_unix_date({0})"


def _comparisons() -> Iterator[Entry]:
    for name, spark in DATETIME_TYPES.items():
        for suffix, sign in COMPARISONS.items():
            yield Entry(
                signature=f"{name}_{suffix}({name},{name})",
                physical_type=fixed_physical_type([spark, spark], "boolean"),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=((name, name),),
                hash_equal=suffix == "eq",
            )
    for left, right in (("date", "timestamp"), ("timestamp", "date"), ("date", "timestamptz"), ("timestamptz", "date"),
                        ("timestamp", "timestamptz"), ("timestamptz", "timestamp")):  # fmt: skip
        common = "timestamp" if "timestamptz" in (left, right) else "timestamp_ntz"
        for suffix, sign in COMPARISONS.items():
            yield Entry(
                signature=f"{left}_{suffix}_{right}({left},{right})",
                physical_type=fixed_physical_type([DATETIME_TYPES[left], DATETIME_TYPES[right]], "boolean"),
                sql=template(f"(CAST({{0}} AS {common}) {sign} CAST({{1}} AS {common}))"),
                fuzz=((left, right),),
                session=common == "timestamp",
            )


def _zone(arg: Expr) -> str:
    name = literal_text(arg)
    if name.upper() in ("UTC", "GMT", "ETC/UTC"):
        return "UTC"
    if "/" not in name or name not in available_timezones():
        raise UnsuitableArguments(f"the time zone {name!r}", hint="name it as in 'Europe/Berlin', or UTC")
    return name


def _zone_physical_type(result: str, args: tuple[Expr, ...]) -> str:
    _zone(args[0])
    source = "timestamp" if result == "timestamp_ntz" else "timestamp_ntz"
    return fixed_physical_type(["string", source], result)(args)


def _write_in_zone(java: str, call: Call, args: Sequence[str]) -> str:
    zone = _zone(call.args[0])
    if zone == "UTC":
        return f"CAST({args[1]} AS {call.type.spark})"
    shifted = f"pg_dates_{java}({quote_text(zone)}, {interval_micros(0).format(args[1])})"
    return instant(shifted).format(type=call.type.spark)


def _zones() -> Iterator[Entry]:
    zones = ("UTC", "utc", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "Australia/Lord_Howe")
    for source, result, java in (
        ("timestamptz", "timestamp_ntz", "to_zone"),
        ("timestamp", "timestamp", "from_zone"),
    ):
        yield Entry(
            signature=f"timezone(text,{source})",
            physical_type=partial(_zone_physical_type, result),
            sql=partial(_write_in_zone, java),
            fuzz=tuple((Fixed(f"'{zone}'"), f"{source}:recent") for zone in zones),
        )


def _days() -> Iterator[Entry]:
    yield Entry(
        signature="date_mi(date,date)",
        physical_type=fixed_physical_type(["date", "date"], "int"),
        sql=template("datediff({0}, {1})"),
        fuzz=(("date", "date"),),
    )
    moves: tuple[tuple[FuzzArg, ...], ...] = (("date:middle", "int2"), ("date:middle", Fixed("30")))
    for function, java in (("date_pli", "add_days"), ("date_mii", "sub_days")):
        form = _DATE.format(f"pg_dates_{java}(unix_date({{0}}), {{1}})")
        yield Entry(f"{function}(date,int4)", fixed_physical_type(["date", "int"], "date"), template(form), moves)
    form = _DATE.format("pg_dates_add_days(unix_date({1}), {0})")
    yield Entry(
        "integer_pl_date(int4,date)",
        fixed_physical_type(["int", "date"], "date"),
        template(form),
        (("int2", "date:middle"),),
    )
    for name, spark in DATETIME_TYPES.items():
        yield Entry(
            f"isfinite({name})",
            fixed_physical_type([spark], "boolean"),
            template("CASE WHEN {0} IS NOT NULL THEN TRUE END"),
            ((name,),),
        )


def _making() -> Iterator[Entry]:
    years: tuple[FuzzArg, ...] = ("int2:year", "int2:small", "int2:small")
    yield Entry(
        "make_date(int4,int4,int4)",
        fixed_physical_type(["int"] * 3, "date"),
        template(_DATE.format("pg_dates_make_date({0}, {1}, {2})")),
        (years, ("int2:year", Fixed("2"), Fixed("29"))),
        raises=True,
    )
    for name, session in (("timestamp", False), ("timestamptz", True)):
        yield Entry(
            f"make_{name}(int4,int4,int4,int4,int4,float8)",
            fixed_physical_type(["int"] * 5 + ["double"], DATETIME_TYPES[name]),
            template(instant("pg_dates_make_timestamp({0}, {1}, {2}, {3}, {4}, {5})")),
            (("int2:year", Fixed("2"), Fixed("29"), Fixed("24"), Fixed("0"), Fixed("0")),
             ("int2:year", Fixed("12"), "int2:small", Fixed("1"), Fixed("2"), "float8:small")),
            raises=True,
            session=session,
        )  # fmt: skip
    yield Entry(
        "to_timestamp(float8)",
        fixed_physical_type(["double"], "timestamp"),
        template(instant("pg_dates_of_epoch({0})")),
        (("float8:small",), ("float8:epoch",)),
    )


def _casts() -> Iterator[Entry]:
    pairs = (("date", "timestamp"), ("timestamp", "date"), ("date", "timestamptz"), ("timestamptz", "date"),
             ("timestamp", "timestamptz"), ("timestamptz", "timestamp"))  # fmt: skip
    for source, target in pairs:
        yield Entry(
            signature=f"{target}({source})",
            physical_type=fixed_physical_type([DATETIME_TYPES[source]], DATETIME_TYPES[target]),
            sql=template("CAST({0} AS {type})"),
            fuzz=((source,),),
            session="timestamptz" in (source, target),
        )
    for name, printed in (
        ("date", "pg_dates_out_date(unix_date({0}))"),
        ("timestamp", f"pg_dates_out_timestamp({interval_micros(0)})"),
        ("timestamptz", f"concat(pg_dates_out_timestamp({interval_micros(0)}), '+00')"),
    ):
        yield Entry(
            io_cast(name, "text"), fixed_physical_type([DATETIME_TYPES[name]], "string"), template(printed), ((name,),),
            spelling="({0})::text",
        )  # fmt: skip
    for name, read in (
        ("date", _DATE.format("pg_dates_in_date({0})")),
        ("timestamp", instant("pg_dates_in_timestamp({0})")),
        ("timestamptz", instant("pg_dates_in_timestamptz({0})")),
    ):
        yield Entry(
            io_cast("text", name),
            fixed_physical_type(["string"], DATETIME_TYPES[name]),
            template(read),
            (("text:moment",),),
            raises=True,
            spelling=f"({{0}})::{name}",
        )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_zones(), *_days(), *_making(), *_casts())
