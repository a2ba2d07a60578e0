"""Runs a real `pg-trickle-cdc run` process and compares its topics with the tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from deploy.local.process import free_port
from shared_schema.session_pins import options_text
from tests.cdc_consumer import buffer_reader
from tests.cdc_consumer.topic_reader import (
    Content,
    Image,
    Row,
    check_order,
    float_text,
    open_reader,
    position,
    read_topics,
    replay,
    wait_for_frontier,
)

PRINTED = options_text({"search_path": "public"})
"""Values are compared as the programs print them."""
LIMIT_S = 180.0

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True, options=PRINTED)


class Consumer:
    """One consumer of one slot: started, killed and started again."""

    def __init__(self, url: str, bootstrap: str, prefix: str, folder: Path, **settings: object) -> None:
        self.url = url
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.log = folder / f"{prefix}.log"
        self.mode = str(settings.get("mode", "log"))
        self.target = str(settings.get("target_url", url))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "PG_TRICKLE_DATABASE_URL": url,
            "PG_TRICKLE_KAFKA_BOOTSTRAP": bootstrap,
            "PG_TRICKLE_TOPIC_PREFIX": prefix,
            "PG_TRICKLE_SLOT": prefix,
            "PG_TRICKLE_METRICS_PORT": str(self._port),
            **{f"PG_TRICKLE_{name.upper()}": str(value) for name, value in settings.items()},
        }

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command to its end."""
        line = [str(Path(sys.executable).with_name("pg-trickle-cdc")), *arguments]
        environment = os.environ | self.environment
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def start(self, *, wait: bool = True) -> None:
        line = [str(Path(sys.executable).with_name("pg-trickle-cdc")), "run"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(line, env=os.environ | self.environment, stdout=log, stderr=log)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        until(lambda: self.get("/readyz")[0] == 200 or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Return a response of the metrics server; status 0 when it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def end(self) -> None:
        """End the process in any state; for the end of a test."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def caught_up(self) -> Content:
        """Return the topics, or the buffer tables, once they hold everything committed before this call."""
        with connect(self.url) as connection:
            target = flushed_message(connection)
        deadline = time.monotonic() + LIMIT_S

        def still() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return time.monotonic() < deadline

        if self.mode != "log":
            with connect(self.target) as buffers:
                buffer_reader.wait_for_frontier(buffers, self.prefix, target, still)
                return buffer_reader.read_buffers(buffers, self.prefix)
        reader = open_reader(self.bootstrap)
        try:
            wait_for_frontier(reader, self.prefix, target, still)
            return read_topics(reader, self.prefix)
        finally:
            reader.close()


def refused(consumer: Consumer) -> str:
    """Start, expect exit code 1 and a message without a traceback; return the message."""
    consumer.start(wait=False)
    assert consumer.process.wait(30) == 1
    text = consumer.log.read_text()
    assert "Traceback" not in text
    assert "\nerror: " in f"\n{text}" and "\nhint: " in text
    return text


def flushed_message(connection: Connection) -> int:
    """Write a message to the log and return its LSN; a commit flushes it, as older servers do not flush messages."""
    row = connection.execute("SELECT pg_logical_emit_message(false, 'pg_trickle', 'wake')::text").fetchone()
    connection.execute("SELECT pg_logical_emit_message(true, 'test', '')")
    assert row is not None
    return position(row[0])


def until(condition: Any, what: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {limit_s:.0f} s: {what}"
        time.sleep(0.05)


def scalar(connection: Connection, query: str) -> object:
    """Return the first column of the first row."""
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def table_now(connection: Connection, table: str) -> Counter[Image]:
    """Return every row of the table as PostgreSQL prints it."""
    bases = {
        name: base
        for name, base in connection.execute(
            "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            (table,),
        )
    }
    columns = list(bases.values())
    content: Counter[Image] = Counter()
    with connection.cursor() as cursor, cursor.copy(f"COPY (SELECT * FROM {table}) TO STDOUT".encode()) as copy:
        for row in copy.rows():
            content[tuple(_normal(base, text) for base, text in zip(columns, row, strict=True))] += 1
    return content


def _normal(base: str, text: str | None) -> str | None:
    return float_text(base, float(text)) if text is not None and base in ("float4", "float8") else text


def check(consumer: Consumer, tables: list[str]) -> Content:
    """Check that the topics replay to exactly the tables, and that every row is there once and in order."""
    content = consumer.caught_up()
    if consumer.mode == "log":
        check_frontiers(content, consumer.prefix)
    with connect(consumer.url) as connection:
        for table in tables:
            rows = content.rows[table]
            check_order(rows)
            assert replay(by_stamp(rows)) == table_now(connection, table), table
    return content


def check_frontiers(content: Content, prefix: str) -> None:
    """Check that frontiers only grow and are correct: no row before a frontier comes in a later transaction."""
    reached, frontier = dict[tuple[str, int], int](), 0
    # Partitions named since the slot was created: a dropped slot lost its progress.
    known: dict[str, set[tuple[str, int]]] = {}
    # Rows of an aborted copy do not count: the next copy begins with a T row.
    emptied = {
        t: max((r.lsn for r in rows if r.op == "T" and r.snapshot), default=0) for t, rows in content.rows.items()
    }
    for record in content.progress:
        named = {(t.removeprefix(f"{prefix}."), int(p)) for t, ps in record["end_offsets"].items() for p in ps}
        written = known.setdefault(record["slot_lsn"], set())
        assert named >= written, "a progress record names every partition written so far"
        written |= named
        for topic, partitions in record["end_offsets"].items():
            table = topic.removeprefix(f"{prefix}.")
            for partition, end in ((int(p), e) for p, e in partitions.items()):
                begin = reached.get((table, partition), 0)
                rows = [r for r in content.rows[table] if r.partition == partition and begin <= r.offset < end]
                assert rows or end == begin, f"a progress record speaks of rows of {table} that are not there"
                late = [r for r in rows if r.lsn < frontier and not (r.snapshot and r.lsn < emptied.get(table, 0))]
                assert not late, f"a row of {table} is late"
                part = position(record["part"]["lsn"]) if "part" in record else None
                # While a table is copied the stream continues, but the frontier does not advance.
                stream_at = position(record.get("written", record["frontier"]))
                assert all(r.snapshot or r.lsn < stream_at or r.lsn == part for r in rows)
                reached[table, partition] = end
        assert position(record["frontier"]) >= frontier
        frontier = position(record["frontier"])
    for table, rows in content.rows.items():
        assert all(r.offset < reached.get((table, r.partition), 0) for r in rows), "rows without a progress record"


def by_stamp(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.lsn, row.seq))
