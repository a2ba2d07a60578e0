"""Checks source and sink every few seconds on a separate thread: reads the slot, and tests whether the broker answers.

The stream notices an outage only when it has something to send; an operator wants to know earlier. This thread changes
nothing but the probed part of `Health` and the gauges of the slot. It sends alerts when the slot holds back much, or
received changes wait on disk.
"""

from __future__ import annotations

import threading
from types import TracebackType

from cdc_consumer.health import Health, SlotReading, Spill
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.open_sink import Probe, open_probe
from cdc_consumer.slot_gauges import SlotGauges
from cdc_consumer.wal.catalog import Connection, connect
from cdc_consumer.wal.slot import read_slot
from shared_schema.alert_sender import AlertSender
from shared_schema.alerts import Alert, AlertEvent
from shared_schema.errors import TrickleError
from shared_schema.slot_lag import MB, SlotLagThresholds, slot_lag_alert

PROBE_EVERY_S = 2.0
"""One query to the server and one request to the broker, both cheap."""


class HealthProbe:
    """Runs while its context is open."""

    def __init__(self, settings: ConsumerSettings, health: Health, gauges: SlotGauges, alerts: AlertSender) -> None:
        self._settings = settings
        self._health = health
        self._gauges = gauges
        self._alerts = alerts
        self._lag = SlotLagThresholds(settings.slot_lag_warning_threshold_mb, settings.slot_lag_critical_threshold_mb)
        self._catalog: Connection | None = None
        self._probe: Probe | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health-probe", daemon=True)

    def __enter__(self) -> HealthProbe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The thread is not joined: it may be waiting for a server or a broker that is down.
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(PROBE_EVERY_S):
            self._health.record_probe(self._probe_slot(), self._probe_sink())
        if self._catalog is not None:
            self._catalog.close()

    def _probe_slot(self) -> str | None:
        try:
            if self._catalog is None or self._catalog.closed:
                self._catalog = connect(self._settings.database_url.get_secret_value())
            reading = read_slot(self._catalog, self._settings.slot)
        except TrickleError as error:
            if self._catalog is not None:
                self._catalog.close()
            return error.problem
        if reading is not None:
            self._gauges.show(reading)
            self._send_alerts(self._catalog, reading)
        return None

    def _send_alerts(self, catalog: Connection, reading: SlotReading) -> None:
        """Send alerts about log and changes that are held back; not from an instance that waits for the slot."""
        if not self._health.has_slot:
            return
        slot = self._settings.slot
        lag = max(0, reading.position.value - reading.confirmed_flush.value)
        for alert in (slot_lag_alert(slot, lag, self._lag), spill_alert(slot, self._health.spill)):
            if alert is not None:
                self._alerts.send(lambda: catalog, alert.event, {"by": "pg-trickle-cdc", **alert.fields})

    def _probe_sink(self) -> str | None:
        try:
            if self._probe is None:
                self._probe = open_probe(self._settings)
            self._probe()
        except TrickleError as error:
            return error.problem
        return None


def spill_alert(slot: str, spill: Spill) -> Alert | None:
    """Return the alert about received changes that wait on local disk; one that is full is another alert."""
    if not spill.bytes and not spill.is_full:
        return None
    rest = ", which takes no more: the server keeps the rest in its log" if spill.is_full else ""
    detail = f"the sink does not keep up: {spill.bytes // MB} MB of received changes wait on local disk{rest}"
    severity = "critical" if spill.is_full else "warning"
    return Alert(
        AlertEvent.SPILL_THRESHOLD_EXCEEDED,
        {"slot": slot, "severity": severity, "spill_bytes": spill.bytes, "detail": detail},
    )
