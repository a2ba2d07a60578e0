"""The three places a stream table is kept: PostgreSQL leads, the topic and Delta follow and never miss anything."""

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
    """What is owed to whom. Everything here can be lost: the sinks themselves know where they stand."""

    postgres: PostgresSink
    open_publisher: Callable[[], TopicPublisher] | None
    """None when nothing is to be published."""
    delta_sink: DeltaSink | None
    manifest: Manifest
    """The last checkpoint: where the sinks stood then."""
    publisher: TopicPublisher | None = None
    caught_up: set[int] = field(default_factory=set)
    unpublished: list[tuple[StreamTable, DeltaRows]] = field(default_factory=list)
    building: set[int] = field(default_factory=set)
    """Stream tables that are built to take another one's place: until then no sink but PostgreSQL hears of them."""

    def settled(self, tables: Iterable[int]) -> bool:
        """Whether every sink has everything."""
        sink = self.delta_sink
        return not self.unpublished and (sink is None or all(sink.idle(table_id) for table_id in tables))

    # -- after a start --------------------------------------------------------------------------------------------

    def catch_up(
        self, table: StreamTable, at: Lsn, compute: Callable[[StreamTable, LsnRange], DeltaRows | None]
    ) -> None:
        """Give the topic and Delta what they missed when the last run ended; `at` is PostgreSQL's frontier."""
        if table.id in self.caught_up or table.id in self.building:
            return
        behind: dict[Lsn, list[str]] = {}
        for sink, durable in self.durable(table, wait=True).items():
            behind.setdefault(self._since(table, sink, durable, at), []).append(sink)
        for since, sinks in behind.items():
            for delta in self._missed(table, LsnRange(since, max(since, at)), compute):
                self._hand_on(table, delta, sinks)
                # PostgreSQL has it.
                delta.release()
        self.caught_up.add(table.id)

    def durable(self, table: StreamTable, *, wait: bool = False) -> dict[str, Lsn]:
        """Up to where each sink behind PostgreSQL has the stream table; `wait` for what is being written."""
        frontiers: dict[str, Lsn] = {}
        if publisher := self.current_publisher():
            frontiers["topic"] = publisher.frontier(table)
        if self.delta_sink:
            ask = self.delta_sink.settled_frontier if wait else self.delta_sink.frontier
            frontiers["delta"] = ask(table)
        return frontiers

    def _since(self, table: StreamTable, sink: str, durable: Lsn, at: Lsn) -> Lsn:
        """From where a sink misses something; it may be up to date."""
        if durable > at:
            raise AnotherApplier(
                f"the {sink} sink of {table} stands at {durable}, beyond PostgreSQL's {at}",
                hint="was the database restored from a backup? drop the stream table and create it again",
            )
        # Nothing changed between a sink's last commit and the checkpoint that recorded it.
        recorded = self.manifest.sinks.get(str(table.id), {}).get(sink)
        since = max(durable, self.manifest.frontier) if recorded == str(durable) and durable else durable
        if since < at:
            log.info("sink catches up", extra={"table": str(table), "sink": sink, "since": str(since), "to": str(at)})
        return since

    def _missed(
        self, table: StreamTable, lsn_range: LsnRange, compute: Callable[[StreamTable, LsnRange], DeltaRows | None]
    ) -> list[DeltaRows]:
        """What happened in between: what was kept because it cannot be computed again, then what can."""
        if lsn_range.lower >= lsn_range.upper:
            return []
        if isinstance(table.plan, PostgresQuery) and not lsn_range.lower:
            return [self.postgres.target_rows(table, lsn_range)]
        kept: list[DeltaRows] = [*self.postgres.pending_deltas(table, lsn_range.lower)] if lsn_range.lower else []
        since = max([lsn_range.lower, *(delta.lsn_range.upper for delta in kept)])
        # Everything that PostgreSQL computed is kept.
        if since >= lsn_range.upper or isinstance(table.plan, PostgresQuery):
            return kept
        last = compute(table, LsnRange(since, lsn_range.upper))
        if last is not None and last.is_fill:
            # Everything there is; what was kept is part of it.
            return [last]
        return [*kept, last] if last is not None else kept

    # -- a refresh ------------------------------------------------------------------------------------------------

    def write_back(self, result: RefreshResult, rows: RefreshRows) -> Delta:
        """PostgreSQL first: from its commit on the difference is owed to the others. Returns the difference."""
        table = result.refresh.table
        with self._asking_again(table.id), _released(rows):
            delta = self._into_postgres(result, rows)
            self.written(table, delta, found=delta is not rows)
        return delta

    def group_commit(
        self, changed: Sequence[ChangedResult], unchanged: Sequence[RefreshResult]
    ) -> tuple[list[tuple[RefreshResult, Delta]], list[ChangedResult]]:
        """In one transaction of PostgreSQL: the differences written, and the changes it refused, for somebody to ask
        why. NotTogether when it took none."""
        written: list[tuple[RefreshResult, Delta, bool]] = []
        refused: list[ChangedResult] = []
        with ExitStack() as asking_again:
            for result, _ in changed:
                asking_again.enter_context(self._asking_again(result.refresh.table.id))
            with self.postgres.group_commit():
                for result, rows in changed:
                    try:
                        delta = self._into_postgres(result, rows)
                        written.append((result, delta, delta is not rows))
                    except (Infrastructure, GroupCommitRefused, TargetLocked):
                        raise
                    except TrickleError:
                        refused.append((result, rows))
                for lsn_range, group in group_by_range(unchanged).items():
                    self.postgres.advance([d.refresh.table.id for d in group], lsn_range, group[0].refresh.as_of)
        for result, delta, found in written:
            self.written(result.refresh.table, delta, found=found)
        return [(result, delta) for result, delta, _ in written], refused

    def _into_postgres(self, result: RefreshResult, rows: RefreshRows) -> Delta:
        """Returns what the other sinks are owed."""
        table, as_of = result.refresh.table, result.refresh.as_of
        if isinstance(rows, FullResult) and rows.change is not None:
            self.postgres.replace(table, rows, as_of, result.executed).release()
            return rows.change
        if isinstance(rows, FullResult) or (
            result.refresh.strategy.method is RefreshMethod.IN_POSTGRES and not rows.is_fill
        ):
            return self.replace(table, rows, as_of, result.executed)
        self.postgres.apply(table, rows, as_of, result.executed)
        return rows

    def written(self, table: StreamTable, delta: Delta, *, found: bool) -> None:
        """A difference is committed in PostgreSQL: from now on it is owed to the others, and, where it was found only
        there, to nobody else."""
        self._hand_on(table, delta)
        if found:
            delta.release()
        self.caught_up.add(table.id)

    def replace(
        self, table: StreamTable, rows: Delta | FullResult, as_of: datetime, executed: RefreshExecution
    ) -> Delta:
        """Only rows that differ reach any of the sinks; what differs is kept until all of them have it.

        A whole result cannot be computed again from a window, so nothing else would remember it.
        """
        waiting: list[DeltaRows] = [d for t, d in self.unpublished if t.id == table.id]
        if self.delta_sink:
            waiting += self.delta_sink.waiting(table.id)
        durable = self.durable(table)
        return self.postgres.replace(
            table,
            rows,
            as_of,
            executed,
            also_owed=list({d.lsn_range: d for d in waiting}.values()),
            settled=min(durable.values(), default=ORIGIN) if durable else None,
        )

    def _hand_on(self, table: StreamTable, delta: DeltaRows, sinks: Sequence[str] = ("topic", "delta")) -> None:
        if table.id in self.building:
            return
        if "topic" in sinks and self.open_publisher:
            delta.retain()
            self.unpublished.append((table, delta))
        if "delta" in sinks and self.delta_sink:
            delta.retain()
            self.delta_sink.add(table, delta)

    def publish(self) -> None:
        """One Kafka transaction; what could not be published stays owed."""
        if not self.unpublished or (publisher := self.current_publisher()) is None:
            return
        owed = [(t, d) for t, d in self.unpublished if publisher.frontier(t) < d.lsn_range.upper]
        try:
            publisher.publish(owed)
        except Infrastructure:
            # A new one finds out whether the transaction was committed after all.
            self.publisher = None
            raise
        for _, delta in self.unpublished:
            delta.release()
        self.unpublished.clear()

    def current_publisher(self) -> TopicPublisher | None:
        """The publisher in use, opened again after it failed; None when nothing is to be published."""
        if self.publisher is None and self.open_publisher is not None:
            self.publisher = self.open_publisher()
        return self.publisher

    @contextmanager
    def _asking_again(self, table_id: int) -> Iterator[None]:
        """A commit that failed may have arrived: then the next tick asks the sinks themselves where they stand."""
        try:
            yield
        except Infrastructure:
            self.ask_again(table_id)
            raise

    def ask_again(self, table_id: int) -> None:
        """Forget what is believed about a stream table."""
        self.caught_up.discard(table_id)
        for table, delta in self.unpublished:
            if table.id == table_id:
                delta.release()
        self.unpublished = [(t, d) for t, d in self.unpublished if t.id != table_id]
        if self.delta_sink:
            self.delta_sink.forget(table_id)


@contextmanager
def _released(rows: RefreshRows) -> Iterator[None]:
    """PostgreSQL is one of the readers; where it fails nobody else will read."""
    try:
        yield
    except BaseException:
        rows.release(all_holders=True)
        raise
    rows.release()
