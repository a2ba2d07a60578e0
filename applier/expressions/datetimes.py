"""date, timestamp, timestamptz: comparisons, casts between date and timestamp, days between dates.

Nothing here depends on a session's time zone: what does (date against timestamptz) is STABLE in PostgreSQL and
refused. AT TIME ZONE is taken for UTC, which is also the zone Spark runs in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from applier.expressions.entry import Entry, Fixed, Unfit, fixed_carrier, literal_text, template
from applier.expressions.integers import COMPARISONS
from applier.plan.expr import Expr

CARRIERS = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


def _comparisons() -> Iterator[Entry]:
    for name, spark in CARRIERS.items():
        for suffix, sign in COMPARISONS.items():
            yield Entry(
                signature=f"{name}_{suffix}({name},{name})",
                carrier=fixed_carrier([spark, spark], "boolean"),
                sql=template(f"({{0}} {sign} {{1}})"),
                fuzz=((name, name),),
                hash_equal=suffix == "eq",
            )
    for suffix, sign in COMPARISONS.items():
        yield Entry(
            signature=f"date_{suffix}_timestamp(date,timestamp)",
            carrier=fixed_carrier(["date", "timestamp_ntz"], "boolean"),
            sql=template(f"(CAST({{0}} AS timestamp_ntz) {sign} {{1}})"),
            fuzz=(("date", "timestamp"),),
        )
        yield Entry(
            signature=f"timestamp_{suffix}_date(timestamp,date)",
            carrier=fixed_carrier(["timestamp_ntz", "date"], "boolean"),
            sql=template(f"({{0}} {sign} CAST({{1}} AS timestamp_ntz))"),
            fuzz=(("timestamp", "date"),),
        )


def _utc(result: str, args: tuple[Expr, ...]) -> str:
    if literal_text(args[0]).upper() not in ("UTC", "GMT", "ETC/UTC"):
        raise Unfit("a time zone other than UTC", hint="write AT TIME ZONE 'UTC'")
    source = "timestamp" if result == "timestamp_ntz" else "timestamp_ntz"
    return fixed_carrier(["string", source], result)(args)


def _zones() -> Iterator[Entry]:
    for source, result in (("timestamptz", "timestamp_ntz"), ("timestamp", "timestamp")):
        yield Entry(
            signature=f"timezone(text,{source})",
            carrier=partial(_utc, result),
            sql=template("CAST({1} AS {type})"),
            fuzz=((Fixed("'UTC'"), source), (Fixed("'utc'"), source)),
        )


def _casts() -> Iterator[Entry]:
    yield Entry(
        signature="timestamp(date)",
        carrier=fixed_carrier(["date"], "timestamp_ntz"),
        sql=template("CAST({0} AS {type})"),
        fuzz=(("date",),),
    )
    yield Entry(
        signature="date(timestamp)",
        carrier=fixed_carrier(["timestamp_ntz"], "date"),
        sql=template("CAST({0} AS {type})"),
        fuzz=(("timestamp",),),
    )
    yield Entry(
        signature="date_mi(date,date)",
        carrier=fixed_carrier(["date", "date"], "int"),
        sql=template("datediff({0}, {1})"),
        fuzz=(("date", "date"),),
    )


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_zones(), *_casts())
