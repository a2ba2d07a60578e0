"""How one refresh is done, and why. Pure: figures in, a decision with a reason code out.

Three ways lead to the same rows. DIFFERENTIAL computes the change of the result from the changes of its sources. FULL
computes the whole result in Spark at the tick's frontier, IN_POSTGRES has PostgreSQL run the query itself in a snapshot
of known position; both write only the difference to what the stream table holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.errors import TrickleError


class RefreshMode(Enum):
    """What the user asked for: pgt_stream_tables.refresh_mode."""

    AUTO = "AUTO"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    IMMEDIATE = "IMMEDIATE"


class FullPolicy(Enum):
    """Whether a recomputation the user did not ask for may happen."""

    ALLOW = "allow"
    ERROR = "error"


class RefreshMethod(Enum):
    """What is executed."""

    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    IN_POSTGRES = "FULL_IN_POSTGRES"
    NO_DATA = "NO_DATA"
    """Nothing it reads changed: only its frontier moves."""


class RefreshReason(Enum):
    """Reason codes of the history; programs match on the value."""

    INITIAL = "INITIAL"
    """The first fill."""
    MODE = "MODE"
    """The refresh mode says so."""
    INCREMENTAL = "INCREMENTAL"
    """AUTO, and nothing speaks against following the changes."""
    CHANGE_RATIO = "CHANGE_RATIO"
    """AUTO: more of the sources changed than auto_threshold allows."""
    MEASURED_COST = "MEASURED_COST"
    """AUTO: by what earlier refreshes took, the whole is cheaper than the changes."""
    QUERY_REFUSED = "QUERY_REFUSED"
    """The query cannot be followed, so PostgreSQL runs it."""
    UNCHANGED = "UNCHANGED"
    """There is nothing to do."""
    REPAIR = "REPAIR"
    """A crash cut a progressive refresh off: PostgreSQL is compared with the whole."""
    DEFINITION_CHANGED = "DEFINITION_CHANGED"
    """It has another query, or something it reads has."""
    HISTORY_GONE = "HISTORY_GONE"
    """It stood still for so long that the changes since are no longer kept."""


class FullForbidden(TrickleError):
    """full_policy = 'error', and only a recomputation would help."""


class CannotRepair(TrickleError):
    """It holds rows of no frontier, and what the other sinks hold cannot be known any more."""


def cannot_repair() -> CannotRepair:
    """The error."""
    return CannotRepair(
        "a crash cut a progressive refresh off, and the changes since are no longer kept",
        hint="drop and create the stream table",
    )


@dataclass(frozen=True, slots=True)
class Strategy:
    """The decision for one refresh; `detail` has the figures it rests on."""

    method: RefreshMethod
    reason: RefreshReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """What earlier refreshes of this stream table took; None before the first of the kind."""

    full_ms: float | None = None
    full_rows: int = 0
    """Rows of its sources at that time."""
    per_change_ms: float | None = None
    """Per change row, from windows of at least FEW_CHANGES."""

    def after_full(self, took_ms: float, source_rows: int) -> Costs:
        """With the newest whole computation."""
        return Costs(took_ms, source_rows, self.per_change_ms)

    def after_changes(self, took_ms: float, changes: int) -> Costs:
        """With the newest window; small ones say nothing about rows, only about Spark's fixed costs."""
        if changes < FEW_CHANGES:
            return self
        latest = took_ms / changes
        smoothed = latest if self.per_change_ms is None else (self.per_change_ms + latest) / 2
        return Costs(self.full_ms, self.full_rows, smoothed)


@dataclass(frozen=True, slots=True)
class RefreshInputs:
    """What is known when a refresh is decided."""

    mode: RefreshMode
    policy: FullPolicy
    has_plan: bool
    """Whether the query has a plan."""
    is_deterministic: bool
    """Whether its result changes only with its sources."""
    is_filled: bool
    partial: bool
    """Whether PostgreSQL holds the rows of no frontier."""
    has_history: bool
    """Whether the changes since its frontier are still there."""
    changes: int
    """Change rows of its sources in the window."""
    source_rows: int
    threshold: float
    costs: Costs = Costs()


FEW_CHANGES = 1_000
"""Up to here fixed costs rule and following the changes always wins."""

SAFETY_MARGIN = 0.8
"""The whole must be this much cheaper than the changes before AUTO believes it."""


def choose_strategy(now: RefreshInputs) -> Strategy:
    """The way to refresh; FullForbidden when there is only one and the user forbids it."""
    if now.partial and not now.has_history:
        raise cannot_repair()
    if now.partial:
        return Strategy(RefreshMethod.FULL, RefreshReason.REPAIR)
    if now.is_filled and now.has_history and now.is_deterministic and not now.changes:
        return Strategy(RefreshMethod.NO_DATA, RefreshReason.UNCHANGED)
    if not now.has_plan:
        why = (
            RefreshReason.INITIAL
            if not now.is_filled
            else RefreshReason.MODE
            if now.mode is RefreshMode.FULL
            else RefreshReason.QUERY_REFUSED
        )
        return Strategy(RefreshMethod.IN_POSTGRES, why)
    if not now.is_filled:
        return Strategy(RefreshMethod.FULL, RefreshReason.INITIAL)
    if not now.has_history:
        if now.policy is FullPolicy.ERROR:
            raise FullForbidden(
                "the changes since the stream table was last refreshed are no longer kept, and full_policy is 'error'",
                hint="allow it for once: SELECT pgtrickle.alter_stream_table(name, full_policy => 'allow')",
            )
        return Strategy(RefreshMethod.FULL, RefreshReason.HISTORY_GONE)
    match now.mode:
        case RefreshMode.FULL:
            return Strategy(RefreshMethod.FULL, RefreshReason.MODE)
        case RefreshMode.DIFFERENTIAL | RefreshMode.IMMEDIATE:
            return Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.MODE)
        case RefreshMode.AUTO:
            return _cheaper(now)


def _cheaper(now: RefreshInputs) -> Strategy:
    follow = Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.INCREMENTAL)
    if now.policy is FullPolicy.ERROR or now.changes <= FEW_CHANGES:
        return follow
    if now.changes > now.threshold * now.source_rows:
        detail = f"{now.changes} changes, {now.source_rows} source rows, auto_threshold {now.threshold:g}"
        return Strategy(RefreshMethod.FULL, RefreshReason.CHANGE_RATIO, detail)
    costs = now.costs
    if costs.full_ms is None or costs.per_change_ms is None:
        return follow
    full = costs.full_ms * now.source_rows / max(1, costs.full_rows)
    changes = costs.per_change_ms * now.changes
    if full < SAFETY_MARGIN * changes:
        return Strategy(
            RefreshMethod.FULL, RefreshReason.MEASURED_COST, f"about {full:.0f} ms instead of {changes:.0f} ms"
        )
    return follow
