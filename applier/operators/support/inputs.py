"""What an operator may ask about one window: a relation before it, after it, and what changed in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from applier.plan.nodes import Aggregate, Field, Recursion, Scan, TopK
from applier.zset import WEIGHT


class Side(Enum):
    """The two ends of a window."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class AffectedGroups:
    """The groups of an aggregate that a window touches, with what they are made of at both ends."""

    rows: str
    signed: bool
    """Whether each is there twice, with the weights of what it was and of what it is."""

    def once(self) -> str:
        """A SELECT of each group once."""
        return f"SELECT * FROM ({self.rows}) WHERE {WEIGHT} > 0" if self.signed else self.rows


@dataclass(frozen=True, slots=True)
class Accumulators:
    """What is kept of a node since the last window, and what this one adds, as SELECTs of what can be added up.

    Of an aggregate the shares of its input, of a recursion the rows it derived, of a LIMIT the first rows of its input.
    """

    before: Callable[[], str]
    delta: str | None
    """None when nothing is added."""
    affected_groups: AffectedGroups | None = None
    """Where somebody has added up their sums at both ends already."""


@dataclass(frozen=True, slots=True)
class AffectedMinMax:
    """The least and largest values of the groups of an aggregate, of which a window touches some or none."""

    affected_groups: AffectedGroups | None


StatefulNode = Aggregate | Recursion | TopK
"""The nodes of which something may be kept between windows."""

LinearMap = Callable[[str], str]
"""A Z-set -> what is made of each of its rows alone: f(A + B) = f(A) + f(B)."""


def identity_map(zset: str) -> str:
    """The rule that does nothing."""
    return zset


@dataclass(frozen=True, slots=True)
class DeltaKeys:
    """Of a relation only the rows that may meet a change are needed: those whose `column`, of what the rule makes of
    them, is one of the values that `place` of `scan` has in the window's change rows. Others may come too."""

    column: int
    scan: Scan
    place: int


@dataclass(frozen=True, slots=True)
class QueryKeys:
    """The same for the values of a small SELECT, q0; with `null_safe` NULL is one of them."""

    column: int
    values: str
    null_safe: bool


Lookup = DeltaKeys | QueryKeys
"""Which rows of a relation are needed at least."""

INDEXED_TYPES = frozenset({"smallint", "int", "bigint"})
"""Carriers of which rows are found by value."""


class Inputs(Protocol):
    """The traces as seen through one window; each answer is a SELECT of the scan's columns and their weight."""

    @property
    def small(self) -> bool:
        """Whether the window's deltas are small enough to broadcast."""

    def delta(self, scan: Scan) -> str | None:
        """Change rows of the window; None when there are none."""

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> str:
        """A rule of the relation at one end of the window; most of it may have been applied before."""

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        """About how many rows the relation has after the rule; None when nobody knows."""

    def fixpoint(self, node: Recursion, base: str, step: Callable[[str], str]) -> str:
        """The whole result of a recursion, whose step maps the rows of one round to those of the next."""

    def materialize_small(self, zset: str, columns: Sequence[Field]) -> str | None:
        """The same Z-set, computed now; None when it is empty. Only for what is as small as the change."""

    def materialize_once(self, zset: str, columns: Sequence[Field]) -> str:
        """The same Z-set, of any size, to be read several times and computed once."""

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        """What is kept for the node; None when nothing is, and it must be computed from its input."""
