"""A stream table and PostgreSQL's frontier in; the deltas that the topic and Delta missed in the last run out."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from applier.catalog.checkpoints import Manifest
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import SinkAhead
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.method.strategy import cannot_repair
from applier.sinks.delta import ComputedDelta, Delta
from applier.sinks.downstream import Downstream
from applier.sinks.postgres.committed_rows import CommittedRows
from shared_schema.lsn import ORIGIN, Lsn, LsnRange

log = logging.getLogger(__name__)


class PastDeltas(Protocol):
    """Computes deltas over past ranges."""

    def can_recompute(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        """Whether the traces still hold the sources at both ends of the range."""

    def recompute(self, table: StreamTable, lsn_range: LsnRange) -> ComputedDelta | None:
        """Compute the delta over the range; None when it is empty."""

    def result_schema(self, table: StreamTable, lsn_range: LsnRange) -> pa.Schema:
        """Return the Arrow schema of the rows as Spark computes them."""


@dataclass
class LatestCheckpoint:
    """The manifest of the last checkpoint, with the frontiers of the sinks at that time."""

    manifest: Manifest

    def move_to(self, manifest: Manifest) -> None:
        """Note a new checkpoint."""
        self.manifest = manifest


@dataclass
class CatchUp:
    """Gives each sink what it missed, once per stream table and run, and again after a commit in doubt."""

    downstream: Downstream
    committed: CommittedRows
    past: PastDeltas
    checkpoint: LatestCheckpoint

    def run(self, row: StreamTableRow, table: StreamTable) -> None:
        """Queue the deltas that the sinks missed up to PostgreSQL's frontier; those of the topic only when its frontier
        is known, in this tick or a later one.

        A stream table that is built to replace another one has no other sinks yet, a canary never has any; and one
        whose sinks hold other rows than PostgreSQL is about to give them all rows.
        """
        if row.canary_of is not None:
            # Nothing is kept for sinks that never receive it.
            self.downstream.followed.leave_out(table.id)
        if not self.downstream.followed.unfollowed_sinks(table.id) or row.is_trial or row.sinks_differ:
            return
        try:
            # Followed before anything is computed: a failure of another thread after that begins all of this again.
            self._queue_missed(row, table, self.downstream.follow_from(table))
        except BaseException:
            self.downstream.forget(table.id)
            raise

    def _queue_missed(self, row: StreamTableRow, table: StreamTable, frontiers: dict[str, Lsn]) -> None:
        at = row.lsn
        lagging: dict[Lsn, list[str]] = {}
        for sink, durable in frontiers.items():
            lagging.setdefault(self._missing_since(table, sink, durable, at), []).append(sink)
        for since, sinks in lagging.items():
            with ExitStack() as leases:
                missed = self._missed_deltas(row, table, LsnRange(since, max(since, at)))
                for delta in missed:
                    leases.enter_context(delta.lease())
                for delta in missed:
                    self.downstream.add(table, delta, sinks)

    def lacks_since(self, table: StreamTable) -> Lsn | None:
        """Return the LSN from which on a sink may lack deltas that nobody has queued; None when there are none."""
        sinks = self.downstream.followed.unfollowed_sinks(table.id)
        frontiers = {sink: self.downstream.sinks[sink].frontier(table) for sink in sinks}
        return min(
            (
                self.checkpoint.manifest.frontier if durable is None else self._durable_until(table, sink, durable)
                for sink, durable in frontiers.items()
            ),
            default=None,
        )

    def _missing_since(self, table: StreamTable, sink: str, durable: Lsn, at: Lsn) -> Lsn:
        """Return the LSN from which on a sink lacks deltas; `at` or later when it lacks none."""
        if durable > at:
            raise SinkAhead(
                f"the {sink} sink of {table} stands at {durable}, beyond PostgreSQL's {at}",
                hint="was the database restored? stop pg-trickle-cdc and run `pg-trickle-cdc resync --restored`",
            )
        since = self._durable_until(table, sink, durable)
        if since < at:
            log.info("sink catches up", extra={"table": str(table), "sink": sink, "since": str(since), "to": str(at)})
        return since

    def _durable_until(self, table: StreamTable, sink: str, durable: Lsn) -> Lsn:
        """Return the LSN up to which a sink has all rows: without changes it writes no frontier."""
        # The rows did not change between a sink's last commit and the checkpoint that recorded it.
        manifest = self.checkpoint.manifest
        recorded = manifest.sinks.get(str(table.id), {}).get(sink)
        return max(durable, manifest.frontier) if recorded == str(durable) and durable else durable

    def _missed_deltas(self, row: StreamTableRow, table: StreamTable, lsn_range: LsnRange) -> list[Delta]:
        """Return the deltas of the range: those of the outbox, which cannot be computed again, then a computed one."""
        if lsn_range.lower >= lsn_range.upper:
            return []
        if isinstance(table.plan, PostgresQuery) and not lsn_range.lower:
            return [self.committed.target_rows(table, lsn_range)]
        pending: list[Delta] = [*self.committed.pending_deltas(table, lsn_range.lower)] if lsn_range.lower else []
        if any(delta.is_fill for delta in pending):
            return [self._all_rows(table, lsn_range.upper)]
        since = max([lsn_range.lower, *(delta.lsn_range.upper for delta in pending)])
        # Every delta that PostgreSQL computed is in the outbox.
        if since >= lsn_range.upper or isinstance(table.plan, PostgresQuery):
            return pending
        last = self._compute_missed(row, table, LsnRange(since, lsn_range.upper))
        if last is not None and last.is_fill:
            # It holds all rows, also those of the outbox.
            return [last]
        return [*pending, last] if last is not None else pending

    def _compute_missed(self, row: StreamTableRow, table: StreamTable, lsn_range: LsnRange) -> ComputedDelta | None:
        """Compute the delta over a past range; return all rows of PostgreSQL where the traces no longer hold it."""
        # Before a repair the plan may be another one than that of the committed rows.
        if not row.reinitializes and self.past.can_recompute(table, lsn_range):
            return self.past.recompute(table, lsn_range)
        if row.partial:
            raise cannot_repair()
        return self._all_rows(table, lsn_range.upper)

    def _all_rows(self, table: StreamTable, frontier: Lsn) -> ComputedDelta:
        """Return all rows of PostgreSQL, as for sinks that have none."""
        all_rows = LsnRange(ORIGIN, frontier)
        is_planned = not isinstance(table.plan, PostgresQuery)
        return self.committed.target_rows(
            table, all_rows, self.past.result_schema(table, all_rows) if is_planned else None
        )
