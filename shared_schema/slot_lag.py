"""How much log a replication slot holds back in; the alert about it, if it is too much, out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared_schema.alerts import Alert, AlertEvent

MB = 1_048_576


@dataclass(frozen=True, slots=True)
class SlotLagThresholds:
    """From which lag on it is reported. `health_check()` uses the same settings."""

    warning_mb: int = 100
    critical_mb: int = 1_024

    def severity(self, lag_bytes: int) -> Literal["warning", "critical"] | None:
        """Return how bad a lag is; None if it is not."""
        if lag_bytes > self.critical_mb * MB:
            return "critical"
        return "warning" if lag_bytes > self.warning_mb * MB else None


def slot_lag_alert(slot: str, lag_bytes: int, thresholds: SlotLagThresholds) -> Alert | None:
    """Return the alert about a slot; one that became critical is not held back by the warning before it."""
    severity = thresholds.severity(lag_bytes)
    if severity is None:
        return None
    detail = f"the server keeps {lag_bytes // MB} MB of log for slot {slot} that is not acknowledged"
    return Alert(
        AlertEvent.SLOT_LAG_WARNING, {"slot": slot, "severity": severity, "lag_bytes": lag_bytes, "detail": detail}
    )
