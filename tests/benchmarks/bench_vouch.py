"""What knowing costs: the looks at the catalog of one tick, as a share of that tick. 50 stream tables, 200 sources.

Nothing was altered, which is the ordinary case. The limit is 2 % of a tick in which each stream table has a change, and
the time must not grow with the tables that nobody reads. A tick of the laboratory refreshes one after the other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.plan.depth import Thresholds
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.vouch import Vouch
from shared_schema.lsn import Lsn
from tests.benchmarks import harness
from tests.benchmarks.busy import BusyMeter
from tests.benchmarks.laboratory import Laboratory, laboratory

SOURCES, STREAM_TABLES, OTHERS, COLUMNS = 200, 50, 2_000, 10

LIMIT = 0.02
"""The largest share of a tick that the looks may take."""


def measure(options: argparse.Namespace, _: BusyMeter) -> Mapping[str, Any]:
    """Build the tables, measure looks and ticks; return the figures."""
    ticks, looks = (2, 30) if options.short else (5, 100)
    with laboratory("2g") as lab:
        _create_sources(lab)
        for i in range(STREAM_TABLES):
            lab.create(f"st{i}", _query(i))
        harness.tell("vouch: filling")
        for name in lab.tables:
            lab.tick(name)
        vouch_once = _open_vouch(lab)
        vouch_once()
        tick_s = [_tick(lab) for _ in range(options.repeats or ticks)]
        alone_ms = [_time_ms(vouch_once) for _ in range(looks)]
        _create_others(lab)
        vouch_once()
        beside_ms = [_time_ms(vouch_once) for _ in range(looks)]
    share = statistics.median(beside_ms) / 1000 / statistics.median(tick_s)
    return {
        "stream_tables": STREAM_TABLES,
        "sources": SOURCES,
        "tick_ms": round(statistics.median(tick_s) * 1000, 1),
        "look_ms": round(statistics.median(beside_ms), 2),
        "look_ms_without_other_tables": round(statistics.median(alone_ms), 2),
        "other_tables": OTHERS,
        "share": round(share, 5),
        "limit": LIMIT,
        "exceeded": share > LIMIT,
    }


def _query(number: int) -> str:
    each = SOURCES // STREAM_TABLES
    names = [f"s{k}" for k in range(number * each, (number + 1) * each)]
    joined = " ".join(f"JOIN {name} USING (id)" for name in names[1:])
    return (
        f"SELECT {names[0]}.c0, count(*) AS n, sum({names[-1]}.c1) AS s FROM {names[0]} {joined} GROUP BY {names[0]}.c0"
    )


def _create_sources(lab: Laboratory) -> None:
    columns = ", ".join(f"c{i} int" for i in range(COLUMNS - 1))
    with lab.connection.transaction():
        for i in range(SOURCES):
            lab.connection.execute(f"CREATE TABLE s{i} (id int PRIMARY KEY, {columns})".encode())
            lab.connection.execute(
                f"INSERT INTO s{i} (id, c0, c1) SELECT i, i, i FROM generate_series(1, 10) i".encode()
            )
    harness.tell("vouch: capturing")
    for i in range(SOURCES):
        lab.capture(f"s{i}")


def _create_others(lab: Laboratory) -> None:
    harness.tell("vouch: other tables")
    columns = ", ".join(f"c{i} int" for i in range(COLUMNS))
    for first in range(0, OTHERS, 500):
        with lab.connection.transaction():
            for i in range(first, first + 500):
                lab.connection.execute(f"CREATE TABLE other{i} ({columns})".encode())


def _open_vouch(lab: Laboratory) -> Callable[[], None]:
    """Return a function that vouches for all stream tables, as one tick does."""
    catalog = Catalog(Database(lab.url))
    planner = StreamTablePlanner(Database(lab.url), catalog, Thresholds(4, 5))
    plans = StreamTablePlans(planner)
    vouch = Vouch(catalog, planner, plans, CapturedSources(catalog, lab.traces))
    rows = catalog.stream_tables.all()

    def vouch_once() -> None:
        vouch.look(Lsn(lab.now.value + 1))
        admitted, refused = vouch.admit(rows)
        planned, unplanned = plans.load(admitted)
        shown = [row for row, table in planned if vouch.vouches(row, table)]
        if refused or unplanned or len(shown) != STREAM_TABLES:
            raise AssertionError(f"{len(shown)} of {STREAM_TABLES} stream tables are shown")

    return vouch_once


def _tick(lab: Laboratory) -> float:
    """Change one source of each stream table, and return the seconds in which all of them are refreshed."""
    for i in range(STREAM_TABLES):
        lab.change(
            f"s{i * (SOURCES // STREAM_TABLES)}",
            f"UPDATE s{i * (SOURCES // STREAM_TABLES)} SET c0 = c0 + 1 WHERE id = 1",
        )
    lab.step()
    harness.tell("vouch: tick")
    return sum(lab.tick(name).seconds for name in lab.tables)


def _time_ms(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Print the figures; the exit code tells whether the limit was exceeded."""
    found: dict[str, Any] = {}

    def remember(options: argparse.Namespace, meter: BusyMeter) -> Mapping[str, Any]:
        found.update(measure(options, meter))
        return found

    code = harness.figures("vouch", __doc__, remember)
    return code or int(bool(found.get("exceeded")))


if __name__ == "__main__":
    sys.exit(main())
