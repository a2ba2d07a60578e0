"""How near does pg-trickle-cdc, through a real broker with transactions, come to pg_recvlogical on the same changes?

Both read the same part of the log, from slots at the same LSN. The time is from the moment the server begins to stream
to the moment everything is confirmed; the start of the programs is not counted. pg_recvlogical writes to /dev/null: no
consumer of one slot can be faster than that. The CPU time of the broker is in the report too: on a small machine it is
what limits small transactions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from deploy.local.kafka import Kafka
from deploy.local.postgres import Postgres
from tests.benchmarks import harness
from tests.benchmarks.busy import BusyMeter
from tests.cdc_consumer.harness import Connection, Consumer, connect, until
from tests.cdc_consumer.topic_reader import open_reader
from tests.fixtures.choice import server_folder
from tests.fixtures.processes import processes

OURS, CEILING = "bench", "ceiling"
RATE_PER_S, LIVE_PER_S = 20, 2_000
WIDE = ["int", "bigint", "text", "numeric(12,2)", "timestamptz", "boolean"]
WIDE_COLUMNS = [f"c{i} {WIDE[i % len(WIDE)]}" for i in range(19)]
WIDE_VALUES = ["g", "g * 1000", "'value ' || g", "g / 100.0", "now() + g * interval '1 s'", "g % 2 = 0"]
TEN_COLUMNS = [
    "a int",
    "b bigint",
    "c text",
    "d text",
    "e numeric(12,2)",
    "f timestamptz",
    "g boolean",
    "h int",
    "i text",
]
TABLES = 200
SCHEMA = f"""
CREATE PUBLICATION pg_trickle;
CREATE TABLE narrow (id int PRIMARY KEY, n int, v text);
CREATE TABLE eight (id int PRIMARY KEY, a int, b bigint, c text, d text, e numeric(12,2), f timestamptz, g boolean);
CREATE TABLE wide (id int PRIMARY KEY, {", ".join(WIDE_COLUMNS)});
ALTER TABLE wide REPLICA IDENTITY FULL;
CREATE TABLE ten (id int PRIMARY KEY, {", ".join(TEN_COLUMNS)});
ALTER TABLE ten REPLICA IDENTITY FULL;
CREATE TABLE live (id int PRIMARY KEY, at timestamptz);
ALTER PUBLICATION pg_trickle ADD TABLE narrow, eight, wide, ten, live;
DO $$ BEGIN FOR t IN 0 .. {TABLES - 1} LOOP
    EXECUTE format('CREATE TABLE many_%s (id int PRIMARY KEY, v text)', t);
    EXECUTE format('ALTER PUBLICATION pg_trickle ADD TABLE many_%s', t);
END LOOP; END $$
"""
WIDE_ROW = ", ".join(WIDE_VALUES[i % len(WIDE_VALUES)] for i in range(19))


@dataclass(frozen=True, slots=True)
class Workload:
    """`statement` changes as many rows as its parameter says; `before` creates the rows it needs and is not timed."""

    question: str
    events: int
    short_events: int
    statement: str
    before: str = ""
    table: str = ""
    """What is emptied before."""


WORKLOADS = {
    "narrow_insert": Workload(
        "3-column inserts",
        1_000_000,
        400_000,
        "INSERT INTO narrow SELECT g, g, 'v' || g FROM generate_series(1, {}) g",
        table="narrow",
    ),
    "insert_8": Workload(
        "8-column inserts",
        600_000,
        250_000,
        "INSERT INTO eight SELECT g, g, g * 1000, 'c' || g, 'd', g / 100.0, now() + g * interval '1 s', g % 2 = 0 "
        "FROM generate_series(1, {}) g",
        table="eight",
    ),
    "wide_update_full": Workload(
        "20-column updates with REPLICA IDENTITY FULL",
        300_000,
        100_000,
        "UPDATE wide SET c0 = c0 + 1, c4 = now() WHERE id <= {}",
        f"INSERT INTO wide SELECT g, {WIDE_ROW} FROM generate_series(1, {{}}) g",
        table="wide",
    ),
    "small_update_full": Workload(
        "a backlog of transactions of ten 10-column updates with REPLICA IDENTITY FULL",
        300_000,
        100_000,
        "DO $$ BEGIN FOR t IN 0 .. {} / 10 - 1 LOOP"
        " UPDATE ten SET a = a + 1, f = now() WHERE id > t * 10 AND id <= t * 10 + 10; COMMIT; END LOOP; END $$",
        "INSERT INTO ten SELECT g, g, g * 1000, 'c' || g, 'd', g / 100.0, now(), g % 2 = 0, g, 'i' || g"
        " FROM generate_series(1, {}) g",
        table="ten",
    ),
    "many_tables": Workload(
        f"a backlog of transactions of one row, into {TABLES} tables in turn",
        60_000,
        20_000,
        "DO $$ BEGIN FOR i IN 1 .. {} LOOP"
        f" EXECUTE format('INSERT INTO many_%s VALUES ($1, $2)', i % {TABLES}) USING i, 'v' || i;"
        " COMMIT; END LOOP; END $$",
        table=", ".join(f"many_{t}" for t in range(TABLES)),
    ),
}


class Servers:
    """PostgreSQL, Kafka, and a stopped consumer that has captured the tables."""

    def __init__(self, postgres: Postgres, kafka: Kafka, folder: Path, db: Connection) -> None:
        self.postgres = postgres
        self.kafka = kafka
        self.db = db
        self.consumer = Consumer(postgres.url, kafka.bootstrap, OURS, folder)
        db.execute(SCHEMA.encode())
        self.consumer.start()
        self.halt()

    def halt(self) -> None:
        assert self.consumer.stop() == 0

    def broker_s(self) -> float:
        """Return the CPU seconds of the broker so far."""
        return next(process.own_s for process in processes() if process.pid == self.kafka.pid)

    def position(self) -> str:
        row = self.db.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        return str(row[0])

    def streaming(self, slot: str) -> bool:
        query = (
            "SELECT count(*) FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid "
            "WHERE s.slot_name = %s AND r.state IN ('catchup', 'streaming')"
        )
        return self.db.execute(query, (slot,)).fetchone() == (1,)

    def drain(self, target: str, consumer: Consumer | None = None) -> float:
        """Start the consumer; return the seconds until everything before `target` is on the topics and confirmed."""
        consumer = consumer or self.consumer
        consumer.start(wait=False)
        began = self._streams(consumer.prefix)
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        _soon(lambda: self.db.execute(query, (target, consumer.prefix)).fetchone() == (True,), "drained", 600)
        return time.monotonic() - began

    def receive(self, target: str) -> float:
        """Do the same with pg_recvlogical."""
        options = ["-o", "proto_version=1", "-o", "publication_names=pg_trickle", "-o", "messages=true"]
        line = [str(self.postgres.bin("pg_recvlogical")), "-d", self.postgres.url, "-S", CEILING, "--start", *options]
        with subprocess.Popen([*line, "-f", "/dev/null", "--no-loop", "--endpos", target]) as child:
            began = self._streams(CEILING)
            assert child.wait(600) == 0
        return time.monotonic() - began

    def _streams(self, slot: str) -> float:
        _soon(lambda: self.streaming(slot), "streaming", 60)
        return time.monotonic()


def _soon(condition: Any, what: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {limit_s:.0f} s: {what}"
        time.sleep(0.01)


@contextmanager
def servers() -> Iterator[Servers]:
    with server_folder("bench-postgres") as a, server_folder("bench-kafka") as b:
        postgres, kafka = Postgres(a, durable=False), Kafka(b)
        postgres.start()
        kafka.start()
        made: Servers | None = None
        try:
            with connect(postgres.url) as db:
                made = Servers(postgres, kafka, Path(b), db)
                yield made
        finally:
            if made is not None:
                made.consumer.end()
            kafka.stop()
            postgres.stop()


def contest(stack: Servers, name: str, workload: Workload, events: int) -> harness.Benchmark:
    """Our run writes the changes of the round; pg_recvlogical reads them from a copy of the slot made before."""
    target = ""

    def ours() -> harness.Measures:
        nonlocal target
        if workload.table:
            stack.db.execute(f"TRUNCATE {workload.table}".encode())
        if workload.before:
            stack.db.execute(workload.before.format(events).encode())
        # Both read the changes that only prepare the round before the time starts.
        stack.drain(stack.position())
        stack.halt()
        stack.db.execute("CHECKPOINT")
        stack.db.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (OURS, CEILING))
        stack.db.execute(workload.statement.format(events).encode())
        target = stack.position()
        broker_s = stack.broker_s()
        seconds = stack.drain(target)
        broker_s = stack.broker_s() - broker_s
        stack.halt()
        return {"events_per_s": events / seconds, "broker_us_per_event": broker_s / events * 1_000_000}

    def ceiling() -> harness.Measures:
        seconds = stack.receive(target)
        stack.db.execute("SELECT pg_drop_replication_slot(%s)", (CEILING,))
        return {"events_per_s": events / seconds}

    contestants = [harness.Contestant("pg-trickle-cdc", ours), harness.Contestant("pg_recvlogical", ceiling)]
    return harness.Benchmark(name, workload.question, contestants, repeats=3, short_repeats=1, warmups=0)


@contextmanager
def arrivals(stack: Servers, table: str) -> Iterator[list[float]]:
    """Collect when a read_committed reader sees each further row of a table, in seconds since 1970."""
    reader, seen, stop = open_reader(stack.consumer.bootstrap), list[float](), threading.Event()
    place = TopicPartition(f"{OURS}.public.{table}", 0)
    reader.list_topics(place.topic)
    reader.assign([TopicPartition(place.topic, 0, reader.get_watermark_offsets(place)[1])])

    def read() -> None:
        while not stop.is_set():
            messages = reader.consume(1_000, 0.0) or reader.consume(1, 0.2)
            now = time.time()
            seen.extend(now for message in messages if message.error() is None)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        reader.close()


def latencies_ms(stack: Servers, commits: int) -> list[float]:
    """Return sorted milliseconds from the return of a commit until a read_committed reader sees it."""
    sent = list[float]()
    with arrivals(stack, "narrow") as seen:
        for number in range(commits):
            stack.db.execute("INSERT INTO narrow VALUES (%s, 1, 'x')", (-number - 1,))
            sent.append(time.time())
            time.sleep(1 / RATE_PER_S)
        until(lambda: len(seen) >= commits, "all seen", 10)
    return sorted((b - a) * 1000 for a, b in zip(sent, seen, strict=True))


def under_load(stack: Servers, commits: int) -> dict[str, float]:
    """Measure single-row transactions at about LIVE_PER_S: latency, and CPU time of the broker per transaction."""
    broker_s, began = stack.broker_s(), time.monotonic()
    with arrivals(stack, "live") as seen:
        # The server paces itself: a client would use the processor that is measured.
        stack.db.execute(
            f"""
            DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN FOR n IN 1 .. {commits} LOOP
                INSERT INTO live VALUES (n, clock_timestamp()); COMMIT;
                PERFORM pg_sleep(extract(epoch FROM began - clock_timestamp())::float8 + n / {LIVE_PER_S}.0);
            END LOOP; END $$
            """.encode()
        )
        seconds = time.monotonic() - began
        until(lambda: len(seen) >= commits, "all seen", 60)
    broker_s = stack.broker_s() - broker_s
    sent = [float(at) for (at,) in stack.db.execute("SELECT extract(epoch FROM at)::float8 FROM live ORDER BY id")]
    found = sorted((b - a) * 1000 for a, b in zip(sent, seen, strict=True))
    return {
        "live_commits_per_s": round(commits / seconds),
        "live_p50_ms": round(statistics.median(found), 1),
        "live_p95_ms": round(found[int(len(found) * 0.95) - 1], 1),
        "live_broker_us_per_commit": round(broker_s / commits * 1_000_000, 1),
    }


def peak_rss_mb(stack: Servers, rows: int) -> float:
    """Return the consumer's largest memory while it processes one transaction of `rows` rows."""
    stack.db.execute("TRUNCATE narrow")
    stack.db.execute(f"INSERT INTO narrow SELECT g, g, 'v' || g FROM generate_series(1, {rows}) g".encode())
    stack.drain(stack.position())
    status = Path(f"/proc/{stack.consumer.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    stack.halt()
    return int(line.split()[1]) / 1024


def buffer_events_per_s(stack: Servers, mode: str, events: int) -> int:
    """Measure 3-column inserts into change-buffer tables with a separate consumer; without limit or comparison."""
    stack.db.execute("CREATE DATABASE buffers" if mode == "remote" else "SELECT 1")
    settings = {"mode": mode} | ({"target_url": stack.postgres.url_of("buffers")} if mode == "remote" else {})
    bootstrap, folder = stack.consumer.bootstrap, stack.consumer.log.parent
    consumer = Consumer(stack.postgres.url, bootstrap, f"bench_{mode}", folder, publications="buffered", **settings)
    stack.db.execute("CREATE TABLE IF NOT EXISTS buffered (id int PRIMARY KEY, n int, v text); TRUNCATE buffered")
    stack.db.execute("DROP PUBLICATION IF EXISTS buffered")
    stack.db.execute("CREATE PUBLICATION buffered FOR TABLE buffered")
    try:
        consumer.start()
        assert consumer.stop() == 0
        stack.db.execute(f"INSERT INTO buffered SELECT g, g, 'v' || g FROM generate_series(1, {events}) g".encode())
        return round(events / stack.drain(stack.position(), consumer))
    finally:
        consumer.end()
        stack.db.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", (consumer.prefix,)
        )


def measure(stack: Servers, options: argparse.Namespace, meter: BusyMeter) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name, workload in WORKLOADS.items():
        contested = contest(stack, name, workload, workload.short_events if options.short else workload.events)
        repeats = options.repeats or (contested.short_repeats if options.short else contested.repeats)
        found = harness.compare(contested, repeats, meter)
        print(harness.table(contested, found))
        ours, ceiling = (found["results"][c.name]["events_per_s"]["median"] for c in contested.contestants)
        broker_us = found["results"][contested.contestants[0].name]["broker_us_per_event"]["median"]
        report[name] = {
            "events_per_s": round(ours),
            "ceiling_events_per_s": round(ceiling),
            "ratio": round(ours / ceiling, 3),
            "broker_us_per_event": round(broker_us, 1),
        }
    stack.consumer.start()
    latencies = latencies_ms(stack, 100 if options.short else 600)
    report |= under_load(stack, 6_000 if options.short else 40_000)
    stack.halt()
    report["latency_p50_ms"] = round(statistics.median(latencies), 1)
    report["latency_p95_ms"] = round(latencies[int(len(latencies) * 0.95) - 1], 1)
    for mode in ("sidecar", "remote"):
        report[f"{mode}_narrow_insert_events_per_s"] = buffer_events_per_s(
            stack, mode, 50_000 if options.short else 200_000
        )
    report["big_txn_peak_rss_mb"] = round(peak_rss_mb(stack, 500_000 if options.short else 5_000_000), 1)
    return report


def measured(options: argparse.Namespace, meter: BusyMeter) -> dict[str, Any]:
    """Measure everything, on servers of its own."""
    with servers() as stack:
        return measure(stack, options, meter)


if __name__ == "__main__":
    sys.exit(harness.figures("cdc", __doc__, measured))
