"""The main loop: takes frames of the replication stream, writes change rows and whole commits to the sink, and
acknowledges to the server what is durable.
"""

from __future__ import annotations

import time

from cdc_consumer.catalog_check import CatalogCheck
from cdc_consumer.frame_handler import FrameHandler
from cdc_consumer.health import Health, Streaming
from cdc_consumer.initial_copy import InitialCopy
from cdc_consumer.ring.hot_sources import HotSources
from cdc_consumer.ring.receiver import Receiver
from cdc_consumer.rows import TransactionRows
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import Captures
from cdc_consumer.transaction_batcher import TransactionBatcher
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.frontier import Frontier

FEW_FRAMES, GATHER_S = 32, 0.0005
"""The server flushes every message separately. After fewer frames than this the loop pauses for GATHER_S, so that the
next read returns enough frames to be worth its system calls."""

LOOK_WAIT_S = 0.005
"""How long one round waits for the server while readers elsewhere wait for a look at the catalog."""


class Relay:
    """Moves the stream of one slot to the sink."""

    def __init__(
        self,
        *,
        settings: ConsumerSettings,
        receiver: Receiver,
        hot: HotSources,
        frontier: Frontier,
        frame_handler: FrameHandler,
        rows: TransactionRows,
        captures: Captures,
        initial_copy: InitialCopy,
        catalog_check: CatalogCheck,
        batcher: TransactionBatcher,
        sink: Sink,
        feedback: Feedback,
        health: Health,
    ) -> None:
        self._settings = settings
        self._receiver = receiver
        self._hot = hot
        self._frontier = frontier
        self._frame_handler = frame_handler
        self._rows = rows
        self._captures = captures
        self._initial_copy = initial_copy
        self._catalog_check = catalog_check
        self._batcher = batcher
        self._sink = sink
        self._feedback = feedback
        self._health = health

    def run_once(self) -> None:
        """Run one round: WAL -> change rows -> topic -> acknowledgement."""
        frames = self._receive()
        self._write_rows(frames)
        self._copy_tables(idle=not frames)
        if self._rows.transaction is not None:
            # Also without frames: while the spools are full, the copy alone goes on in the open transaction.
            self._batcher.cut_if_long(self._rows.transaction)
        self._batcher.publish_if_due()
        self._batcher.note_complete()
        self._note_streaming()
        self._feedback.send_if_due()

    def finish(self) -> None:
        """Publish the whole commits received so far.

        If a source transaction is open, publish nothing: the server sends everything again after a restart.
        """
        if self._frontier.open_commit is not None or not self._batcher.publish_received():
            self._sink.abort()
        self._feedback.send()

    def _receive(self) -> list[bytes]:
        if self._initial_copy.is_full:
            return []
        self._hot.measure(self._rows.written_by_table)
        wait_s = 0.0 if self._initial_copy.is_active else self._batcher.wait_s()
        if self._catalog_check.is_awaited:
            wait_s = min(wait_s, LOOK_WAIT_S)
        return self._receiver.take(self._settings.wal_max_changes_per_poll, wait_s)

    def _write_rows(self, frames: list[bytes]) -> None:
        if frames:
            self._frame_handler.handle_frames(frames)
        if 0 < len(frames) < FEW_FRAMES:
            time.sleep(GATHER_S)
        self._sink.poll()

    def _copy_tables(self, *, idle: bool) -> None:
        self._catalog_check.run()
        self._captures.check()
        self._initial_copy.keep_changes()
        self._initial_copy.stop_refused()
        self._initial_copy.begin_if_reached()
        self._initial_copy.run_step(idle=idle)

    def _note_streaming(self) -> None:
        if self._captures.is_complete and not isinstance(self._health.session, Streaming):
            self._health.enter(Streaming())
