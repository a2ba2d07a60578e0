"""Beats every second into the catalog, listens to the beats of the consumer, and reports its silence.

Two threads: a database or a broker that hangs must not hide what is known of the other one. No tick waits for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import KafkaException

from applier import metrics
from applier.catalog.beats import BeatStore, Heard
from applier.catalog.service import note_suspended, take_suspended
from applier.errors import Infrastructure
from applier.ingest.beat_reader import BeatReader
from applier.ingest.source_clock import SourceClock
from applier.runtime.condition import ApplierCondition
from applier.runtime.stream_table_watch import AlertThresholds, StreamTableWatch, backpressure_alert, buffer_alert
from shared_schema.alerts import Alert, AlertEvent
from shared_schema.beats import BEAT_EVERY_S, Beat, SilenceWatch
from shared_schema.lsn import Lsn
from shared_schema.slot_lag import slot_lag_alert

log = logging.getLogger(__name__)


@dataclass
class Beats:
    """The beats of one applier; `store` has a connection of its own."""

    store: BeatStore
    open_reader: Callable[[], BeatReader]
    condition: ApplierCondition
    clock: SourceClock
    on_loss: Callable[[str, Lsn | None], None] = field(default=lambda _problem, _before: None)
    """Called with what each beat says about published changes that the server lacks: None if it lacks none."""
    _last: tuple[Beat, float] | None = None
    """The last beat of the consumer, and when it arrived."""
    _settled: Lsn | None = field(default=None)
    """The frontier for which stream tables that lag were looked for."""
    thresholds: Callable[[], AlertThresholds] = field(default=AlertThresholds)
    buffered_rows: Callable[[], int] = field(default=lambda: 0)
    """Returns how many change rows the traces hold in memory."""
    reader_waits_s: Callable[[], float] = field(default=lambda: 0.0)
    """Returns for how long the reader of the topics has been waiting for a tick."""
    monotonic: Callable[[], float] = field(default=time.monotonic)
    """Returns how long this process runs, as far as alerts go."""
    _watch: StreamTableWatch | None = None
    """None until the look of the process before this one was read."""
    _noted: dict[str, Any] | None = None
    """The look that is stored."""
    _consumer: SilenceWatch = field(default_factory=SilenceWatch)

    def listen(self, stopping: threading.Event) -> None:
        """Read the consumer's beats until `stopping` is set."""
        while not stopping.is_set():
            try:
                with self.open_reader() as reader:
                    while not stopping.is_set():
                        if (beat := reader.read(BEAT_EVERY_S)) is not None:
                            self._hear(beat, time.monotonic())
            except KafkaException as error:
                log.warning("beats of the consumer cannot be read", extra={"error": str(error).splitlines()[0]})
                stopping.wait(BEAT_EVERY_S)

    def run(self, stopping: threading.Event) -> None:
        """Beat until `stopping` is set; a database that is away is the tick's to report."""
        while not stopping.is_set():
            try:
                self._beat()
            except (Infrastructure, psycopg.Error) as error:
                log.debug("a beat was not written", extra={"error": str(error).splitlines()[0]})
            stopping.wait(BEAT_EVERY_S)

    def _hear(self, beat: Beat, at: float) -> None:
        self.on_loss(beat.problem or "", beat.lost_before)
        if beat.lost_before is not None:
            return
        self.clock.hear(beat.clock_us, at)
        self._last = beat, at
        self.condition.hear_beat(at, beat.problem)

    def _beat(self) -> None:
        try:
            self._write_and_look()
        finally:
            # Also when the database is away: the alert waits for it.
            self._report(self.condition.consumer_problem)

    def _write_and_look(self) -> None:
        heard = self._heard()
        self.store.write(self.condition.problem, heard)
        self.condition.hear_database(time.monotonic())
        if (written := self.store.consumer()) is not None:
            age_s, problem = written
            self.condition.hear_consumer(time.monotonic() - age_s, problem)
        if heard is not None:
            self._settle(heard.beat)
        watch = self._watch = self._watch or self._recall()
        suspended = take_suspended()  # before the look: it shows whether they still are
        try:
            watched = self.store.watched()
        except BaseException:
            note_suspended(*suspended)
            raise
        staleness = {str(read.table): read.staleness_s for read in watched}
        allowed = {str(read.table): read.allowed_staleness_s for read in watched}
        metrics.STALENESS.set(_known(staleness), _known(allowed), time.monotonic())
        metrics.BUFFERED_ROWS.set(rows := self.buffered_rows())
        for alert in [*watch.look(watched, suspended, self.monotonic()), *self._find_growth(rows)]:
            self.store.alert(alert)
        # Only when they are sent: an applier that ends before finds them again.
        looked = {"stream_tables": watch.to_store(), "is_silent": self._consumer.is_reported}
        if self.store.flush_alerts() and looked != self._noted:
            self.store.note_look(looked)
            self._noted = looked

    def _recall(self) -> StreamTableWatch:
        """Return what goes on where the alerts of the process before this one ended."""
        stored = self.store.last_look()
        self._consumer.is_reported |= stored is not None and stored["is_silent"]
        return StreamTableWatch(stored["stream_tables"] if stored is not None else None)

    def _find_growth(self, rows: int) -> list[Alert]:
        """Return alerts about what grows: rows in memory, and the log while no consumer is there to report it."""
        thresholds = self.thresholds()
        lag = self.store.slot_lag_bytes() if self.condition.consumer_problem else None
        found = [
            buffer_alert(rows, thresholds),
            backpressure_alert(self.reader_waits_s()),
            slot_lag_alert(self.store.slot, lag, thresholds.slot_lag) if lag is not None else None,
        ]
        return [alert for alert in found if alert is not None]

    def _heard(self) -> Heard | None:
        now = time.monotonic()
        if self._last is None or (source_now_us := self.clock.now_us(now)) is None:
            return None
        beat, at = self._last
        return Heard(beat, now - at, source_now_us)

    def _settle(self, beat: Beat) -> None:
        if beat.now is None or beat.earlier is None or beat.now.frontier == self._settled:
            return
        self.store.settle(beat.earlier, beat.now)
        self._settled = beat.now.frontier

    def _report(self, problem: str) -> None:
        if not self._consumer.look(bool(problem), self.monotonic()):
            return
        log.warning("the stream is silent" if problem else "the stream is back", extra={"problem": problem})
        event = AlertEvent.STREAM_SILENT if problem else AlertEvent.STREAM_BACK
        self.store.alert(Alert(event, {"detail": problem}))


def _known(seconds: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in seconds.items() if value is not None}
