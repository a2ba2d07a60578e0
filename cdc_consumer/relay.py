"""The main loop: takes frames of the replication stream, writes change rows and whole commits to the sink, and
acknowledges to the server what is durable.
"""

from __future__ import annotations

import logging
import time
from typing import assert_never

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.initial_copy import InitialCopy
from cdc_consumer.pgoutput.decoder import decode
from cdc_consumer.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    TypeName,
    Update,
)
from cdc_consumer.ports import Ports
from cdc_consumer.resume import StartingPoint
from cdc_consumer.rows import TransactionRows
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.frames import Keepalive, XLogData, decode_frame, has_kind
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.history import HistoryCheck
from shared_schema.change_row import Stamp
from shared_schema.control import LogMessage
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.progress import CommitPart, Progress

log = logging.getLogger(__name__)

MESSAGE_PREFIX = "pg_trickle"
"""Prefix of this project's own logical messages: wake-ups, and `capture…` after tables were added to a publication."""

ROW_KINDS = b"IUD"

FEW_FRAMES, GATHER_S = 32, 0.0005
"""The server flushes every message separately. After fewer frames than this the loop pauses for GATHER_S, so that the
next read returns enough frames to be worth its system calls."""


class Relay:
    """Moves the stream of one slot to the sink."""

    def __init__(
        self,
        settings: ConsumerSettings,
        point: StartingPoint,
        frontier: Frontier,
        ports: Ports,
        progress: Progress | None,
        *,
        is_new_slot: bool,
    ) -> None:
        self._settings = settings
        self._history = HistoryCheck(progress, point.begins_at) if progress else None
        """None once the stream has passed everything that was published before the start."""
        self._frontier = frontier
        self._ports = ports
        self._batcher = TransactionBatcher(settings, point, frontier, ports, progress)
        self._initial_copy = InitialCopy(settings, frontier, ports, self._batcher, is_new_slot=is_new_slot)
        self._rows = TransactionRows(
            ports.routes, ports.schema_versions, ports.sink, ports.metrics, self._resumable_part(progress)
        )
        self._is_cut = False
        """Whether a first part of the open source transaction is already published."""

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Run one round of the loop: receive frames, publish what is due, report to the server."""
        ports, initial_copy = self._ports, self._initial_copy
        wait_s = 0.0 if initial_copy.is_active else self._batcher.wait_s()
        frames = [] if initial_copy.is_full else ports.receiver.take(self._settings.wal_max_changes_per_poll, wait_s)
        if frames:
            self._decode(frames)
            self._cut_if_long()
        if 0 < len(frames) < FEW_FRAMES:
            time.sleep(GATHER_S)
        ports.sink.poll()
        ports.captures.check()
        export = ports.captures.export
        if export is not None and self._frontier.arrived(export.at):
            initial_copy.begin(export)
        initial_copy.run_step(idle=not frames)
        self._batcher.publish_if_due()
        ports.metrics.settled = ports.metrics.settled or (ports.captures.settled and ports.captures.export is None)
        ports.feedback.send_if_due()

    def _decode(self, frames: list[bytes]) -> None:
        started, metrics = time.perf_counter(), self._ports.metrics
        at, encode_frames = 0, self._rows.encode_frames
        while at < len(frames):
            frame = frames[at]
            done = encode_frames(frames, at) if has_kind(frame, ROW_KINDS) else 0
            if not done:
                self._handle_frame(frame)
            at += done or 1
        self._batcher.batch.rows += self._rows.take_count()
        self._batcher.batch.began_at = self._batcher.batch.began_at or time.monotonic()
        metrics.messages.inc(len(frames))
        metrics.last_message.set(time.time())
        metrics.poll_seconds.observe(time.perf_counter() - started)

    def finish(self) -> None:
        """Publish the whole commits received so far.

        If a source transaction is open, publish nothing: the server sends everything again after a restart.
        """
        if self._frontier.open_commit is not None or not self._batcher.publish_received():
            self._ports.sink.abort()
        self._ports.feedback.send()

    def close(self) -> None:
        """Cancel the initial copy that is running, if there is one."""
        self._initial_copy.close()

    # -- frames and messages ----------------------------------------------------------------------------------------

    def _handle_frame(self, data: bytes) -> None:
        match frame := decode_frame(data):
            case XLogData(payload=payload):
                self._handle_message(decode(payload))
            case Keepalive(position=position, reply_requested=status_requested):
                if self._history is not None:
                    self._history.reach(position)
                self._frontier.reach(position)
                if status_requested:
                    self._ports.feedback.send()
                    self._batcher.status_requested = True
            case _:
                assert_never(frame)

    def _handle_message(self, message: Message) -> None:
        match message:
            case Insert() | Update() | Delete():
                self._rows.split(message)
            case Begin():
                self._begin(message)
            case Commit():
                self._commit(message)
            case Truncate(relids=relids):
                for relid in relids:
                    self._rows.truncate(relid)
            case Relation():
                self._ports.routes.describe(message)
                self._rows.close_writers()
            case LogicalMessage():
                self._handle_logical_message(message)
            case TypeName() | Origin():
                pass
            case _:
                assert_never(message)

    def _begin(self, begin: Begin) -> None:
        if self._frontier.open_commit is not None:
            raise MalformedMessage("a transaction begins inside another", offset=0)
        if self._history is not None:
            self._history.begin(begin)
        self._begin_copy_before(begin.commit_lsn)
        if self._frontier.begin(begin.commit_lsn):
            self._history = None
            self._rows.begin(begin)
            self._batcher.batch.oldest_us = self._batcher.batch.oldest_us or begin.commit_ts_us
            self._ports.metrics.unpublished = self._batcher.batch.commits + 1, self._batcher.batch.oldest_us
        else:
            self._rows.drop()
            self._ports.metrics.deduplicated.inc()

    def _begin_copy_before(self, position: Lsn) -> None:
        """Begin a waiting initial copy if the stream is about to pass its point.

        The next item of the stream is at `position`. Commits come in order, so every commit before a point that is not
        after `position` was received.
        """
        export = self._ports.captures.export
        if export is not None and position >= export.at:
            self._frontier.reach(export.at)
            self._initial_copy.begin(export)

    def _commit(self, commit: Commit) -> None:
        if commit.commit_lsn != self._frontier.open_commit or commit.end_lsn <= commit.commit_lsn:
            raise MalformedMessage(f"commit at {commit.commit_lsn} is not the one that began", offset=2)
        self._frontier.commit(commit.end_lsn)
        if self._rows.transaction is not None:
            self._batcher.last_begin = self._rows.transaction.begin
        self._batcher.batch.rows += self._rows.take_count()
        if self._rows.transaction is not None and (self._batcher.batch.rows or self._is_cut):
            self._batcher.batch.ended_at = self._batcher.batch.ended_at or time.monotonic()
            self._batcher.batch.commits += 1
        elif not self._batcher.batch.commits:
            self._batcher.batch.oldest_us = 0
            self._ports.metrics.unpublished = 0, 0
        self._rows.end()
        self._is_cut = False
        self._batcher.publish_if_due()

    def _handle_logical_message(self, message: LogicalMessage) -> None:
        if message.transactional:
            if self._rows.transaction is None:
                return  # the topics already hold its transaction
            self._rows.add_message(message)
        else:
            if message.lsn <= self._frontier.resume_at:
                return
            # A commit record may start where the message ends, but none can start inside the message.
            at = Lsn(message.lsn.value - 1)
            self._begin_copy_before(at)
            self._ports.sink.control(LogMessage(Stamp(at, 0), 0, False, message.prefix, message.content))
            self._frontier.reach(message.lsn)
            self._batcher.batch.rows += 1
            self._batcher.batch.commits += 1
            self._batcher.batch.ended_at = self._batcher.batch.ended_at or time.monotonic()
        if message.prefix == MESSAGE_PREFIX:
            self._batcher.batch.urgent = True
            if message.content.startswith(b"capture"):
                self._ports.captures.request()

    # -- long commits -----------------------------------------------------------------------------------------------

    def _cut_if_long(self) -> None:
        """Split a source commit that takes too long for one transaction of the sink over several transactions.

        Readers count its rows only when a frontier passes them, all at once. The progress record says which part is
        written, so that part is not written again when the server sends the commit again.
        """
        limit_s, transaction = self._ports.sink.transaction_limit_s, self._rows.transaction
        if limit_s is None or transaction is None or not (self._batcher.has_frontier and self._batcher.batch.rows):
            return
        if time.monotonic() - self._batcher.batch.began_at >= limit_s:
            part = CommitPart(transaction.begin.commit_lsn, transaction.ordinal, self._settings.publications)
            self._batcher.publish(part=part)
            self._is_cut = True

    def _resumable_part(self, progress: Progress | None) -> CommitPart | None:
        part = progress.part if progress else None
        if part is not None and part.publications != self._settings.publications:
            raise SettingsError(
                f"the commit at {part.lsn} is published only in part, streamed through the publications "
                f"{', '.join(part.publications)}",
                hint="start with these publications until the commit is published completely, then change them",
            )
        return part
