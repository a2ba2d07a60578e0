"""Takes frames in the order of the stream; writes the rows of each commit into the open transaction of the sink."""

from __future__ import annotations

import time
from typing import assert_never

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.initial_copy import InitialCopy
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
from cdc_consumer.rows import TransactionRows
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.tree_news import NewsReader
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frames import Keepalive, XLogData, decode_frame, has_kind
from cdc_consumer.wal.frontier import Frontier
from cdc_consumer.wal.history import HistoryCheck
from shared_schema.change_row import Stamp
from shared_schema.control import LogMessage
from shared_schema.lsn import Lsn
from shared_schema.signed_messages import MESSAGE_PREFIX

ROW_KINDS = b"IUD"


class FrameHandler:
    """Handles the frames of one slot."""

    def __init__(
        self,
        *,
        frontier: Frontier,
        history: HistoryCheck | None,
        rows: TransactionRows,
        sink: Sink,
        batcher: TransactionBatcher,
        captures: Captures,
        initial_copy: InitialCopy,
        feedback: Feedback,
        news: NewsReader,
        metrics: Metrics,
    ) -> None:
        self._frontier = frontier
        self._history = history
        """None once the stream has passed everything that was published before the start."""
        self._rows = rows
        self._sink = sink
        self._batcher = batcher
        self._batch = batcher.batch
        self._captures = captures
        self._initial_copy = initial_copy
        self._feedback = feedback
        self._news = news
        self._metrics = metrics

    def handle_frames(self, frames: list[bytes]) -> None:
        """Write the rows of the frames. A batch that is due at the end of a commit is published at once."""
        started, metrics = time.perf_counter(), self._metrics
        at, encode_frames = 0, self._rows.encode_frames
        self._batch.receive()
        while at < len(frames):
            frame = frames[at]
            done = encode_frames(frames, at) if has_kind(frame, ROW_KINDS) else 0
            if not done:
                self._handle_frame(frame)
            at += done or 1
        self._batch.add_rows(self._rows.take_count(), time.monotonic())
        metrics.messages.inc(len(frames))
        metrics.last_message.set(time.time())
        metrics.poll_seconds.observe(time.perf_counter() - started)
        if self._rows.transaction is not None:
            self._batcher.cut_if_long(self._rows.transaction)

    def _handle_frame(self, data: bytes) -> None:
        match frame := decode_frame(data):
            case XLogData(payload=payload):
                self._handle_message(decode(payload))
            case Keepalive(position=position, reply_requested=status_requested):
                if self._history is not None:
                    self._history.reach(position)
                self._frontier.reach(position)
                if status_requested:
                    self._feedback.send()
                    self._batch.request_status()
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
                self._rows.describe(message)
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
        self._initial_copy.begin_before(begin.commit_lsn)
        if self._frontier.begin(begin.commit_lsn):
            self._history = None
            self._rows.begin(begin)
            self._batch.begin(begin)
            self._metrics.show_unpublished(self._batch.commits + 1, self._batch.oldest_us)
        else:
            self._rows.drop()
            self._metrics.deduplicated.inc()

    def _commit(self, commit: Commit) -> None:
        if commit.commit_lsn != self._frontier.open_commit or commit.end_lsn <= commit.commit_lsn:
            raise MalformedMessage(f"commit at {commit.commit_lsn} is not the one that began", offset=2)
        self._frontier.commit(commit.end_lsn)
        transaction = self._rows.transaction
        begin = transaction.begin if transaction is not None else None
        self._batch.commit(begin, self._rows.take_count(), time.monotonic())
        self._metrics.show_unpublished(self._batch.commits, self._batch.oldest_us)
        self._rows.end()
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
            self._initial_copy.begin_before(at)
            self._sink.control(LogMessage(Stamp(at, 0), 0, False, message.prefix, message.content))
            self._frontier.reach(message.lsn)
            self._batch.add_message(time.monotonic())
        if message.prefix == MESSAGE_PREFIX:
            self._batch.request_publication()
            if self._rows.transaction is not None and message.transactional:
                self._follow_leaves(message.content, self._rows.transaction.begin.xid)
            if message.content.startswith(b"capture"):
                self._captures.request()

    def _follow_leaves(self, content: bytes, xid: int) -> None:
        """Follow the leaf partitions of partitioned tables, if the message is about them."""
        news = self._news.read(content, xid)
        if news is not None and not news.is_empty:
            self._rows.follow_leaves(news)
