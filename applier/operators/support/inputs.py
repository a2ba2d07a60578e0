"""The interface through which operators read one LSN range: relations before it, after it, and their deltas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from applier.plan.nodes import Aggregate, Field, Recursion, Scan, TopK
from applier.zset import WEIGHT, ZSet


class Side(Enum):
    """The two ends of an LSN range."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class AffectedGroups:
    """The groups of an aggregate that a delta affects, with their accumulators at both ends of the LSN range."""

    rows: ZSet
    signed: bool
    """Whether each group is present twice, with weight −1 for its old result and +1 for its new one."""

    def once(self) -> ZSet:
        """Return each group once."""
        return self.rows.filter(f"{WEIGHT} > 0") if self.signed else self.rows


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The state of a node at the lower end of the LSN range, and its delta over that range, as SELECTs that add up.

    For an aggregate these are the accumulators of its input, for a recursion the rows that it derived, for a LIMIT the
    first rows of its input.
    """

    before: Callable[[], ZSet]
    delta: ZSet | None
    """None when nothing is added."""
    affected_groups: AffectedGroups | None = None
    """The affected groups, where their sums at both ends are already added up."""


@dataclass(frozen=True, slots=True)
class AffectedMinMax:
    """The minima and maxima of the affected groups of an aggregate; None when no group is affected."""

    affected_groups: AffectedGroups | None


StatefulNode = Aggregate | Recursion | TopK
"""The nodes that may keep state between LSN ranges."""

LinearMap = Callable[[ZSet], ZSet]
"""A function of Z-sets that treats each row alone: f(A + B) = f(A) + f(B)."""


def identity_map(zset: ZSet) -> ZSet:
    """Return the Z-set as it is."""
    return zset


@dataclass(frozen=True, slots=True)
class DeltaKeys:
    """Only the rows of a relation that may match a change are needed: those whose `column`, after the linear map, is
    one of the values that column `place` of `scan` has in the change rows of the LSN range. Other rows may come too."""

    column: int
    scan: Scan
    place: int


@dataclass(frozen=True, slots=True)
class QueryKeys:
    """The same for the values of a small SELECT with column q0; with `null_safe` NULL equals NULL."""

    column: int
    values: str
    null_safe: bool


Lookup = DeltaKeys | QueryKeys
"""The rows of a relation that are needed at least."""

INDEXED_TYPES = frozenset({"smallint", "int", "bigint"})
"""Spark types by whose values rows can be looked up."""


class Inputs(Protocol):
    """The traces over one LSN range; each Z-set is a SELECT of the scan's columns and the weight."""

    @property
    def small(self) -> bool:
        """Whether the deltas of the LSN range are small enough to broadcast."""

    def delta(self, scan: Scan) -> ZSet | None:
        """Return the change rows of the LSN range; None when there are none."""

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        """Return a linear map of the relation at one end of the LSN range; most of it may be in an arrangement."""

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        """Return about how many rows the relation has after the linear map; None when it is not known."""

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        """Return the whole result of a recursion; `step` maps the rows of one round to those of the next."""

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        """Compute the Z-set now; return a SELECT of it, None when it is empty. Only for one as small as the change."""

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        """Return a SELECT of the Z-set, of any size, that is computed once however often it is read."""

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        """Return the state of the node; None when there is none, and the node must be computed from its input."""
