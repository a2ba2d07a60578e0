"""Runs the applier without Kafka: PostgreSQL relations become traces, statements become change rows, ticks are timed.

A statement's change rows come from its own RETURNING clause, so PostgreSQL and the traces always hold the same rows.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.frontiers import RefreshTimes, move_frontier
from applier.catalog.history import RefreshExecution
from applier.catalog.install import install_catalog
from applier.plan.stream_table import StreamTable
from applier.refresh.computing.compute import compute
from applier.sinks.delta import ComputedDelta, StagedDelta
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.postgres.transaction import WriteSession, prepare_write_session
from applier.sinks.staging.staging import Staging
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.session import count_jobs, spark_session
from applier.sql.plan_query import plan_query
from applier.state.store import StateStore
from applier.trace.align import LSN, SEQ, arrow_type, trace_schema
from applier.trace.store import persist_segment
from applier.trace.trace import Base, Trace
from applier.zset import WEIGHT, column_name
from deploy.local.postgres import Postgres
from shared_schema.lsn import ORIGIN, Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, TableId
from tests.benchmarks.reads import RowsRead
from tests.fixtures.choice import server_folder

LOADED = Lsn(1_000)
BUDGET_MB = 3_072

_COLUMNS = """
SELECT a.attname, a.atttypid::int8, a.atttypmod, t.typname, format_type(a.atttypid, a.atttypmod), a.attrelid::int8
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass
class Measured:
    """The measurements of one tick."""

    seconds: float
    compute_s: float
    jobs: int
    rows: int
    """Rows of the delta."""
    read: int
    """By Spark."""


@dataclass
class Laboratory:
    """One database with its traces and stream tables; `now` is the frontier of the last statement."""

    connection: psycopg.Connection[Any]
    url: str
    spark: SparkSession
    folder: Path
    now: Lsn = LOADED
    staging: Staging | None = None
    tables: dict[str, StreamTable] = field(default_factory=dict)
    _frontiers: dict[str, Lsn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.traces = Traces(self.spark)
        self.states = StateStore(self.spark)
        self._sink = PostgresSink(WriteSession(Database(self.url, prepare_write_session(60_000))), lambda: 4096)
        self._catalog = Catalog(Database(self.url))
        self._definitions = Database(self.url)
        self._reads = RowsRead(self.spark)

    def capture(self, name: str) -> None:
        """Create a trace from the current rows of a relation."""
        columns, relid = self._columns(name)
        rows = self._read(f"SELECT * FROM {name}", columns)
        rows = rows.append_column(WEIGHT, pa.array([1], pa.int64()).take(pa.array([0] * rows.num_rows)))
        path = self.folder / f"{name}.parquet"
        pyarrow.parquet.write_table(rows, path)
        trace = Trace(self.spark, TableId("public", name))
        trace.capture(columns, Lsn(1), relid)
        segment = persist_segment(self.spark.read.parquet(str(path)), rows.num_rows)
        trace.rebase(Base(self.now, (segment,), None, rows.num_rows, 0, rows.num_rows))
        self.traces = Traces(self.spark, [*self.traces, trace], memory_budget_mb=BUDGET_MB)

    def _columns(self, name: str) -> tuple[list[Column], int]:
        found = self.connection.execute(_COLUMNS, (name,)).fetchall()
        return [Column(n, PgType(int(oid), mod, kind, shown)) for n, oid, mod, kind, shown, _ in found], int(
            found[0][5]
        )

    def _read(self, query: str, columns: Sequence[Column]) -> pa.Table:
        buffer = io.BytesIO()
        with self.connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()) as copy:
            for block in copy:
                buffer.write(block)
        names = [column_name(i) for i in range(len(columns))]
        if not buffer.tell():
            return pa.table({n: pa.array([], arrow_type(c.type)) for n, c in zip(names, columns, strict=True)})
        buffer.seek(0)
        rows = pa.csv.read_csv(
            buffer,
            read_options=pa.csv.ReadOptions(column_names=names),
            convert_options=pa.csv.ConvertOptions(
                column_types={n: arrow_type(c.type) for n, c in zip(names, columns, strict=True)},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for i, column in enumerate(columns):
            if column.type.name == "bpchar":
                rows = rows.set_column(i, names[i], pc.utf8_rtrim(rows[names[i]], " "))
        return rows

    def change(self, name: str, statement: str) -> int:
        """Run an INSERT, UPDATE or DELETE of one relation and append its change rows to the trace."""
        columns, _ = self._columns(name)
        kind = statement.split(maxsplit=1)[0].upper()
        names = ", ".join(f"{{0}}.{c.name}" for c in columns)
        sides = {"INSERT": ["new"], "DELETE": ["old"], "UPDATE": ["old", "new"]}[kind]
        returned = ", ".join(names.format(side) for side in sides)
        both = self._read(f"{statement} RETURNING {returned}", [*columns] * len(sides))
        trace = self.traces.get(TableId("public", name))
        if trace is None:
            raise AssertionError(f"{name} was not captured")
        parts = []
        for number, side in enumerate(sides):
            part = both.select(range(number * len(columns), (number + 1) * len(columns)))
            stamps = [[-1 if side == "old" else 1], [self.now.value], [number]]
            for column, value in zip((WEIGHT, LSN, SEQ), stamps, strict=True):
                part = part.append_column(column, pa.array(value * part.num_rows, pa.int64()))
            parts.append(part.rename_columns(trace_schema(trace.columns).names))
        trace._add_chunk(pa.concat_tables(parts).cast(trace_schema(trace.columns)))
        return int(both.num_rows)

    def step(self) -> None:
        """End the LSN range of the changes since the last step."""
        self.now = Lsn(self.now.value + 1)

    def create(self, name: str, query: str) -> None:
        """Create a stream table, not yet filled."""
        self.connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
        row = next(r for r in self._catalog.stream_tables.all() if r.pgt_name == name)
        definition = plan_query(self._definitions.connection, row.defining_query, "pg_catalog")
        columns = tuple(Column(n, kind) for n, kind in definition.columns)
        self.tables[name] = StreamTable(row.pgt_id, row.table, row.pgt_relid, columns, definition.plan)
        self._frontiers[name] = ORIGIN

    def tick(self, name: str) -> Measured:
        """Advance a stream table to `now`: compute the delta and write it. The first tick fills the table."""
        lsn_range = LsnRange(self._frontiers[name], self.now)
        self._reads.since_last()
        began = time.perf_counter()
        delta, jobs = self._computed(name, lsn_range, self.states)
        computed = time.perf_counter()
        now = datetime.now(UTC)
        if delta is not None:
            executed = RefreshExecution("DIFFERENTIAL", "BENCHMARK", "", "MANUAL", now, 0, (computed - began) * 1000)
            self._sink.apply(self.tables[name], delta, now, executed)
        else:
            with self.connection.cursor() as cursor:
                move_frontier(cursor, self.tables[name].id, lsn_range.lower, lsn_range.upper, RefreshTimes(now))
        self._frontiers[name] = self.now
        ended = time.perf_counter()
        rows = 0 if delta is None else delta.count
        return Measured(ended - began, computed - began, jobs, rows, self._reads.since_last())

    def full(self, name: str) -> float:
        """Return the seconds that Spark needs for the full result, from the same traces."""
        began = time.perf_counter()
        self._computed(name, LsnRange(ORIGIN, self.now), None)
        return time.perf_counter() - began

    def _computed(self, name: str, lsn_range: LsnRange, states: StateStore | None) -> tuple[ComputedDelta | None, int]:
        before = count_jobs(self.spark)
        with self.traces.through(lsn_range) as inputs:
            delta = compute(self.spark, self.tables[name], inputs, states, self.staging)
            if isinstance(delta, StagedDelta):
                delta.wait_for_all()
        return delta, count_jobs(self.spark) - before

    def refreshed(self, view: str) -> float:
        """Return the seconds of REFRESH MATERIALIZED VIEW."""
        began = time.perf_counter()
        self.connection.execute(f"REFRESH MATERIALIZED VIEW {view}".encode())
        return time.perf_counter() - began

    def differences(self, name: str, query: str) -> int:
        """Return the number of rows that are only in the stream table or only in the result of its query."""
        missing = f'({query}) EXCEPT ALL TABLE public."{name}"'
        surplus = f'TABLE public."{name}" EXCEPT ALL ({query})'
        found = self.connection.execute(
            f"SELECT count(*) FROM (({surplus}) UNION ALL ({missing})) d".encode()
        ).fetchone()
        return int(found[0]) if found else 0


@contextmanager
def laboratory(driver_memory: str = "6g") -> Iterator[Laboratory]:
    """Yield a laboratory with an empty PostgreSQL and a new Spark session."""
    with server_folder("bench") as folder, ExitStack() as cleanup:
        server = Postgres(folder / "postgres")
        server.start()
        cleanup.callback(server.stop)
        connection = cleanup.enter_context(psycopg.connect(server.url, autocommit=True))
        connection.execute("SET TimeZone = 'UTC'; SET work_mem = '256MB'; SET maintenance_work_mem = '256MB'")
        install_catalog(connection)
        spark = spark_session(
            ensure(SPARK_JARS), master="local[*]", driver_memory=driver_memory, scratch=folder / "spark"
        )
        cleanup.callback(spark.stop)
        yield Laboratory(connection, server.url, spark, folder)
