"""50 stream tables with mixed SLAs: how often are they broken while cold ones are computed in full, again and again?

The same load twice, with `tiered_scheduling` and without it, at the same schedules. A breach is a refresh that replaced
rows that were older than the SLA, as `pgtrickle.sla_summary()` counts them. Freshness is looked at twice a second for
every stream table: a look that finds rows older than the SLA is late, whether they are refreshed later or never.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from deploy.local.stack import Stack
from tests.benchmarks import harness
from tests.benchmarks.bench_latency import percentile
from tests.benchmarks.busy import BusyMeter

Connection = psycopg.Connection[tuple[object, ...]]

SMALL, SMALL_ROWS = 10, 2_000
"""Sources of the stream tables that are maintained by their changes, and the rows of each."""

COMMITS_PER_S = 20
LOOK_EVERY_S = 0.5

QUERIES = (
    "SELECT k, count(*) AS n, sum(v) AS total FROM {0} GROUP BY k",
    "SELECT id, k, v FROM {0} WHERE v % 3 = 0",
    "SELECT a.k, count(*) AS n, sum(b.v) AS total FROM {0} a JOIN {1} b ON b.id = a.id GROUP BY a.k",
)

IN_FULL = "SELECT k % {0} AS k, count(*) AS n, sum(v) AS total, max(v) AS most FROM {1} GROUP BY 1"

TIERS: Mapping[str, tuple[int, str, str]] = {
    "hot": (10, "2s", "5 s"),
    "warm": (20, "5s", "30 s"),
    "cold": (17, "10s", "2 min"),
}
"""How many stream tables, with which schedule and SLA."""

FULL_SCHEDULE, FULL_SLA = "1s", "2 min"
"""Of the three that are computed in full: they are cold by hand, and come every ten seconds then."""

FULL_INTERVAL = "10s"
"""Their schedule without tiers."""

REFRESHES = (
    "SELECT split_part(s.pgt_name, '_', 1), s.pgt_id, s.freshness_deadline_ms, h.freshness_ms,"
    " h.compute_ms + h.write_ms"
    " FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_refresh_history h USING (pgt_id)"
    " WHERE h.freshness_ms IS NOT NULL AND h.status = 'COMPLETED' AND h.start_time >= %s"
)


def definitions(short: bool) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield name, query and options of all stream tables; a name begins with the tier."""
    number = 0
    for tier, (count, schedule, sla) in TIERS.items():
        for _ in range(count):
            query = QUERIES[number % len(QUERIES)].format(f"s{number % SMALL}", f"s{(number + 1) % SMALL}")
            yield f"{tier}_{number}", query, {"schedule": schedule, "sla": sla}
            number += 1
    for groups, source in ((50, "wide"), (400, "wide"), (70, "wider")):
        options = {"schedule": FULL_SCHEDULE, "sla": FULL_SLA, "tier": "cold", "refresh_mode": "FULL"}
        yield f"full_{groups}", IN_FULL.format(groups, source), options


def load(connection: Connection, short: bool) -> None:
    """Create the sources and the stream tables, and wait until all are filled."""
    sizes = {f"s{i}": SMALL_ROWS for i in range(SMALL)}
    sizes |= {"wide": 50_000, "wider": 100_000} if short else {"wide": 190_000, "wider": 1_000_000}
    for name, rows in sizes.items():
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, k int NOT NULL, v int NOT NULL)".encode())
        connection.execute(f"INSERT INTO {name} SELECT i, i % 1000, i % 97 FROM generate_series(1, {rows}) i".encode())
    names = []
    for name, query, options in definitions(short):
        first = {key: value for key, value in options.items() if key != "tier"}
        given = ", ".join(f"{key} => '{value}'" for key, value in first.items())
        connection.execute(f"SELECT pgtrickle.create_stream_table('{name}', %s, {given})".encode(), (query,))
        if "tier" in options:
            connection.execute("SELECT pgtrickle.alter_stream_table(%s, tier => %s)", (name, options["tier"]))
        names.append(name)
    for name in names:
        connection.execute("SELECT pgtrickle.wait_for(%s, timeout => '5 min')", (name,))


@contextmanager
def writing(url: str) -> Iterator[None]:
    """Commit at a steady rate until the block ends; each commit changes a few rows of one small and one wide source."""
    stop = threading.Event()

    def run() -> None:
        chance = random.Random(1)
        with psycopg.connect(url, autocommit=True) as connection:
            began, commits = time.monotonic(), 0
            while not stop.is_set():
                with connection.transaction():
                    for name in (f"s{chance.randrange(SMALL)}", chance.choice(("wide", "wider"))):
                        ids = [chance.randrange(1, SMALL_ROWS) for _ in range(3)]
                        connection.execute(f"UPDATE {name} SET v = v + 1 WHERE id = ANY (%s)".encode(), (ids,))
                commits += 1
                stop.wait(max(0.0, began + commits / COMMITS_PER_S - time.monotonic()))

    thread = threading.Thread(target=run, name="writer")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def observe(connection: Connection, seconds: float) -> dict[str, dict[str, float]]:
    """Look at all stream tables for some time; return the figures of each kind."""
    since = connection.execute("SELECT clock_timestamp()").fetchone()
    looks: dict[str, list[tuple[float, bool]]] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for kind, age_s, sla_s in connection.execute(
            "SELECT split_part(s.pgt_name, '_', 1), extract(epoch FROM f.staleness)::float8,"
            " s.freshness_deadline_ms / 1000.0"
            " FROM pgtrickle._freshness f JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)"
        ):
            looks.setdefault(str(kind), []).append((float(str(age_s)), float(str(age_s)) > float(str(sla_s))))
        time.sleep(LOOK_EVERY_S)
    refreshes: dict[str, list[list[float]]] = {}
    for kind, *figures in connection.execute(REFRESHES, since):
        refreshes.setdefault(str(kind), []).append([float(str(figure)) for figure in figures])
    return {kind: summarize(found, refreshes.get(kind, [])) for kind, found in looks.items()}


def summarize(looks: list[tuple[float, bool]], refreshes: list[list[float]]) -> dict[str, float]:
    """Return the figures of one kind: ages and whether they were late, and per refresh id, SLA, age and time."""
    ages = [age_s for age_s, _ in looks]
    return {
        "refreshed": len({pgt_id for pgt_id, *_ in refreshes}),
        "refreshes": len(refreshes),
        "breaches": sum(age_ms > sla_ms for _, sla_ms, age_ms, _ in refreshes),
        "oldest_s": round(max((age_ms for _, _, age_ms, _ in refreshes), default=0.0) / 1000, 2),
        "took_ms": round(percentile([took_ms for *_, took_ms in refreshes] or [0.0], 50)),
        "late_looks": sum(is_late for _, is_late in looks),
        "p50_s": round(percentile(ages, 50), 2),
        "p95_s": round(percentile(ages, 95), 2),
        "max_s": round(max(ages), 2),
    }


def is_promise_kept(hot: Mapping[str, float]) -> bool:
    """Whether every hot stream table was refreshed, none too late, and none looked too old in between."""
    return hot["refreshed"] == TIERS["hot"][0] and hot["breaches"] == 0 and hot["late_looks"] == 0


def compare(connection: Connection, short: bool) -> list[str]:
    """Bring all stream tables to one frontier; return those that differ from their query."""
    if connection.execute("SELECT pgtrickle.drain(240)").fetchone() != (True,):
        return ["not drained"]
    different = []
    for name, query, _ in definitions(short):
        differs = f"(({query}) EXCEPT ALL TABLE {name}) UNION ALL (TABLE {name} EXCEPT ALL ({query}))"
        if connection.execute(f"SELECT EXISTS ({differs})".encode()).fetchone() != (False,):
            different.append(name)
    return different


def measure(options: argparse.Namespace, meter: BusyMeter) -> Mapping[str, Any]:
    """Run the load with deadlines and without; return the figures."""
    warm_s, each_s = (20.0, 20.0) if options.short else (75.0, 135.0)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pg-trickle-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with (
            Stack(Path(folder)) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as connection,
        ):
            harness.tell("scheduler: filling")
            load(connection, options.short)
            with writing(stack.addresses.database_url):
                harness.tell("scheduler: warming up")
                time.sleep(warm_s)
                before = meter.read()
                for name, is_on in (("with_deadlines", "on"), ("without", "off")):
                    connection.execute("SELECT pgtrickle.set_setting('tiered_scheduling', %s)", (is_on,))
                    for full in [full for full, _, _ in definitions(options.short) if full.startswith("full")]:
                        schedule = FULL_SCHEDULE if is_on == "on" else FULL_INTERVAL
                        connection.execute("SELECT pgtrickle.alter_stream_table(%s, schedule => %s)", (full, schedule))
                    harness.tell(f"scheduler: {name}")
                    time.sleep(5.0)
                    found[name] = observe(connection, each_s)
                share = meter.others_share(before, meter.read())
            connection.execute("SELECT pgtrickle.set_setting('tiered_scheduling', 'on')")
            harness.tell("scheduler: comparing")
            different = compare(connection, options.short)
    for name, kinds in found.items():
        harness.tell(f"{name}:")
        for kind, figures in kinds.items():
            harness.tell(f"  {kind:6} {json.dumps(figures)}")
    exceeded = bool(different) or not is_promise_kept(found["with_deadlines"]["hot"])
    return {**found, "others_share": round(share, 3), "different": different, "exceeded": exceeded}


def main() -> int:
    """Print the figures; the exit code tells whether a hot stream table broke its SLA, or differs from PostgreSQL."""
    found: dict[str, Any] = {}

    def remember(options: argparse.Namespace, meter: BusyMeter) -> Mapping[str, Any]:
        found.update(measure(options, meter))
        return found

    code = harness.figures("scheduler", __doc__, remember)
    return code or int(bool(found.get("exceeded")))


if __name__ == "__main__":
    sys.exit(main())
