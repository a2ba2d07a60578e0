"""Beats every second, on threads of its own: into the database, where SQL functions read it, and to the broker.

Each beat says how far the source is known (`wal/log_clock.py`) and why nothing is published, if that is so. The thread
of the database also reads the source's clock and whether the applier beats. Two threads: a server or a broker that
hangs must not silence what is said to the other one. Nothing depends on a beat that is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

import psycopg
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_consumer.health import ATTEMPTS_KEPT, Health, Restarting
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.open_sink import read_state
from cdc_consumer.sinks.topics import client_options
from cdc_consumer.wal.catalog import Connection, connect
from cdc_consumer.wal.log_clock import LogClock
from shared_schema.alert_sender import AlertSender
from shared_schema.alerts import AlertEvent
from shared_schema.beats import BEAT_EVERY_S, Beat, Completeness, SilenceWatch, to_datetime
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn
from shared_schema.topics import beats_topic

log = logging.getLogger(__name__)

REACH_S = 0.05
"""Between reading the clock and the beat: enough for the stream to reach the end of an idle server's log."""

CONFIRM_S = 0.3
"""How long a confirmation of the broker is awaited; a later one is seen at the next beat."""

_READ_CLOCK = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text
"""
"""The clock first: what is durable at that moment is before the position."""

_RIGHTS = """
SELECT coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
                AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')
                AND has_table_privilege(a.oid, 'SELECT'), false) AND NOT pg_is_in_recovery(),
       n.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'attempted_at')
FROM (SELECT) AS one LEFT JOIN pg_namespace n ON n.nspname = 'pgtrickle'
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'pgt_consumer_beats'
LEFT JOIN pg_class a ON a.relnamespace = n.oid AND a.relname = 'pgt_applier_beats'
"""

_WRITE = """
INSERT INTO pgtrickle.pgt_consumer_beats AS b
       (slot, beat_at, frontier, complete_until, earlier_frontier, earlier_complete_until, problem)
VALUES (%s, clock_timestamp(), %s::pg_lsn, %s, %s::pg_lsn, %s, %s)
ON CONFLICT (slot) DO UPDATE SET beat_at = excluded.beat_at, frontier = excluded.frontier,
    complete_until = excluded.complete_until, earlier_frontier = excluded.earlier_frontier,
    earlier_complete_until = excluded.earlier_complete_until, problem = excluded.problem
"""

_WRITE_ATTEMPTS = """
UPDATE pgtrickle.pgt_consumer_beats b SET last_error = %(error)s, last_error_at = (%(at)s::timestamptz[])[1],
       attempts = coalesce(b.attempts, 0) + %(new)s,
       attempted_at = (%(at)s::timestamptz[] || coalesce(b.attempted_at, '{}'))[1:%(kept)s]
WHERE b.slot = %(slot)s
"""
"""A process that ends because of an error is one more failed session: its successor adds to what it left."""

ERROR_CHARACTERS = 500

_APPLIER = """
SELECT extract(epoch FROM clock_timestamp() - a.beat_at)::float8 FROM pgtrickle.pgt_applier_beats a WHERE a.slot = %s
"""


class Beats:
    """Beats while its context is open."""

    def __init__(self, settings: ConsumerSettings, health: Health, clock: LogClock, alerts: AlertSender) -> None:
        self._settings = settings
        self._health = health
        self._clock = clock
        self._alerts = alerts
        self._database: Connection | None = None
        self._may_write = False
        self._has_attempts = False
        """Whether the catalog has columns for failed sessions; one of an older version has not."""
        self._written_attempts = 0
        """The failed sessions of this process that the catalog knows, besides those of earlier ones."""
        self._is_logged = False
        self._applier = SilenceWatch()
        self._read: tuple[int, float] | None = None
        """The last reading of the source's clock, and when it came, by the monotonic clock."""
        self._known: tuple[Completeness | None, Completeness | None] = None, None
        self._is_read = threading.Event()
        self._closed = threading.Event()
        self._writing = threading.Lock()
        runs = [("beat-database", self._run_database)]
        if settings.mode == "log":
            runs.append(("beat-broker", self._run_broker))
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs]

    def __enter__(self) -> Beats:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The threads are not joined: they may be waiting for a server or a broker that is down.
        self._closed.set()

    def report_loss(self, problem: str) -> None:
        """Tell readers that the server lacks published changes, before this process ends.

        Only the consumer can compare both. Readers of another database would otherwise go on showing what is lost.
        """
        if self._settings.mode != "log":
            return
        try:
            progress = read_state(self._settings).progress
            if progress is None:
                return
            now_us = time.time_ns() // 1000
            beat = Beat(self._settings.slot, now_us, problem=problem, lost_before=progress.resume_at)
            producer = Producer(client_options(self._settings) | {"acks": 1, "message.timeout.ms": 3000})
            producer.produce(beats_topic(self._settings.topic_prefix), beat.encode(), beat.key)
            producer.flush(3)
        except (TrickleError, KafkaException):
            log.warning("readers could not be told that the server lacks published changes")

    def report_end(self, problem: str) -> None:
        """Store why this process ends, for wal_source_status(): the beats cannot say it any more."""
        if not self._health.has_slot:
            return
        self._health.enter(Restarting(problem))
        try:
            with self._open() as database:
                if self._may_write:
                    self._write(database)
        except (TrickleError, psycopg.Error):
            log.debug("the reason of the end could not be stored")

    # -- the database -------------------------------------------------------------------------------------------------

    def _run_database(self) -> None:
        while not self._closed.wait(BEAT_EVERY_S - REACH_S):
            try:
                self._beat_database()
            except (TrickleError, psycopg.Error):
                # The probe and the main thread report it; here only the silence counts.
                if self._database is not None:
                    self._database.close()
        if self._database is not None:
            self._database.close()

    def _beat_database(self) -> None:
        if self._database is None or self._database.closed:
            self._database = self._open()
        database = self._database
        row = database.execute(_READ_CLOCK).fetchone()
        now = time.monotonic()
        if row is not None and row[1] is not None:
            self._clock.read(Lsn.parse(row[1]), row[0])
            self._read = row[0], now
            self._health.hear_source(now, row[0])
        self._closed.wait(REACH_S)
        self._known = self._clock.beat()
        self._is_read.set()
        if self._may_write:
            if self._health.has_slot:
                self._write(database)
            self._look_for_applier(database)
            self._alerts.flush(lambda: database)

    def _write(self, database: Connection) -> None:
        with self._writing:  # the end of the process is reported by the main thread
            self._write_beat(database)

    def _write_beat(self, database: Connection) -> None:
        beat, earlier = (_columns(known) for known in self._known)
        values = (self._settings.slot, *beat, *earlier, self._health.problem or None)
        database.execute(_WRITE, values)
        # Only when it is new: the beat itself stays narrow.
        if self._has_attempts and self._written_attempts != self._health.restarts:
            restarts, (_, problem) = self._health.restarts, self._health.last_error or (0.0, "")
            new = restarts - self._written_attempts
            attempts = {
                "slot": self._settings.slot,
                "error": problem[:ERROR_CHARACTERS],
                "at": [to_datetime(int(at * 1_000_000)) for at in self._health.attempted_at_s[:new]],
                "new": new,
                "kept": ATTEMPTS_KEPT,
            }
            database.execute(_WRITE_ATTEMPTS, attempts)
            self._written_attempts = restarts

    def _open(self) -> Connection:
        """Connect; a lost beat is repeated a second later, so no commit waits for a disk or a standby."""
        database = connect(self._settings.database_url.get_secret_value())
        database.execute("SET synchronous_commit = off; SET lock_timeout = '2s'")
        found = database.execute(_RIGHTS).fetchone() or (False, False, False)
        self._may_write, is_installed, self._has_attempts = found
        if is_installed and not self._may_write and not self._is_logged:
            rights = "GRANT SELECT, INSERT, UPDATE ON pgtrickle.pgt_consumer_beats to this role"
            log.warning("beats are not written to the database", extra={"problem": f"{rights} is missing"})
            self._is_logged = True
        return database

    def _look_for_applier(self, database: Connection) -> None:
        row = database.execute(_APPLIER, (self._settings.slot,)).fetchone()
        if row is None:
            return
        now = time.monotonic()
        self._health.hear_applier(now - row[0], now)
        problem = self._health.applier_problem
        if self._health.has_slot and self._applier.look(bool(problem), now):
            event = AlertEvent.APPLIER_SILENT if problem else AlertEvent.APPLIER_BACK
            log.warning("the applier is silent" if problem else "the applier is back", extra={"problem": problem})
            self._alerts.send(lambda: database, event, {"by": "pg-trickle-cdc", "detail": problem})

    # -- the broker ---------------------------------------------------------------------------------------------------

    def _run_broker(self) -> None:
        # A beat that is not confirmed in time is worth nothing later.
        options = client_options(self._settings) | {"acks": 1, "linger.ms": 0, "message.timeout.ms": 3000}
        producer: Producer | None = None
        while not self._closed.is_set():
            if producer is None:
                try:
                    producer = Producer(options)
                except KafkaException:
                    self._closed.wait(BEAT_EVERY_S)
                    continue
            # Right after the clock was read; without a reading, too, when the server hangs.
            self._is_read.wait(BEAT_EVERY_S * 1.2)
            self._is_read.clear()
            self._beat_broker(producer)
            producer.poll(CONFIRM_S)

    def _beat_broker(self, producer: Producer) -> None:
        if not self._health.has_slot:
            self._health.hear_broker(None)
            return
        if self._read is None:
            return
        clock_us, read_at = self._read
        now_us = clock_us + int((time.monotonic() - read_at) * 1_000_000)
        beat = Beat(self._settings.slot, now_us, *self._known, self._health.problem or None)
        try:
            producer.produce(
                beats_topic(self._settings.topic_prefix), beat.encode(), beat.key, on_delivery=self._confirm
            )
        except (BufferError, KafkaException):
            # Its beats wait for the broker: the age of the last confirmation says so.
            return

    def _confirm(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._health.hear_broker(time.monotonic())


def _columns(known: Completeness | None) -> tuple[object, object]:
    return (None, None) if known is None else (str(known.frontier), to_datetime(known.until_us))
