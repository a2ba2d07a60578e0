"""The rows of refreshes in; committed rows in PostgreSQL first, then the same deltas on the topic and in Delta, out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from applier.catalog.checkpoints import Manifest
from applier.catalog.history import RefreshExecution
from applier.errors import AnotherApplier, GroupCommitRefused, Infrastructure, TargetLocked
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.refresh import ChangedResult, RefreshResult, RefreshRows, group_by_range
from applier.refresh.strategy import RefreshMethod
from applier.sinks.delta import DeltaRows
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.postgres.sink import PostgresSink
from applier.sinks.staging.staged_delta import Delta
from shared_schema.errors import TrickleError
from shared_schema.lsn import ORIGIN, Lsn, LsnRange

log = logging.getLogger(__name__)


@dataclass
class WriteBack:
    """The deltas that each sink still has to receive. All of it can be lost: each sink knows its own frontier."""

    postgres: PostgresSink
    open_publisher: Callable[[], TopicPublisher] | None
    """None when publishing is switched off."""
    delta_sink: DeltaSink | None
    manifest: Manifest
    """The last checkpoint, with the frontiers of the sinks at that time."""
    publisher: TopicPublisher | None = None
    caught_up: set[int] = field(default_factory=set)
    unpublished: list[tuple[StreamTable, DeltaRows]] = field(default_factory=list)
    building: set[int] = field(default_factory=set)
    """Stream tables that are built to replace another one: until then only PostgreSQL receives their rows."""

    def is_drained(self, tables: Iterable[int]) -> bool:
        """Whether every sink has received every delta."""
        sink = self.delta_sink
        return not self.unpublished and (sink is None or all(sink.is_idle(table_id) for table_id in tables))

    # -- after a start --------------------------------------------------------------------------------------------

    def catch_up(
        self, table: StreamTable, at: Lsn, compute: Callable[[StreamTable, LsnRange], DeltaRows | None]
    ) -> None:
        """Give the topic and Delta the deltas that they missed in the last run; `at` is PostgreSQL's frontier."""
        if table.id in self.caught_up or table.id in self.building:
            return
        lagging: dict[Lsn, list[str]] = {}
        for sink, durable in self.durable_frontiers(table, wait=True).items():
            lagging.setdefault(self._missing_since(table, sink, durable, at), []).append(sink)
        for since, sinks in lagging.items():
            for delta in self._missed_deltas(table, LsnRange(since, max(since, at)), compute):
                self._enqueue(table, delta, sinks)
                # PostgreSQL has it already.
                delta.release()
        self.caught_up.add(table.id)

    def durable_frontiers(self, table: StreamTable, *, wait: bool = False) -> dict[str, Lsn]:
        """Return the frontier of the stream table in each sink after PostgreSQL; `wait` for a write in progress."""
        frontiers: dict[str, Lsn] = {}
        if publisher := self.current_publisher():
            frontiers["topic"] = publisher.frontier(table)
        if self.delta_sink:
            read_frontier = self.delta_sink.await_frontier if wait else self.delta_sink.frontier
            frontiers["delta"] = read_frontier(table)
        return frontiers

    def _missing_since(self, table: StreamTable, sink: str, durable: Lsn, at: Lsn) -> Lsn:
        """Return the LSN from which on a sink lacks deltas; `at` or later when it lacks none."""
        if durable > at:
            raise AnotherApplier(
                f"the {sink} sink of {table} stands at {durable}, beyond PostgreSQL's {at}",
                hint="was the database restored from a backup? drop the stream table and create it again",
            )
        # The rows did not change between a sink's last commit and the checkpoint that recorded it.
        recorded = self.manifest.sinks.get(str(table.id), {}).get(sink)
        since = max(durable, self.manifest.frontier) if recorded == str(durable) and durable else durable
        if since < at:
            log.info("sink catches up", extra={"table": str(table), "sink": sink, "since": str(since), "to": str(at)})
        return since

    def _missed_deltas(
        self, table: StreamTable, lsn_range: LsnRange, compute: Callable[[StreamTable, LsnRange], DeltaRows | None]
    ) -> list[DeltaRows]:
        """Return the deltas of the range: those of the outbox, which cannot be computed again, then a computed one."""
        if lsn_range.lower >= lsn_range.upper:
            return []
        if isinstance(table.plan, PostgresQuery) and not lsn_range.lower:
            return [self.postgres.target_rows(table, lsn_range)]
        pending: list[DeltaRows] = [*self.postgres.pending_deltas(table, lsn_range.lower)] if lsn_range.lower else []
        since = max([lsn_range.lower, *(delta.lsn_range.upper for delta in pending)])
        # Every delta that PostgreSQL computed is in the outbox.
        if since >= lsn_range.upper or isinstance(table.plan, PostgresQuery):
            return pending
        last = compute(table, LsnRange(since, lsn_range.upper))
        if last is not None and last.is_fill:
            # It holds all rows, also those of the outbox.
            return [last]
        return [*pending, last] if last is not None else pending

    # -- a refresh ------------------------------------------------------------------------------------------------

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> Delta:
        """Commit the rows in PostgreSQL, then queue the delta for the other sinks. Return the delta."""
        table = result.refresh.table
        with self._forget_on_failure(table.id), _release_after(rows):
            delta = self._write_postgres(result, rows)
            self.hand_to_sinks(table, delta, release=delta is not rows)
        return delta

    def group_commit(
        self, changed: Sequence[ChangedResult], unchanged: Sequence[RefreshResult]
    ) -> tuple[list[tuple[RefreshResult, Delta]], list[ChangedResult]]:
        """Write several refreshes in one transaction of PostgreSQL.

        Return the written deltas, and the changes that PostgreSQL rejected: writing those alone tells why. Raise
        GroupCommitRefused when it accepted none.
        """
        written: list[tuple[RefreshResult, Delta, bool]] = []
        rejected: list[ChangedResult] = []
        with ExitStack() as forget_on_failure:
            for result, _ in changed:
                forget_on_failure.enter_context(self._forget_on_failure(result.refresh.table.id))
            with self.postgres.group_commit():
                for result, rows in changed:
                    try:
                        delta = self._write_postgres(result, rows)
                        written.append((result, delta, delta is not rows))
                    except (Infrastructure, GroupCommitRefused, TargetLocked):
                        raise
                    except TrickleError:
                        rejected.append((result, rows))
                for lsn_range, group in group_by_range(unchanged).items():
                    self.postgres.advance([d.refresh.table.id for d in group], lsn_range, group[0].refresh.as_of)
        for result, delta, release in written:
            self.hand_to_sinks(result.refresh.table, delta, release=release)
        return [(result, delta) for result, delta, _ in written], rejected

    def _write_postgres(self, result: RefreshResult, rows: RefreshRows) -> Delta:
        """Write the rows into PostgreSQL; return the delta that the other sinks need."""
        table, as_of = result.refresh.table, result.refresh.as_of
        if isinstance(rows, FullResult) and rows.change is not None:
            self.postgres.replace(table, rows, as_of, result.execution).release()
            return rows.change
        if isinstance(rows, FullResult) or (
            result.refresh.strategy.method is RefreshMethod.IN_POSTGRES and not rows.is_fill
        ):
            return self.replace(table, rows, as_of, result.execution)
        self.postgres.apply(table, rows, as_of, result.execution)
        return rows

    def hand_to_sinks(self, table: StreamTable, delta: Delta, *, release: bool) -> None:
        """Queue a delta that PostgreSQL has committed for the other sinks; `release` it when the caller needs it no
        more: PostgreSQL itself found the difference."""
        self._enqueue(table, delta)
        if release:
            delta.release()
        self.caught_up.add(table.id)

    def replace(
        self, table: StreamTable, rows: Delta | FullResult, as_of: datetime, execution: RefreshExecution
    ) -> Delta:
        """Write only the rows that differ; the outbox holds the difference until all sinks have it.

        A full result cannot be computed again from an LSN range, so nothing else would remember it.
        """
        queued: list[DeltaRows] = [d for t, d in self.unpublished if t.id == table.id]
        if self.delta_sink:
            queued += self.delta_sink.queued_deltas(table.id)
        durable = self.durable_frontiers(table)
        return self.postgres.replace(
            table,
            rows,
            as_of,
            execution,
            also_enqueue=list({d.lsn_range: d for d in queued}.values()),
            acknowledged=min(durable.values(), default=ORIGIN) if durable else None,
        )

    def _enqueue(self, table: StreamTable, delta: DeltaRows, sinks: Sequence[str] = ("topic", "delta")) -> None:
        if table.id in self.building:
            return
        if "topic" in sinks and self.open_publisher:
            delta.retain()
            self.unpublished.append((table, delta))
        if "delta" in sinks and self.delta_sink:
            delta.retain()
            self.delta_sink.add(table, delta)

    def publish(self) -> None:
        """Publish all queued deltas in one Kafka transaction; when it fails they stay queued."""
        if not self.unpublished or (publisher := self.current_publisher()) is None:
            return
        pending = [(t, d) for t, d in self.unpublished if publisher.frontier(t) < d.lsn_range.upper]
        try:
            publisher.publish(pending)
        except Infrastructure:
            # A new publisher finds out whether the transaction was committed after all.
            self.publisher = None
            raise
        for _, delta in self.unpublished:
            delta.release()
        self.unpublished.clear()

    def current_publisher(self) -> TopicPublisher | None:
        """Return the publisher, opened again after a failure; None when publishing is switched off."""
        if self.publisher is None and self.open_publisher is not None:
            self.publisher = self.open_publisher()
        return self.publisher

    @contextmanager
    def _forget_on_failure(self, table_id: int) -> Iterator[None]:
        """A commit that seems to fail may have arrived: then the next tick reads the frontiers of the sinks again."""
        try:
            yield
        except Infrastructure:
            self.forget(table_id)
            raise

    def forget(self, table_id: int) -> None:
        """Drop what is queued for a stream table; its next refresh reads the frontiers of the sinks again."""
        self.caught_up.discard(table_id)
        for table, delta in self.unpublished:
            if table.id == table_id:
                delta.release()
        self.unpublished = [(t, d) for t, d in self.unpublished if t.id != table_id]
        if self.delta_sink:
            self.delta_sink.forget(table_id)


@contextmanager
def _release_after(rows: RefreshRows) -> Iterator[None]:
    """Release PostgreSQL's hold on the rows; when PostgreSQL fails, no other sink will read them: release all holds."""
    try:
        yield
    except BaseException:
        rows.release(all_holders=True)
        raise
    rows.release()
