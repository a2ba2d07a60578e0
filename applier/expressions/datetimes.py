"""date, timestamp, timestamptz: comparisons, casts between date and timestamp, days between dates.

Nothing here depends on a time zone: what does (date against timestamptz) is STABLE in PostgreSQL and refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from applier.expressions.entry import Entry, fixed_carrier, template
from applier.expressions.integers import COMPARISONS

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


ENTRIES: tuple[Entry, ...] = (*_comparisons(), *_casts())
