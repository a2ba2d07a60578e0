"""The loop's state: frames of the stream in, Kafka transactions of whole commits out, acknowledgements back.

A batch is what the open Kafka transaction holds. It ends at a commit, when it is old or large enough, when a
`pg_trickle` message asks for it, or when the idle position moved and a heartbeat is due.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import assert_never

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.ledger import SchemaLedger
from cdc_consumer.metrics import Metrics
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
from cdc_consumer.resume import StartingPoint
from cdc_consumer.ring.receiver import Receiver
from cdc_consumer.routes import Routes
from cdc_consumer.rows import Rows
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.snapshot.export import Export
from cdc_consumer.snapshot.load import Loader
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frames import Keepalive, XLogData, decode_frame, has_kind
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.history import HistoryCheck
from shared_schema.change_row import Stamp
from shared_schema.control import LogMessage
from shared_schema.errors import SettingsError
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, LastCommit, Offsets, Part, Progress

log = logging.getLogger(__name__)

MESSAGE_PREFIX = "pg_trickle"
"""Logical messages of ours: wake-ups, and `capture…` when tables were added to a publication."""

ROW_KINDS = b"IUD"

FEW_FRAMES, GATHER_S = 32, 0.0005
"""The server flushes each message by itself; after so few frames a short pause makes the next read worth its calls."""

IDLE_WAIT_S = 0.05
"""How long a turn waits for the server when nothing else is due; data ends the wait at once."""

ASKED_PAUSE_S = 0.2
"""A server that shuts down asks again and again; this bounds the progress records it can cause."""


@dataclass(slots=True)
class Batch:
    """What the open Kafka transaction holds."""

    rows: int = 0
    commits: int = 0
    began_at: float = 0.0
    """When something was first received for it."""
    ended_at: float = 0.0
    """When its first commit was complete."""
    urgent: bool = False
    oldest_us: int = 0
    """Commit time of its first source commit."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the relay works with."""

    receiver: Receiver
    feedback: Feedback
    sink: Sink
    routes: Routes
    captures: Captures
    loader: Loader
    ledger: SchemaLedger
    metrics: Metrics


class Relay:
    """One slot's stream on its way to the topics."""

    def __init__(
        self,
        settings: ConsumerSettings,
        point: StartingPoint,
        frontier: Frontier,
        ports: Ports,
        progress: Progress | None,
        *,
        anew: bool,
    ) -> None:
        self._settings = settings
        self._point = point
        self._begun = progress is not None
        self._anew = anew
        self._last_commit = progress.last_commit if progress else None
        self._last_begin: Begin | None = None
        self._history = HistoryCheck(progress, point.begins_at) if progress else None
        """Until the stream is past what was published."""
        self._frontier = frontier
        self._ports = ports
        self._batch = Batch()
        self._published_at = 0.0
        self._rows = Rows(ports.routes, ports.ledger, ports.sink, ports.metrics, self._resumable_part(progress))
        self._asked = False
        self._cut = False
        """Whether a part of the open transaction is published."""

    # -- the loop ---------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Receive what is there, publish what is due, report."""
        ports = self._ports
        frames = ports.receiver.take(self._settings.wal_max_changes_per_poll, self._patience_s())
        if frames:
            self._decode(frames)
            self._cut_if_long()
        if 0 < len(frames) < FEW_FRAMES:
            time.sleep(GATHER_S)
        ports.sink.poll()
        ports.captures.turn()
        if ports.captures.export is not None and self._frontier.arrived(ports.captures.export.at):
            self._capture(ports.captures.export)
        self._publish_if_due()
        ports.metrics.settled = ports.metrics.settled or (ports.captures.settled and ports.captures.export is None)
        ports.feedback.if_due()

    def _decode(self, frames: list[bytes]) -> None:
        started, metrics = time.perf_counter(), self._ports.metrics
        at, take = 0, self._rows.take
        while at < len(frames):
            frame = frames[at]
            taken = take(frames, at) if has_kind(frame, ROW_KINDS) else 0
            if not taken:
                self._take(frame)
            at += taken or 1
        self._batch.rows += self._rows.written()
        self._batch.began_at = self._batch.began_at or time.monotonic()
        metrics.messages.inc(len(frames))
        metrics.poll_seconds.observe(time.perf_counter() - started)

    def finish(self) -> None:
        """Publish the whole commits received, unless a transaction is open: then it is sent again after a restart."""
        if self._batch.commits and self._frontier.open_commit is None:
            self._publish()
        else:
            self._ports.sink.abort()
        self._ports.feedback.send()

    def _patience_s(self) -> float:
        if self._batch.commits and self._frontier.open_commit is None:
            return max(0.0, self._batch.ended_at + self._settings.linger_ms / 1000 - time.monotonic())
        return IDLE_WAIT_S

    # -- frames and messages ----------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        match frame := decode_frame(data):
            case XLogData(payload=payload):
                self._handle(decode(payload))
            case Keepalive(position=position, reply_requested=asked):
                if self._history is not None:
                    self._history.reach(position)
                self._frontier.reach(position)
                if asked:
                    self._ports.feedback.send()
                    self._asked = True
            case _:
                assert_never(frame)

    def _handle(self, message: Message) -> None:
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
                self._rows.forget()
            case LogicalMessage():
                self._message(message)
            case TypeName() | Origin():
                pass
            case _:
                assert_never(message)

    def _begin(self, begin: Begin) -> None:
        if self._frontier.open_commit is not None:
            raise MalformedMessage("a transaction begins inside another", offset=0)
        if self._history is not None:
            self._history.begin(begin)
        self._pass(begin.commit_lsn)
        if self._frontier.begin(begin.commit_lsn):
            self._history = None
            self._rows.begin(begin)
            self._batch.oldest_us = self._batch.oldest_us or begin.commit_ts_us
            self._ports.metrics.unpublished = self._batch.commits + 1, self._batch.oldest_us
        else:
            self._rows.drop()
            self._ports.metrics.deduplicated.inc()

    def _pass(self, position: Lsn) -> None:
        """Something at `position` follows. Commits come in order: all before a point before it were received."""
        export = self._ports.captures.export
        if export is not None and position >= export.at:
            self._frontier.reach(export.at)
            self._capture(export)

    def _commit(self, commit: Commit) -> None:
        if commit.commit_lsn != self._frontier.open_commit or commit.end_lsn <= commit.commit_lsn:
            raise MalformedMessage(f"commit at {commit.commit_lsn} is not the one that began", offset=2)
        self._frontier.commit(commit.end_lsn)
        if self._rows.transaction is not None:
            self._last_begin = self._rows.transaction.begin
        self._batch.rows += self._rows.written()
        if self._rows.transaction is not None and (self._batch.rows or self._cut):
            self._batch.ended_at = self._batch.ended_at or time.monotonic()
            self._batch.commits += 1
        elif not self._batch.commits:
            self._batch.oldest_us = 0
            self._ports.metrics.unpublished = 0, 0
        self._rows.end()
        self._cut = False
        self._publish_if_due()

    def _message(self, message: LogicalMessage) -> None:
        if message.transactional:
            if self._rows.transaction is None:
                return  # its transaction is on the topics already
            self._rows.message(message)
        else:
            if message.lsn <= self._frontier.resume_at:
                return
            # A commit record may start where the message ends, none in it.
            at = Lsn(message.lsn.value - 1)
            self._pass(at)
            self._ports.sink.control(LogMessage(Stamp(at, 0), 0, False, message.prefix, message.content))
            self._frontier.reach(message.lsn)
            self._batch.rows += 1
            self._batch.commits += 1
            self._batch.ended_at = self._batch.ended_at or time.monotonic()
        if message.prefix == MESSAGE_PREFIX:
            self._batch.urgent = True
            if message.content.startswith(b"capture"):
                self._ports.captures.request()

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish_if_due(self) -> None:
        if self._frontier.open_commit is None and self._due():
            self._publish()

    def _due(self) -> bool:
        batch, now = self._batch, time.monotonic()
        if not self._begun:
            # A frontier says that all tables are complete, so the first one waits for the first captures.
            return self._ports.captures.settled and self._ports.captures.export is None
        if batch.commits:
            lingered = (now - batch.ended_at) * 1000 >= self._settings.linger_ms
            return batch.urgent or lingered or batch.rows >= self._settings.batch_max_rows
        if self._frontier.publishable <= self._frontier.published:
            batch.urgent = self._asked = False
            return False
        idle_s = now - self._published_at
        asked = self._asked and idle_s >= ASKED_PAUSE_S
        return batch.urgent or asked or idle_s * 1000 >= self._settings.heartbeat_ms

    def _cut_if_long(self) -> None:
        """A commit that takes too long for one transaction of the sink goes on in another.

        Readers count its rows only when a frontier passes them, all at once. The part that is written is remembered in
        the progress record, and not written again when the server sends the commit again.
        """
        limit_s, transaction = self._ports.sink.transaction_limit_s, self._rows.transaction
        if limit_s is None or transaction is None or not (self._begun and self._batch.rows):
            return
        if time.monotonic() - self._batch.began_at >= limit_s:
            part = Part(transaction.begin.commit_lsn, transaction.ordinal, self._settings.publications)
            self._publish(part=part)
            self._cut = True

    def _resumable_part(self, progress: Progress | None) -> Part | None:
        part = progress.part if progress else None
        if part is not None and part.publications != self._settings.publications:
            raise SettingsError(
                f"a commit at {part.lsn} is written in part, as streamed through {', '.join(part.publications)}",
                hint="start with those publications until it is through, then change them",
            )
        return part

    def _publish(self, captures: tuple[Capture, ...] = (), part: Part | None = None) -> None:
        started, target = time.monotonic(), self._frontier.publishable
        if (begin := self._last_begin) is not None:
            self._last_commit = LastCommit(begin.commit_lsn, begin.xid, begin.commit_ts_us, self._settings.publications)
        point, ports = self._point, self._ports
        written = ports.ledger.fingerprints_before if part else ports.ledger.fingerprints

        def progress(offsets: Offsets) -> Progress:
            server = point.server
            return Progress(
                self._settings.slot,
                server.system_id,
                server.timeline,
                point.slot_lsn,
                target,
                dict(offsets),
                self._last_commit,
                schemas={r: f for r, f in written.items() if ports.captures.holds(r)},
                part=part,
            )

        self._ports.sink.publish(progress, captures)
        self._frontier.mark_published(target)
        self._ports.metrics.unpublished = 0, 0
        self._ports.feedback.send()
        self._ports.metrics.transactions.inc(self._batch.commits)
        self._ports.metrics.publications.inc()
        self._ports.metrics.publish_seconds.observe(time.monotonic() - started)
        self._batch, self._asked, self._begun, self._published_at = Batch(), False, True, time.monotonic()

    def _capture(self, export: Export) -> None:
        """Copy the exported tables, publish each one's capture with its last rows: a restart copies only the rest.

        The frontier passes their point with the last. When a slot begins anew over old topics, none is published
        before: readers know the tables already and would take it that nothing is missing.
        """
        if self._batch.commits:
            self._publish()
        captures: list[Capture] = []
        for table in export.tables:
            captures.append(self._ports.loader.load(export, table))
            self._ports.ledger.wrote(table.schema)
            last = len(captures) == len(export.tables)
            if last:
                self._frontier.limit = None
            if last or not self._anew:
                self._publish((captures[-1],))
            else:
                self._ports.sink.publish(None, (captures[-1],))
        self._anew = False
        self._ports.captures.done(tuple(captures))
        self._ports.routes.forget()
