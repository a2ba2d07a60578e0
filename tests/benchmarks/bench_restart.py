"""How long are stream tables without service after `kill -9` of the applier?

From the kill until `wait_for` answers for every stream table, with a commit after the kill that each of them must
include. The traces were checkpointed before, as they are some seconds after a load. The median of several kills, of the
whole and of each stage of the start. Dropped stream tables leave the traces of their sources behind: one case has a
thousand of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from deploy.local.stack import Stack
from tests.benchmarks import harness
from tests.benchmarks.busy import BusyMeter

Connection = psycopg.Connection[tuple[object, ...]]

KILLS, SHORT_KILLS = 5, 3

WAIT = "5 min"

CHECKPOINTS = "pg_trickle_checkpoints_total"
STAGES = "pg_trickle_start_seconds"
STATES = ("pg_trickle_states_restored_total", "pg_trickle_states_computed_total")
CHECKPOINT_S = 180.0
"""How long a checkpoint after the load may take."""

FORGOTTEN_AT_ONCE = 50
"""How many sources one stream table reads that is dropped again."""

QUERIES = (
    "SELECT k, count(*) AS n, sum(v) AS total FROM {0} GROUP BY k",
    "SELECT id, k, v FROM {0} WHERE v % 100 = 7",
    "SELECT b.k, count(*) AS n, sum(a.v) AS total FROM {0} a JOIN {1} b ON b.id = a.k GROUP BY b.k",
)


@dataclass(frozen=True)
class Case:
    """Sources with their rows, and how many stream tables read them."""

    name: str
    sources: Sequence[int]
    stream_tables: int
    limit_s: float
    """What the median of the kills may be."""
    forgotten: int = 0
    """How many more sources there are whose stream tables were dropped."""

    def definitions(self) -> Mapping[str, str]:
        """Return the queries by name."""
        count = len(self.sources)
        return {
            f"st{i}": QUERIES[i % len(QUERIES)].format(f"s{i % count}", f"s{(i + 1) % count}")
            for i in range(self.stream_tables)
        }


CASES = (
    Case("3M rows, 3 stream tables", (2_700_000, 300_000), 3, 12.0),
    Case("1M rows, 50 stream tables", (100_000,) * 10, 50, 15.0),
    Case("300k rows, 3 stream tables, 1 000 traces", (270_000, 30_000), 3, 20.0, forgotten=1_000),
)
SHORT_CASES = (Case("300k rows, 3 stream tables", (270_000, 30_000), 3, 12.0),)


def load(connection: Connection, case: Case) -> None:
    """Create the sources and the stream tables, and wait until all are filled."""
    for i, rows in enumerate(case.sources):
        connection.execute(f"CREATE TABLE s{i} (id int PRIMARY KEY, k int NOT NULL, v int NOT NULL)".encode())
        connection.execute(f"INSERT INTO s{i} SELECT i, i % 1000, i % 997 FROM generate_series(1, {rows}) i".encode())
    for name, query in case.definitions().items():
        connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
    wait_for_all(connection, case)


def leave_traces(connection: Connection, case: Case) -> None:
    """Have many sources captured, by stream tables that are dropped then."""
    for first in range(0, case.forgotten, FORGOTTEN_AT_ONCE):
        names = [f"gone{i}" for i in range(first, min(first + FORGOTTEN_AT_ONCE, case.forgotten))]
        for name in names:
            connection.execute(f"CREATE TABLE {name} AS SELECT i FROM generate_series(1, 3) i".encode())
        query = " UNION ALL ".join(f"SELECT i FROM {name}" for name in names)
        connection.execute("SELECT pgtrickle.create_stream_table('dropped', %s)", (query,))
        connection.execute("SELECT pgtrickle.wait_for('dropped', timeout => %s)", (WAIT,))
        connection.execute("SELECT pgtrickle.drop_stream_table('dropped')")


def change(connection: Connection, case: Case) -> None:
    """Commit a change of every source that every stream table must show."""
    with connection.transaction():
        for i in range(len(case.sources)):
            connection.execute(f"UPDATE s{i} SET v = CASE v WHEN 7 THEN 8 ELSE 7 END WHERE id <= 5".encode())


def wait_for_all(connection: Connection, case: Case) -> None:
    """Wait until every stream table includes what is committed."""
    for name in case.definitions():
        connection.execute("SELECT pgtrickle.wait_for(%s, timeout => %s)", (name, WAIT))


def restart_s(stack: Stack, connection: Connection, case: Case) -> float:
    """Kill the applier and start it again; return the seconds until every stream table is fresh."""
    began = time.monotonic()
    stack.kill("applier")
    change(connection, case)
    stack.restart("applier", wait=False)
    wait_for_all(connection, case)
    return time.monotonic() - began


def read_metrics(stack: Stack) -> dict[str, float]:
    """Return the values of the running applier by name, with labels."""
    with urllib.request.urlopen(stack.addresses.applier_metrics, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    split = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in split}


def count_checkpoints(stack: Stack) -> float:
    """Return how many checkpoints the running applier made."""
    return read_metrics(stack).get(CHECKPOINTS, 0.0)


def read_stages(stack: Stack) -> dict[str, float]:
    """Return the seconds that each stage of the last start took."""
    prefix = f'{STAGES}{{stage="'
    return {name[len(prefix) : -2]: value for name, value in read_metrics(stack).items() if name.startswith(prefix)}


def until(condition: Callable[[], bool], limit_s: float) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not so after {limit_s:.0f} s")
        time.sleep(0.5)


def different(connection: Connection, case: Case) -> list[str]:
    """Return the stream tables that differ from their query."""
    wait_for_all(connection, case)
    found = []
    for name, query in case.definitions().items():
        differs = f"(({query}) EXCEPT ALL TABLE {name}) UNION ALL (TABLE {name} EXCEPT ALL ({query}))"
        if connection.execute(f"SELECT EXISTS ({differs})".encode()).fetchone() != (False,):
            found.append(name)
    return found


def measure_case(case: Case, kills: int) -> dict[str, Any]:
    """Load a case on a stack of its own, and kill its applier several times."""
    with tempfile.TemporaryDirectory(prefix="pg-trickle-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with (
            Stack(Path(folder), say=lambda _: None) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as connection,
        ):
            harness.tell(f"restart: loading {case.name}")
            load(connection, case)
            until(lambda: count_checkpoints(stack) > 0, CHECKPOINT_S)
            if case.forgotten:
                leave_traces(connection, case)
                # A clean stop makes a checkpoint, however few rows there are.
                stack.restart("applier")
            taken, stages = [], []
            for _ in range(kills):
                taken.append(round(restart_s(stack, connection, case), 2))
                stages.append(read_stages(stack))
                told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages[-1].items())
                harness.tell(f"restart: {case.name}: {taken[-1]} s ({told})")
            wrong = different(connection, case)
            found = read_metrics(stack)
            states = {name: found.get(name, 0.0) for name in STATES}
    return {
        "median_s": statistics.median(taken),
        "kills_s": taken,
        "stages_median_s": {
            name: round(statistics.median(one.get(name, 0.0) for one in stages), 2) for name in stages[-1]
        },
        "limit_s": case.limit_s,
        "different": wrong,
        "states": states,
    }


def measure(options: argparse.Namespace, _: BusyMeter) -> Mapping[str, Any]:
    """Measure every case; return the figures."""
    kills = options.repeats or (SHORT_KILLS if options.short else KILLS)
    return {case.name: measure_case(case, kills) for case in (SHORT_CASES if options.short else CASES)}


def main() -> int:
    """Print the figures; the exit code tells whether a case took too long, or a stream table differs."""
    found: dict[str, Any] = {}

    def remember(options: argparse.Namespace, meter: BusyMeter) -> Mapping[str, Any]:
        found.update(measure(options, meter))
        return found

    code = harness.figures("restart", __doc__, remember)
    return code or int(any(case["different"] or case["median_s"] > case["limit_s"] for case in found.values()))


if __name__ == "__main__":
    sys.exit(main())
