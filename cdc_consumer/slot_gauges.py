"""What the server says about our slot, as gauges: how much log it keeps for us, what holds it, how near the end is."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from shared_schema.lsn import Lsn

WAL_STATUS = ("reserved", "extended", "unreserved", "lost")


@dataclass(frozen=True, slots=True)
class SlotReading:
    """One look at the slot."""

    position: Lsn
    """Where the server's log ends."""
    confirmed_flush: Lsn
    restart: Lsn
    wal_status: str
    safe_bytes: int | None
    """Log that may still be written before the slot is given up; None without a limit."""
    catalog_age: int
    """Transactions since the oldest whose catalog rows are kept for us."""
    spilled_transactions: int
    spilled_bytes: int
    """What the server's decoder had to put on its disk."""
    oldest_transaction_s: float
    """Age of the oldest open write transaction: the slot's log is kept at least from there on."""


class SlotGauges:
    """The gauges of one slot."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{prefix}_slot_{name}", text, registry=registry)

        self._restart = gauge("restart_lsn", "The server keeps its log from here on")
        self._confirmed = gauge("confirmed_flush_lsn", "What the server believes to be acknowledged")
        self._retained = gauge("retained_bytes", "Log the server keeps for the slot")
        self._unconfirmed = gauge("unconfirmed_bytes", "Log after the acknowledged position")
        self._safe = gauge("safe_bytes", "Log until the slot is given up, -1 without a limit")
        self._catalog_age = gauge(
            "catalog_age_transactions", "Transactions whose dead catalog rows are kept for the slot"
        )
        self._spilled = gauge("spilled_bytes", "What the server's decoder put on its disk for the slot")
        self._spilled_transactions = gauge("spilled_transactions", "Transactions it did that for")
        self._oldest = gauge("oldest_transaction_seconds", "Age of the oldest open write transaction of the server")
        self._status = Gauge(
            f"{prefix}_slot_wal_status", "1 for the state the slot's log is in", ["status"], registry=registry
        )

    def show(self, reading: SlotReading) -> None:
        """Set all of them."""
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
