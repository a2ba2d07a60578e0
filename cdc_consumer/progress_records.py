"""Builds the progress records of one slot: the new frontier, the server it belongs to, and where the topics end.

A record names what changed since the last checkpoint. A checkpoint, which names everything, is written when the records
would become long, when many of them follow it, and first of all after a start.
"""

from __future__ import annotations

from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.resume import StartingPoint
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Delivered
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.captures import Captures
from shared_schema.checkpoints import cut_checkpoint
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Checkpoint, CheckpointPlace, CommitPart, LastCommit, Offsets, Progress
from shared_schema.table_schema import TableId

MIN_CHANGES, CHANGES_SHARE = 200, 32
"""A checkpoint is due when a record names more than MIN_CHANGES things, and more than this share of all of them: then
records and checkpoints take about the same room if each transaction writes to other tables."""

MAX_CAPTURE_BYTES = 50_000
"""A checkpoint is also due when the captures in a record are this long: many columns, or many leaf partitions."""

CHECKPOINT_RECORDS = 5_000
"""A reader begins at a checkpoint, so it reads at most so many records more than it needs."""


class ProgressRecords:
    """Continues the stored progress of a slot."""

    def __init__(
        self,
        settings: ConsumerSettings,
        point: StartingPoint,
        stored: Progress | None,
        schema_versions: SchemaVersions,
        *,
        captures: Captures,
        tables: CapturedTables,
    ) -> None:
        self._settings = settings
        self._point = point
        self._schema_versions = schema_versions
        self._captures = captures
        self._tables = tables
        self._last_commit = stored.last_commit if stored else None
        self._control_end = stored.control_end if stored else 0
        self._ends: Offsets = {t: dict(partitions) for t, partitions in stored.end_offsets.items()} if stored else {}
        self._schemas = dict(stored.schemas) if stored else {}
        self._unsettled: set[int] = set()
        """Relations whose schema version may have changed since the last record."""
        self._place: CheckpointPlace | None = None
        self._records = 0
        self._new_ends: Offsets = {}
        self._new_schemas: dict[int, str] = {}
        self._new_captures: dict[TableId, Capture] = {}
        self._capture_bytes = 0

    def build(
        self,
        frontier: Lsn,
        written: Lsn,
        delivered: Delivered,
        *,
        captured: tuple[Capture, ...],
        last: Begin | None,
        part: CommitPart | None,
    ) -> tuple[list[Checkpoint], Progress]:
        """Return the progress record of a transaction and the checkpoint to be written before it, if one is due.

        `captured` are the captures in the transaction, `last` is the last whole commit, `part` the written part of the
        next one.
        """
        if last is not None:
            self._last_commit = LastCommit(last.commit_lsn, last.xid, last.commit_ts_us, self._settings.publications)
        self._control_end = delivered.control_end or self._control_end
        self._note_offsets(delivered.end_offsets)
        self._note_schemas(is_cut=part is not None)
        self.note_captures(captured)
        checkpoint = self._cut_checkpoint(delivered.progress_end)
        self._records += 1
        is_whole = self._place is None
        return checkpoint, Progress(
            self._settings.slot,
            self._point.server.system_id,
            self._point.server.timeline,
            self._point.slot_lsn,
            frontier,
            self._ends if is_whole else self._new_ends,
            self._last_commit,
            control_end=self._control_end,
            schemas=self._captured_schemas() if is_whole else self._new_schemas,
            part=part,
            written=written if written > frontier else None,
            unfinished=self._captures.unfinished,
            checkpoint=self._place,
            captures=() if is_whole else tuple(self._new_captures.values()),
        )

    def note_captures(self, captured: tuple[Capture, ...]) -> None:
        """Take over captures whose records are written."""
        self._new_captures |= {capture.table: capture for capture in captured}
        self._capture_bytes += sum(len(capture.encode()) for capture in captured)

    def _note_offsets(self, ends: Offsets) -> None:
        for topic, partitions in ends.items():
            self._ends.setdefault(topic, {}).update(partitions)
            self._new_ends.setdefault(topic, {}).update(partitions)

    def _note_schemas(self, *, is_cut: bool) -> None:
        """Take over new schema versions; those of a commit that is not complete stay unsettled."""
        versions = self._schema_versions
        self._unsettled |= versions.take_recorded()
        if not self._unsettled:
            return
        known = versions.fingerprints_before if is_cut else versions.fingerprints
        for relid in [relid for relid in self._unsettled if self._captures.is_captured(relid)]:
            written = known.get(relid)
            if written is not None and written != self._schemas.get(relid):
                self._schemas[relid] = self._new_schemas[relid] = written
            if not is_cut:
                self._unsettled.discard(relid)

    def _captured_schemas(self) -> dict[int, str]:
        return {relid: written for relid, written in self._schemas.items() if self._captures.is_captured(relid)}

    def _cut_checkpoint(self, progress_end: int | None) -> list[Checkpoint]:
        """Return the parts of a checkpoint if one is due; none if the sink stores progress otherwise."""
        if progress_end is None or not self._is_checkpoint_due():
            return []
        captures = {**self._tables.recorded, **self._new_captures}
        parts = cut_checkpoint(
            self._settings.slot, progress_end, self._ends, self._captured_schemas(), captures.values()
        )
        self._place, self._records = CheckpointPlace(progress_end, len(parts)), 0
        self._new_ends, self._new_schemas, self._new_captures, self._capture_bytes = {}, {}, {}, 0
        return parts

    def _is_checkpoint_due(self) -> bool:
        if self._place is None or self._records >= CHECKPOINT_RECORDS or self._capture_bytes > MAX_CAPTURE_BYTES:
            return True
        new = len(self._new_schemas) + len(self._new_captures) + sum(map(len, self._new_ends.values()))
        if new <= MIN_CHANGES:
            return False
        named = 2 * len(self._tables.recorded) + sum(map(len, self._ends.values()))
        return new * CHANGES_SHARE > named
