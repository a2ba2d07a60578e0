"""Gates, watermark groups and what a stream table reads in; whether it is held, where and why, out. Pure.

A gate that is closed holds its readers at one position: nothing that commits after the gate was visible reaches them.
The row says where the log ended when it was closed; readers may have been a little further when the applier saw the row
first, and then all of them go there. That position is stored, so that it stays over a restart. No change that began
after the gate was closed is before it, because a tick reads the gates after it knows its frontier.

A gate that was opened lets its readers go once the frontier has passed the end of the log at which the row was seen:
the transaction that opened it is before that, so its readers see all of it or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId


class GateKind(Enum):
    """What holds stream tables: one source that is gated, or a group of sources whose watermarks differ."""

    GATE = "GATE"
    WATERMARK = "WATERMARK"


class SkipReason(Enum):
    """Reason codes of the history for a stream table that is held; programs match on the value."""

    SOURCE_GATED = "SOURCE_GATED"
    WATERMARK_MISALIGNED = "WATERMARK_MISALIGNED"


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate or a watermark group as stored, closed or open."""

    kind: GateKind
    id: str
    """What stays when the source is renamed: its oid; of a group the name."""
    name: str
    """The name of the source or of the group."""
    sources: frozenset[TableId]
    min_sources: int
    """How many of the sources a stream table must read to be held."""
    is_closed: bool
    closed_lsn: Lsn
    """Where the log ended when it was closed last."""
    held_lsn: Lsn | None
    """Where its readers are held; None before that was decided."""
    opened_lsn: Lsn | None
    """Where the log ended when it was opened."""
    closed_at: datetime
    detail: str
    readers_at: Lsn
    """The highest frontier of its readers when it was read."""

    def concerns(self, sources: Collection[TableId]) -> bool:
        """Whether it holds a stream table that reads these tables, directly or through others."""
        return len(self.sources.intersection(sources)) >= self.min_sources


GateKey = tuple[GateKind, str, Lsn, bool]
"""One state of one gate: its kind and id, where it was closed, and whether it is."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A stream table must not pass `limit`, for this reason."""

    limit: Lsn
    reason: SkipReason
    detail: str


def key_of(gate: Gate) -> GateKey:
    """Return what identifies the state of a gate."""
    return gate.kind, gate.id, gate.closed_lsn, gate.is_closed


def find_positions(
    gates: Iterable[Gate], known: Mapping[GateKey, Lsn], last_frontier: Lsn, log_end: Lsn
) -> dict[GateKey, Lsn]:
    """Return per closed gate where its readers are held, and per open one the frontier from which on they go.

    Both stay what they were when the gate was seen first. `last_frontier` is that of the tick before: no refresh that
    has begun goes further. `log_end` was read with the gates.
    """
    found = {}
    for gate in gates:
        first = max(gate.closed_lsn, last_frontier, gate.readers_at) if gate.is_closed else log_end
        stored = gate.held_lsn if gate.is_closed else None
        found[key_of(gate)] = known.get(key_of(gate), first if stored is None else stored)
    return found


def find_hold(
    sources: Collection[TableId], lsn: Lsn, frontier: Lsn, gates: Iterable[Gate], positions: Mapping[GateKey, Lsn]
) -> Hold | None:
    """Return what keeps a stream table at `lsn` from the frontier; of several the lowest position."""
    holds = [hold for gate in gates if gate.concerns(sources) and (hold := _hold(gate, lsn, frontier, positions))]
    return min(holds, key=lambda hold: (hold.limit, hold.detail), default=None)


def _hold(gate: Gate, lsn: Lsn, frontier: Lsn, positions: Mapping[GateKey, Lsn]) -> Hold | None:
    position = positions[key_of(gate)]
    if gate.is_closed:
        return Hold(position, *_describe(gate))
    if gate.opened_lsn is not None and lsn <= gate.opened_lsn and frontier < position:
        # It has not gone on since the gate was opened; the transaction that opened it may be after the frontier.
        return Hold(lsn, *_describe(gate))
    return None


def _describe(gate: Gate) -> tuple[SkipReason, str]:
    match gate.kind:
        case GateKind.GATE:
            return SkipReason.SOURCE_GATED, f"source {gate.name}, closed at {gate.closed_lsn}"
        case GateKind.WATERMARK:
            return SkipReason.WATERMARK_MISALIGNED, f"watermark group {gate.name}, parted at {gate.closed_lsn}"


def find_stuck(gates: Iterable[Gate], now: datetime, timeout_s: float) -> list[Gate]:
    """Return the watermark groups that have held their readers for longer than the timeout; none with timeout 0."""
    return [
        gate
        for gate in gates
        if timeout_s > 0
        and gate.is_closed
        and gate.kind is GateKind.WATERMARK
        and (now - gate.closed_at).total_seconds() > timeout_s
    ]
