"""How soon is a commit visible in a join + aggregate, at how many changes per second, and what does it cost the source?

Part one: commit to visible, against refreshing a materialized view of the same query, and where the time goes. Part
two: the highest rate of changes at which the stream table stays less than two seconds behind, and pgbench on the source
with and without the consumer attached.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from deploy.local.stack import Stack
from shared_schema import progress
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress
from shared_schema.topics import DEFAULT_PREFIX, progress_topic
from tests.benchmarks import harness
from tests.benchmarks.cores import own_core
from tests.cdc_consumer.harness import until

Connection = psycopg.Connection[tuple[object, ...]]

QUERY = """
SELECT c.segment, count(*) AS orders, sum(o.amount) AS revenue
FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.segment
"""

COMMITS = 20
ROWS_PER_COMMIT = 5
WARMUPS = 2

LAG_S = 2.0
RATES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
"""Changes per second, tried in this order until the lag is too long."""
COMMITS_PER_S = 10
CAUGHT_UP_BYTES = 64_000
"""Bytes of WAL that a consumer may still have to confirm and count as up to date."""

STAGES = ("capture", "read", "compute", "write", "return")
"""Commit to a record for Kafka; Kafka and Spark's trigger; Spark; PostgreSQL; until the waiting session notices."""


def load(connection: Connection, orders: int) -> None:
    """Create customers, orders, the stream table and the materialized view."""
    connection.execute("CREATE TABLE customers (id int PRIMARY KEY, segment text NOT NULL)")
    connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(10,2))")
    customers = max(1, orders // 10)
    connection.execute(
        "INSERT INTO customers SELECT i, 'segment ' || i %% 50 FROM generate_series(1, %s) i", (customers,)
    )
    connection.execute(
        "INSERT INTO orders SELECT i, 1 + i %% %s, i %% 10000 / 100.0 FROM generate_series(1, %s) i",
        (customers, orders),
    )
    connection.execute("SELECT pgtrickle.create_stream_table('by_segment', %s)", (QUERY,))
    connection.execute(f"CREATE MATERIALIZED VIEW by_segment_view AS {QUERY}".encode())
    connection.execute("SELECT pgtrickle.wait_for('by_segment', timeout => '10 min')")


@dataclass
class Published:
    """When the consumer produced each progress record, by the timestamp of its message."""

    consumer: Consumer
    moments: list[tuple[Lsn, float]] = field(default_factory=list)

    def first_after(self, target: Lsn) -> float | None:
        """Return the time of the first record whose frontier covers an LSN."""
        while (message := self.consumer.poll(0.05)) is not None:
            if message.error() is None and isinstance(
                record := progress.decode_progress(message.value() or b""), Progress
            ):
                self.moments.append((record.frontier, message.timestamp()[1] / 1000))
        return min((moment for frontier, moment in self.moments if frontier >= target), default=None)


@dataclass
class Latency:
    """Commits and how long each took to be visible; with the time per stage if the refresh is in the history."""

    connection: Connection
    orders: int
    published: Published
    random: random.Random = field(default_factory=lambda: random.Random(1))
    times_ms: list[list[float]] = field(default_factory=list)
    stages_ms: list[dict[str, float]] = field(default_factory=list)

    def change(self, rows: int = ROWS_PER_COMMIT) -> None:
        """Commit one change."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(
                "UPDATE orders SET amount = %s WHERE id = %s",
                [(self.random.randint(0, 999_999) / 100, self.random.randint(1, self.orders)) for _ in range(rows)],
            )

    def measured(self, make_visible: str, *, staged: bool) -> harness.Measures:
        """Measure several commits; after each one `make_visible` runs."""
        times = []
        for _ in range(COMMITS):
            self.change()
            committed, began = time.time(), time.perf_counter()
            reached = self.connection.execute(make_visible.encode())
            times.append((time.perf_counter() - began) * 1000)
            if staged and (row := reached.fetchone()):
                self._take_apart(committed, time.time(), Lsn.parse(str(row[0])))
        if staged:
            self.times_ms.append(times)
        return {f"p{percent}_ms": percentile(times, percent) for percent in (50, 95, 99)}

    def _take_apart(self, committed: float, seen: float, frontier: Lsn) -> None:
        row = self.connection.execute(
            "SELECT extract(epoch FROM start_time)::float8, extract(epoch FROM end_time)::float8, compute_ms, write_ms"
            " FROM pgtrickle.get_refresh_history('by_segment', 1) WHERE tick_watermark_lsn <= %s::pg_lsn",
            (str(frontier),),
        ).fetchone()
        produced = self.published.first_after(frontier)
        if row is None or produced is None:
            return
        started, ended, compute_ms, _write_ms = (float(str(value)) for value in row)
        spent = (
            (produced - committed) * 1000,
            (started - produced) * 1000,
            compute_ms,
            (ended - started) * 1000 - compute_ms,
            (seen - ended) * 1000,
        )
        if started > committed:
            self.stages_ms.append(dict(zip(STAGES, spent, strict=True)))

    def summary(self) -> dict[str, Any]:
        """Summarize all commits but those of the warm-up, with the fraction of each stage in the median."""
        times = [one for of_round in self.times_ms[WARMUPS:] for one in of_round]
        stages = {s: statistics.median(one[s] for one in self.stages_ms) for s in STAGES} if self.stages_ms else {}
        whole = sum(stages.values())
        return {
            **{f"p{percent}_ms": round(percentile(times, percent), 1) for percent in (50, 95, 99)},
            "stages": {s: {"ms": round(ms, 1), "share": round(ms / whole, 3)} for s, ms in stages.items()},
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the percentile by rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def sustained(latency: Latency, seconds: float) -> int:
    """Return the highest rate of changes at which the stream table stays less than LAG_S behind."""
    best = 0
    for rate in RATES:
        began, changes, lag = time.monotonic(), 0, 0.0
        while (now := time.monotonic()) - began < seconds:
            latency.change(rate // COMMITS_PER_S)
            changes += rate // COMMITS_PER_S
            lag = max(lag, _staleness(latency.connection)) if now - began > LAG_S else 0.0
            time.sleep(max(0.0, began + changes / rate - time.monotonic()))
        reached = int(changes / (time.monotonic() - began))
        latency.connection.execute("SELECT pgtrickle.wait_for('by_segment', timeout => '5 min')")
        harness.tell(f"latency: {reached} changes/s for {seconds:.0f} s, at most {lag:.1f} s behind")
        if lag >= LAG_S:
            break
        best = max(best, reached)
        if reached < 0.9 * rate:
            # The writer is the limit.
            break
    return best


def _staleness(connection: Connection) -> float:
    row = connection.execute("SELECT pgtrickle.get_staleness('by_segment')").fetchone()
    return float(str(row[0])) if row else 0.0


def source_tps(stack: Stack, seconds: int, rounds: int) -> dict[str, float]:
    """Measure pgbench's transactions per second, in pairs with and without pg-trickle-cdc; its tables are captured.

    There are many short pairs: the speed of a virtual machine varies more from minute to minute than a consumer costs.
    First as on a server with a spare core: PostgreSQL and pgbench have one half of the cores in both runs; the WAL
    sender, the consumer and the broker have the other. Then all of them share all cores, which pgbench alone fills.
    """
    pgbench, url = str(stack.postgres.bin("pgbench")), stack.addresses.database_url
    subprocess.run([pgbench, "-i", "-q", "-s", "5", url], check=True, capture_output=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pgtrickle.create_stream_table('branches',"
            " 'SELECT a.bid, sum(a.abalance) AS balance, count(*) AS n FROM pgbench_accounts a GROUP BY a.bid')"
        )
        connection.execute("SELECT pgtrickle.wait_for('branches', timeout => '5 min')")
    # It shares the cores with the source only on this machine.
    stack.stop("applier")
    line = [pgbench, "-n", "-c", "4", "-j", "2", "-T", str(seconds), url]
    _pgbench(stack, line, spare_core=False)
    own = [_pair(stack, line, spare_core=True, with_first=bool(number % 2)) for number in range(rounds)]
    shared = [_pair(stack, line, spare_core=False, with_first=bool(number % 2)) for number in range((rounds + 3) // 4)]
    return {
        "source_tps": round(statistics.median(captured for captured, _ in own), 1),
        "source_tps_alone": round(statistics.median(alone for _, alone in own), 1),
        "source_tps_ratio": _ratio(own),
        "source_tps_ratio_shared": _ratio(shared),
    }


def _ratio(pairs: list[tuple[float, float]]) -> float:
    """Return the median ratio within pairs: the two runs of a pair are consecutive, so machine speed affects both."""
    return round(statistics.median(captured / alone for captured, alone in pairs), 3)


def _pair(stack: Stack, line: list[str], *, spare_core: bool, with_first: bool) -> tuple[float, float]:
    """Return the transactions per second with a consumer and without one."""
    found = {}
    for attached in (True, False) if with_first else (False, True):
        if attached:
            stack.restart("cdc")
            _wait_until_caught_up(stack)
        else:
            stack.stop("cdc")
        found[attached] = _pgbench(stack, line, spare_core=spare_core)
    where = "on a core of its own" if spare_core else "on the source's cores"
    harness.tell(f"latency: pgbench {found[True]:.0f} tps with a consumer {where}, {found[False]:.0f} without")
    return found[True], found[False]


def _wait_until_caught_up(stack: Stack) -> None:
    """Wait until the consumer has read what was written while it was stopped: that load must not be measured."""
    query = "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)) < %s FROM pg_replication_slots"
    with psycopg.connect(stack.addresses.database_url, autocommit=True) as connection:
        until(lambda: connection.execute(query, (CAUGHT_UP_BYTES,)).fetchone() == (True,), "the consumer caught up")


def _pgbench(stack: Stack, line: list[str], *, spare_core: bool) -> float:
    with ExitStack() as pinned:
        if spare_core:
            with psycopg.connect(stack.addresses.database_url) as connection:
                senders = [int(str(pid)) for (pid,) in connection.execute("SELECT pid FROM pg_stat_replication")]
            readers = [*senders, stack.binaries["cdc"].pid, stack.kafka.pid]
            cores = pinned.enter_context(own_core(stack.postgres.pid, readers))
            line = ["taskset", "-c", ",".join(map(str, sorted(cores))), *line]
        ran = subprocess.run(line, check=True, capture_output=True, text=True)
    found = re.search(r"tps = ([0-9.]+)", ran.stdout)
    return float(found[1]) if found else 0.0


@contextmanager
def benchmark(short: bool) -> Iterator[harness.Benchmark]:
    """Commit to visible: a stream table maintained by Spark, against REFRESH MATERIALIZED VIEW after each commit."""
    orders = 50_000 if short else 1_000_000
    with tempfile.TemporaryDirectory(prefix="pg-trickle-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with (
            Stack(Path(folder)) as stack,
            psycopg.connect(stack.addresses.database_url, autocommit=True) as connection,
            closing(Consumer({"bootstrap.servers": stack.addresses.kafka_bootstrap, "group.id": "bench"})) as consumer,
        ):
            load(connection, orders)
            consumer.assign([TopicPartition(progress_topic(DEFAULT_PREFIX), 0, OFFSET_END)])
            latency = Latency(connection, orders, Published(consumer))

            def second_part() -> Mapping[str, Any]:
                rate = sustained(latency, 5 if short else 20)
                tps = source_tps(stack, 3 if short else 6, 1 if short else 22)
                return {**latency.summary(), "sustained_changes_per_s": rate, **tps}

            yield harness.Benchmark(
                "latency",
                f"commit of {ROWS_PER_COMMIT} rows to visible, {orders} orders joined and grouped",
                [
                    harness.Contestant(
                        "stream table",
                        lambda: latency.measured("SELECT pgtrickle.wait_for('by_segment')::text", staged=True),
                    ),
                    harness.Contestant(
                        "materialized view",
                        lambda: latency.measured("REFRESH MATERIALIZED VIEW by_segment_view", staged=False),
                    ),
                ],
                repeats=5,
                warmups=WARMUPS,
                then=second_part,
            )


if __name__ == "__main__":
    sys.exit(harness.main(benchmark))
