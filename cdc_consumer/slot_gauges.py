"""Shows the server's view of the slot as gauges: how much log the slot retains, why, and how much room is left."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from cdc_consumer.health import SlotReading

WAL_STATUS = ("reserved", "extended", "unreserved", "lost")


class SlotGauges:
    """The gauges of one slot."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{prefix}_slot_{name}", text, registry=registry)

        self._restart = gauge("restart_lsn", "LSN from which the server retains its log for the slot")
        self._confirmed = gauge("confirmed_flush_lsn", "Flush position that the server has stored for the slot")
        self._retained = gauge("retained_bytes", "Bytes of log that the server retains for the slot")
        self._unconfirmed = gauge("unconfirmed_bytes", "Bytes of log after the acknowledged position")
        self._safe = gauge("safe_bytes", "Bytes of log until the server invalidates the slot, -1 without a limit")
        self._catalog_age = gauge(
            "catalog_age_transactions", "Transactions whose dead catalog rows the server retains for the slot"
        )
        self._spilled = gauge("spilled_bytes", "Bytes that the server's decoder spilled to its disk for the slot")
        self._spilled_transactions = gauge(
            "spilled_transactions", "Transactions that the server's decoder spilled to its disk"
        )
        self._oldest = gauge("oldest_transaction_seconds", "Age of the oldest open write transaction of the server")
        self._status = Gauge(
            f"{prefix}_slot_wal_status", "1 for the current state of the slot's log", ["status"], registry=registry
        )

    def show(self, reading: SlotReading) -> None:
        """Set all gauges."""
        position = reading.position.value
        self._restart.set(reading.restart.value)
        self._confirmed.set(reading.confirmed_flush.value)
        self._retained.set(max(0, position - reading.restart.value))
        self._unconfirmed.set(max(0, position - reading.confirmed_flush.value))
        self._safe.set(-1 if reading.safe_bytes is None else reading.safe_bytes)
        self._catalog_age.set(reading.catalog_age)
        self._spilled.set(reading.spilled_bytes)
        self._spilled_transactions.set(reading.spilled_transactions)
        self._oldest.set(reading.oldest_transaction_s)
        for status in WAL_STATUS:
            self._status.labels(status).set(status == reading.wal_status)
