"""`make_ticks`: whole ticks with PostgreSQL, Spark and Delta.

Only the intake is another one: the change rows come from statements, not from topics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

from applier.catalog.catalog import Catalog
from applier.catalog.checkpoints import Manifest
from applier.catalog.database import Database
from applier.plan.depth import Thresholds
from applier.refresh.alter import Alterations
from applier.refresh.computing.computer import Computer
from applier.refresh.computing.full_in_postgres import FullInPostgres
from applier.refresh.computing.long_refreshes import LongRefreshes
from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.failure_policy import FailurePolicy
from applier.refresh.holding.fuses import Fuses
from applier.refresh.holding.holds import Holds
from applier.refresh.holding.readiness import Readiness
from applier.refresh.intake import Intake
from applier.refresh.method.cost_cache import CostCache, model_of
from applier.refresh.method.refresh_planner import RefreshLimits, RefreshPlanner
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.promises import Promises
from applier.refresh.scheduler import Scheduler
from applier.refresh.stream_tables import StreamTables
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.vouch import Vouch
from applier.refresh.writing.catch_up import CatchUp, LatestCheckpoint
from applier.refresh.writing.long_writes import LongWrites
from applier.refresh.writing.result_writer import ResultWriter
from applier.refresh.writing.writer import RefreshWriter
from applier.runtime.checkpointer import Checkpointer, CheckpointSettings
from applier.runtime.maintenance import Maintenance, MaintenanceSettings
from applier.runtime.tick import run_tick
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.downstream import Downstream
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.kafka.sink import TopicSink
from applier.sinks.postgres.committed_rows import CommittedRows
from applier.sinks.postgres.progressive import EarlyParts
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.postgres.transaction import TICK_LOCK_TIMEOUT_MS, Cursor, WriteSession, prepare_write_session
from applier.sinks.staging.staged_delta import PREFIX
from applier.sinks.staging.staging import Staging
from applier.state.store import StateStore
from applier.trace.store import TraceStore
from shared_schema.lsn import ORIGIN, Lsn
from tests.benchmarks.laboratory import Laboratory

COST_WINDOW = timedelta(hours=1)

STAGED_ROWS = 50
"""A delta with more rows than this is staged: then a lease holds tables of PostgreSQL."""

FEW, MANY = "SELECT k, count(*) AS n FROM a GROUP BY k", "SELECT a.id AS l, b.id AS r, b.v FROM a JOIN b ON b.k = a.k"


class Statements:
    """An intake whose rows are those of a laboratory's statements."""

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab

    def advance(self) -> Lsn:
        return self._lab.now


class NoTopics:
    """An intake whose topics are read from their beginning."""

    def restart_offsets(self, frontier: Lsn) -> dict[str, dict[int, int]]:
        return {}


@dataclass
class Ticks:
    """Runs ticks; counts the leases since the beginning."""

    lab: Laboratory
    vouch: Vouch
    alterations: Alterations
    tables: StreamTables
    planner: RefreshPlanner
    computer: Computer
    writer: RefreshWriter
    failures: FailurePolicy
    delta_sink: DeltaSink
    session: WriteSession
    leases_before: float

    def run(self, *, ignore_schedules: bool = True) -> None:
        run_tick(
            intake=Statements(self.lab),
            vouch=self.vouch,
            alterations=self.alterations,
            tables=self.tables,
            planner=self.planner,
            computer=self.computer,
            writer=self.writer,
            failures=self.failures,
            ignore_schedules=ignore_schedules,
        )

    def checkpointer(self, folder: Path) -> Checkpointer:
        """Make what writes checkpoints of all traces, with a manifest."""
        return Checkpointer(
            applier="test",
            store=TraceStore(self.lab.spark, str(folder)),
            catalog=self.failures.catalog,
            intake=cast(Intake, NoTopics()),
            traces=self.lab.traces,
            tables=self.tables,
            long_refreshes=self.computer.long_refreshes,
            long_writes=self.writer.long_writes,
            downstream=self.writer.downstream,
            delta_sink=self.delta_sink,
            catch_up=self.writer.catch_up_sinks,
            latest=self.writer.catch_up_sinks.checkpoint,
            last_tick=lambda: self.lab.now,
            tick_lock=threading.Lock(),
            settings=lambda: CheckpointSettings(1, 1_000_000),
            has_lost_history=lambda: False,
        )

    def maintenance(self) -> Maintenance:
        """Return what works beside these ticks."""
        return Maintenance(
            checkpointer=self.checkpointer(self.lab.folder),
            delta_sink=self.delta_sink,
            tables=self.tables,
            catalog=self.failures.catalog,
            tick_lock=threading.Lock(),
            settings=lambda: MaintenanceSettings(0.1, 3600, 1, 1),
            on_failure=lambda _: None,
        )

    def checkpoint(self) -> None:
        """Move the rows of all traces to their bases."""
        store = TraceStore(self.lab.spark, str(self.lab.folder))
        for trace in self.lab.traces:
            trace.rebase(store.append(trace, self.lab.now))

    def run_with_long(self) -> None:
        """Run a tick, wait for its long refreshes, and run others, which write them and take over what was written."""
        self.run()
        self.wait_for_long()
        self.run()
        self.wait_for_writes()
        self.run()

    def wait_for_long(self) -> None:
        """Wait until a long refresh is computed."""
        self._wait_for(self.computer.long_refreshes)

    def wait_for_writes(self) -> None:
        """Wait until a write beside the ticks has ended."""
        self._wait_for(self.writer.long_writes)

    def _wait_for(self, work: LongRefreshes | LongWrites) -> None:
        until = time.monotonic() + 240
        while work.has_any and not work.has_finished:
            assert time.monotonic() < until
            time.sleep(0.05)

    @property
    def topics(self) -> TopicSink:
        """The topics of these ticks, which were made with a publisher."""
        assert self.writer.downstream.topics is not None
        return self.writer.downstream.topics

    @property
    def leases(self) -> float:
        return (REGISTRY.get_sample_value("pg_trickle_open_leases") or 0.0) - self.leases_before

    def staged_tables(self) -> int:
        query = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s)"
        found = self.lab.connection.execute(query, (PREFIX,)).fetchone()
        return int(found[0]) if found else -1

    def statuses(self) -> dict[str, str]:
        rows = self.lab.connection.execute("SELECT pgt_name, status FROM pgtrickle.pgt_stream_tables").fetchall()
        return {str(name): str(status) for name, status in rows}

    def assert_all_closed(self) -> None:
        until = time.monotonic() + 20
        while self.staged_tables() and time.monotonic() < until:
            # The executors of a refresh that failed may still write parts.
            time.sleep(0.05)
        assert (self.leases, self.staged_tables()) == (0, 0)


@pytest.fixture
def make_ticks(
    open_laboratory: Callable[..., Laboratory], spark: SparkSession, database: str, tmp_path: Path
) -> Iterator[Callable[..., Ticks]]:
    lab = open_laboratory(
        "CREATE TABLE a (id int PRIMARY KEY, k int)",
        "CREATE TABLE b (id int PRIMARY KEY, k int, v int)",
        "INSERT INTO a SELECT i, 1 FROM generate_series(1, 20) i",
        "INSERT INTO b SELECT i, 1, 0 FROM generate_series(1, 20) i",
    )
    with ExitStack() as cleanup:

        def make(open_publisher: Callable[[], TopicPublisher] | None = None, *, max_errors: int = 1) -> Ticks:
            def session_database(lock_timeout_ms: int = 30_000) -> Database:
                opened = Database(database, prepare_write_session(lock_timeout_ms))
                cleanup.callback(opened.close)
                return opened

            catalog = Catalog(session_database())
            table_planner = StreamTablePlanner(session_database(), catalog, Thresholds(4, 5))
            scheduler = Scheduler(lambda: max_errors, Promises(alert=catalog.service.alert))
            tables = StreamTables(
                StreamTablePlans(table_planner),
                Readiness(catalog.sources, lab.traces),
                scheduler,
                Holds(catalog, lab.traces, lambda: 0),
            )
            sources = CapturedSources(catalog, lab.traces)
            fuses = Fuses(lab.traces, catalog.fuse_samples, lambda: 0.0)
            workers, long_workers, writers = (WorkerPool(lambda: 2, name) for name in ("compute", "long", "write"))
            for pool in (workers, long_workers, writers):
                cleanup.callback(pool.close)
            computer = Computer(
                spark=spark,
                traces=lab.traces,
                states=StateStore(spark),
                workers=workers,
                long_refreshes=LongRefreshes(long_workers, lambda: None),
                in_postgres=FullInPostgres(database, STAGED_ROWS),
                open_early_parts=lambda: EarlyParts(session_database(), lambda: 4096),
                staging=Staging(database, above=STAGED_ROWS),
            )
            delta_sink = DeltaSink(str(tmp_path / "delta"), database, STAGED_ROWS)
            downstream = Downstream(open_publisher, delta_sink)
            session = WriteSession(session_database(TICK_LOCK_TIMEOUT_MS))
            latest = LatestCheckpoint(Manifest(ORIGIN, {}, [], {}))

            def result_writer(session: WriteSession, confirm: Callable[[Cursor], None] | None = None) -> ResultWriter:
                sink = PostgresSink(session, lambda: 4096, STAGED_ROWS, confirm=confirm)
                return ResultWriter(sink, downstream, CommittedRows(session.database, STAGED_ROWS))

            results = result_writer(session)
            long_writes = LongWrites(
                writers,
                lambda: None,
                lambda confirm: result_writer(WriteSession(session_database()), confirm),
            )
            writer = RefreshWriter(
                results, long_writes, CatchUp(downstream, results.committed, computer, latest), catalog
            )
            return Ticks(
                lab=lab,
                vouch=Vouch(catalog, table_planner, tables.plans, sources),
                alterations=Alterations(catalog, session, table_planner, tables, computer, writer, sources, fuses),
                tables=tables,
                planner=RefreshPlanner(
                    lab.traces,
                    lambda: RefreshLimits(1.0, 100_000),
                    CostCache(lambda pgt_id: model_of(catalog.history.read_costs(pgt_id, COST_WINDOW)), lambda: 8),
                    fuses=fuses,
                ),
                computer=computer,
                writer=writer,
                failures=FailurePolicy(scheduler, catalog),
                delta_sink=delta_sink,
                session=session,
                leases_before=REGISTRY.get_sample_value("pg_trickle_open_leases") or 0.0,
            )

        yield make


def create(ticks: Ticks, **queries: str) -> None:
    for name, query in queries.items():
        ticks.lab.connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))


def change(ticks: Ticks) -> None:
    """Change rows of both sources: the delta of MANY has 400 rows, that of FEW two."""
    number = ticks.lab.now.value
    ticks.lab.change("b", "UPDATE b SET v = v + 1 WHERE id <= 10")
    ticks.lab.change("a", f"INSERT INTO a VALUES ({number + 1000}, 1)")
    ticks.lab.step()


def differences(ticks: Ticks) -> int:
    return ticks.lab.differences("few", FEW) + ticks.lab.differences("many", MANY)
