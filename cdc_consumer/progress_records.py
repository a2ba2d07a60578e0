"""Builds the progress records of one slot: the new frontier, the server it belongs to, and where the topics end."""

from __future__ import annotations

from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.resume import StartingPoint
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Delivered
from cdc_consumer.snapshot.captures import Captures
from shared_schema.lsn import Lsn
from shared_schema.progress import CommitPart, LastCommit, Progress, later_offsets


class ProgressRecords:
    """Continues the stored progress of a slot: every record names all partitions, because compaction removes others."""

    def __init__(
        self,
        settings: ConsumerSettings,
        point: StartingPoint,
        stored: Progress | None,
        schema_versions: SchemaVersions,
        captures: Captures,
    ) -> None:
        self._settings = settings
        self._point = point
        self._schema_versions = schema_versions
        self._captures = captures
        self._last_commit = stored.last_commit if stored else None
        self._stored_offsets = stored.end_offsets if stored else {}
        self._stored_control_end = stored.control_end if stored else 0

    def build(
        self, frontier: Lsn, written: Lsn, delivered: Delivered, last: Begin | None, part: CommitPart | None
    ) -> Progress:
        """Return the record of a transaction; `last` is the last whole commit, `part` the written part of the next."""
        versions, publications = self._schema_versions, self._settings.publications
        if last is not None:
            self._last_commit = LastCommit(last.commit_lsn, last.xid, last.commit_ts_us, publications)
        fingerprints = versions.fingerprints_before if part else versions.fingerprints
        return Progress(
            self._settings.slot,
            self._point.server.system_id,
            self._point.server.timeline,
            self._point.slot_lsn,
            frontier,
            later_offsets(self._stored_offsets, delivered.end_offsets),
            self._last_commit,
            control_end=delivered.control_end or self._stored_control_end,
            schemas={r: f for r, f in fingerprints.items() if self._captures.is_captured(r)},
            part=part,
            written=written if written > frontier else None,
        )
