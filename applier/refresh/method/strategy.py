"""The facts about one stream table in, the method of its refresh and the reason for it out. Pure.

Three methods lead to the same rows. DIFFERENTIAL computes the delta of the result from the changes of its sources. FULL
computes the full result in Spark at the tick's frontier. IN_POSTGRES has PostgreSQL run the query itself in a snapshot
at a known LSN. The last two write only the difference to the rows that the stream table holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from applier.refresh.method.cost_model import Prediction
from shared_schema.errors import TrickleError


class RefreshMode(Enum):
    """The user's choice: pgt_stream_tables.refresh_mode."""

    AUTO = "AUTO"
    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    IMMEDIATE = "IMMEDIATE"


class FullPolicy(Enum):
    """Whether a full refresh may happen that the user did not request."""

    ALLOW = "allow"
    ERROR = "error"


class RefreshMethod(Enum):
    """What is executed."""

    DIFFERENTIAL = "DIFFERENTIAL"
    FULL = "FULL"
    IN_POSTGRES = "FULL_IN_POSTGRES"
    NO_DATA = "NO_DATA"
    """Its sources did not change: only its frontier moves."""


class RefreshReason(Enum):
    """Reason codes of the history; programs match on the value."""

    INITIAL = "INITIAL"
    """The initial fill."""
    MODE = "MODE"
    """The refresh mode requires it."""
    INCREMENTAL = "INCREMENTAL"
    """AUTO, and a differential refresh is the cheaper one."""
    CHANGE_RATIO = "CHANGE_RATIO"
    """AUTO: more of the sources changed than auto_threshold allows."""
    MEASURED_COST = "MEASURED_COST"
    """AUTO: a full refresh was cheaper by mean times. Only rows of history that earlier versions wrote have it."""
    PREDICTED_COST = "predicted_cost_exceeds_full"
    """AUTO: by the times of earlier refreshes, the differential one would take longer than a full one."""
    QUERY_REFUSED = "QUERY_REFUSED"
    """The query cannot be maintained, so PostgreSQL runs it."""
    UNCHANGED = "UNCHANGED"
    """Its sources did not change."""
    REPAIR = "REPAIR"
    """A crash interrupted a progressive refresh: the rows in PostgreSQL are compared with the full result."""
    DEFINITION_CHANGED = "DEFINITION_CHANGED"
    """It has a new query, or a stream table that it reads has."""
    LARGE_COMMIT = "LARGE_COMMIT"
    """One commit changed more rows than the delta of so large a query can be written for."""
    HISTORY_GONE = "HISTORY_GONE"
    """It was not refreshed for so long that the traces no longer hold the changes since then."""
    REINITIALIZE = "REINITIALIZE"
    """Somebody asked for it, or put it back into service after its rows were in doubt."""
    AUTO_SCHEMA_EVOLUTION = "AUTO_SCHEMA_EVOLUTION"
    """What it reads was altered, and it follows."""


NEW_CONTENT = frozenset(
    {
        RefreshReason.INITIAL,
        RefreshReason.DEFINITION_CHANGED,
        RefreshReason.REINITIALIZE,
        RefreshReason.AUTO_SCHEMA_EVOLUTION,
    }
)
"""Reasons of full refreshes with which another query or other rows begin: what was measured before says nothing about
them. `pgtrickle._is_new_content` knows the same."""


class FullForbidden(TrickleError):
    """full_policy = 'error', and only a full refresh is possible."""


class CannotRepair(TrickleError):
    """The stream table's rows belong to no frontier, and the rows of the other sinks can no longer be computed."""


def cannot_repair() -> CannotRepair:
    """Return the error for a stream table that cannot be repaired."""
    return CannotRepair(
        "a crash interrupted a progressive refresh, and the changes since then are no longer held",
        hint="SELECT pgtrickle.reinitialize_stream_table(name)",
    )


@dataclass(frozen=True, slots=True)
class Strategy:
    """The decision for one refresh; `detail` has the figures behind it."""

    method: RefreshMethod
    reason: RefreshReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Reinitialize:
    """A request to compute everything once more: its reason, what was seen, and whether a user made it."""

    reason: RefreshReason
    detail: str
    by_user: bool


FULL_POLICY = "full_policy is 'error'"


@dataclass(frozen=True, slots=True)
class RefreshInputs:
    """The facts from which the method of a refresh is chosen."""

    mode: RefreshMode
    policy: FullPolicy
    has_plan: bool
    """Whether the query has a plan."""
    is_deterministic: bool
    """Whether the result changes only when the sources change."""
    is_filled: bool
    partial: bool
    """Whether the rows in PostgreSQL belong to no frontier: a progressive refresh was interrupted."""
    has_history: bool
    """Whether the traces still hold the changes since its frontier."""
    changes: int
    """Change rows of its sources in the LSN range."""
    source_rows: int
    threshold: float
    prediction: Prediction | None = None
    """What either method would take; None where that is not known, and then the threshold alone decides."""
    prediction_ratio: float = 1.5
    reinitialize: Reinitialize | None = None
    """The request to compute everything once more."""
    forbidden_by: str = FULL_POLICY
    """Why the policy is what it is."""


FEW_CHANGES = 1_000
"""Up to this many, fixed costs dominate and DIFFERENTIAL is always faster."""


def may_switch(mode: RefreshMode, policy: FullPolicy, changes: int) -> bool:
    """Whether costs may make a refresh FULL: never one of few changes."""
    return mode is RefreshMode.AUTO and policy is FullPolicy.ALLOW and changes > FEW_CHANGES


def choose_strategy(now: RefreshInputs) -> Strategy:
    """Choose the method of a refresh; raise FullForbidden when only FULL is possible and the user forbids it."""
    if now.reinitialize is not None and now.is_filled:
        return _reinitialize(now, now.reinitialize)
    if now.partial and not now.has_history:
        raise cannot_repair()
    if now.partial:
        return Strategy(RefreshMethod.FULL, RefreshReason.REPAIR)
    if now.is_filled and now.has_history and now.is_deterministic and not now.changes:
        return Strategy(RefreshMethod.NO_DATA, RefreshReason.UNCHANGED)
    if not now.has_plan:
        reason = (
            RefreshReason.INITIAL
            if not now.is_filled
            else RefreshReason.MODE
            if now.mode is RefreshMode.FULL
            else RefreshReason.QUERY_REFUSED
        )
        return Strategy(RefreshMethod.IN_POSTGRES, reason)
    if not now.is_filled:
        return Strategy(RefreshMethod.FULL, RefreshReason.INITIAL)
    if not now.has_history:
        if now.policy is FullPolicy.ERROR:
            raise FullForbidden(
                f"the changes since the last refresh of the stream table are no longer held, and {now.forbidden_by}",
                hint="SELECT pgtrickle.reinitialize_stream_table(name)",
            )
        return Strategy(RefreshMethod.FULL, RefreshReason.HISTORY_GONE)
    match now.mode:
        case RefreshMode.FULL:
            return Strategy(RefreshMethod.FULL, RefreshReason.MODE)
        case RefreshMode.DIFFERENTIAL | RefreshMode.IMMEDIATE:
            return Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.MODE)
        case RefreshMode.AUTO:
            return _choose_cheaper(now)


def _reinitialize(now: RefreshInputs, request: Reinitialize) -> Strategy:
    """Return the strategy for a request to compute everything once more."""
    if now.policy is FullPolicy.ERROR and not request.by_user:
        raise FullForbidden(
            f"everything has to be computed once more ({request.detail}), and {now.forbidden_by}",
            hint="SELECT pgtrickle.reinitialize_stream_table(name)",
        )
    method = RefreshMethod.FULL if now.has_plan else RefreshMethod.IN_POSTGRES
    return Strategy(method, request.reason, request.detail)


def choose_for_large_commit(now: RefreshInputs, changes: int) -> Strategy:
    """Return FULL for a query that has only small deltas, after a commit with so many change rows."""
    if now.policy is FullPolicy.ERROR:
        raise FullForbidden(
            f"a commit with {changes} change rows is too large for the delta of this query, and {now.forbidden_by}",
            hint="SELECT pgtrickle.reinitialize_stream_table(name) is one full refresh that you ask for",
        )
    return Strategy(RefreshMethod.FULL, RefreshReason.LARGE_COMMIT, f"{changes} changes in one commit")


def _choose_cheaper(now: RefreshInputs) -> Strategy:
    """Choose between DIFFERENTIAL and FULL for mode AUTO."""
    differential = Strategy(RefreshMethod.DIFFERENTIAL, RefreshReason.INCREMENTAL)
    if not may_switch(now.mode, now.policy, now.changes):
        return differential
    if now.changes > now.threshold * now.source_rows:
        detail = f"{now.changes} changes, {now.source_rows} source rows, auto_threshold {now.threshold:g}"
        return Strategy(RefreshMethod.FULL, RefreshReason.CHANGE_RATIO, detail)
    predicted = now.prediction
    if predicted is not None and predicted.differential_ms > now.prediction_ratio * predicted.full_ms:
        detail = (
            f"{now.changes} changes: about {predicted.differential_ms:.0f} ms by {predicted.samples} refreshes,"
            f" a full one about {predicted.full_ms:.0f} ms, prediction_ratio {now.prediction_ratio:g}"
        )
        return Strategy(RefreshMethod.FULL, RefreshReason.PREDICTED_COST, detail)
    return differential
