"""How a delta or a snapshot is computed: the closed union of which delta plans consist. Pure.

All decisions are in such a plan: which state is used, which rows are looked up by which keys, what is joined in which
order and what is broadcast, what is computed by itself first. `operators.planner` makes it, `operators.render` writes
it as SQL, straight, and `explain` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from applier.operators.support.inputs import DeltaKeys, LinearMap, Side, StatefulNode
from applier.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    TopK,
    Unnest,
    Values,
    Window,
)
from applier.zset import ZSet

if TYPE_CHECKING:
    from applier.operators.support.key_filter import KeyFilter, KeyLookup

# -- where rows come from ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ChangeRows:
    """ΔR: the change rows of a relation, which are not proven to cancel out."""

    scan: Scan


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotRows:
    """f(R): a relation at one end of the LSN range, with the linear map of `node`; only the rows of the lookup."""

    node: Node
    scan: Scan
    linear_map: LinearMap
    side: Side
    lookup: DeltaKeys | KeyLookup | None


class StatePart(Enum):
    """What is read of a node's state."""

    BEFORE = "before"
    DELTA = "delta"
    AFFECTED_GROUPS = "affected groups"


@dataclass(frozen=True, slots=True, eq=False)
class StateRows:
    """Rows of the state of a node."""

    node: StatefulNode
    part: StatePart


@dataclass(frozen=True, slots=True, eq=False)
class ComputedRows:
    """The rows of an earlier step of the same plan."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """Rows that the caller computed, such as those of a work table."""

    zset: ZSet


Leaf = ChangeRows | SnapshotRows | StateRows | ComputedRows | GivenRows
"""What is read before a plan is written as SQL."""

# -- rows made of rows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ValueRows:
    """Rows that are written in the query."""

    node: Values


@dataclass(frozen=True, slots=True, eq=False)
class LinearRows:
    """A linear operator over the rows of its input."""

    node: Filter | Project | Repeat | Unnest
    rows: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class SumRows:
    """The sum of one or more Z-sets."""

    terms: tuple[RowsPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """Rows with their columns named by their places in a wider row."""

    rows: RowsPlan
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """Some columns of rows; rows that are equal in them become one."""

    rows: RowsPlan
    ordinals: tuple[int, ...]
    types: tuple[str, ...]
    """Their Spark types."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedRows:
    """The rows that a key filter selects; `names` are the keys, where columns have other names."""

    rows: RowsPlan
    key_filter: KeyFilter
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JoinedInput:
    """One more input of a product: its rows, their places, the conditions that become ready, the broadcast side."""

    node: Node
    rows: RowsPlan
    places: range
    conditions: tuple[str, ...]
    broadcast: str | None


@dataclass(frozen=True, slots=True, eq=False)
class ProductRows:
    """Few rows of one input of a join, joined with the other inputs one by one."""

    node: Node
    first: RowsPlan
    places: range
    joined: tuple[JoinedInput, ...]


@dataclass(frozen=True, slots=True, eq=False)
class JoinRows:
    """A join of two Z-sets as it is written."""

    node: Join | OuterJoin | SemiJoin
    left: RowsPlan
    right: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class AggregateRows:
    """An aggregate over a whole Z-set."""

    node: Aggregate
    rows: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class AccumulatorRows:
    """An aggregate from its accumulators."""

    node: Aggregate
    accumulators: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class OrderedRows:
    """A LIMIT or window functions over a whole Z-set."""

    node: TopK | Window
    rows: RowsPlan


# -- deltas of operators that are not linear ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class JoinDelta:
    """Δ of a product: one term for each input that changes."""

    node: Join
    terms: tuple[ProductRows, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SidesPlan:
    """The deltas of both inputs of a match, and their rows before, for the affected keys; None is not needed."""

    left_delta: RowsPlan | None
    right_delta: RowsPlan | None
    left_before: RowsPlan | None
    right_before: RowsPlan | None


@dataclass(frozen=True, slots=True, eq=False)
class OuterJoinDelta:
    """Δ of an outer join. `broadcast`: the deltas are few enough to be sent to where the other rows are."""

    node: OuterJoin
    sides: SidesPlan
    broadcast: bool


@dataclass(frozen=True, slots=True, eq=False)
class SemiJoinDelta:
    """Δ of a semi-join or anti-join."""

    node: SemiJoin
    sides: SidesPlan


class AggregateMode(Enum):
    """From what the old and new results of the affected groups are computed."""

    FROM_SUMS = "sums"
    """The sums at both ends, or minima and maxima, from state on the driver."""
    FROM_SIGNED_SUMS = "signed sums"
    """The same for so few groups that each is sent twice."""
    FROM_STATE = "state"
    """The accumulators of the state before, and those of the delta."""
    FROM_INPUT = "input"
    """The rows of the affected groups before, and the delta of the input."""


@dataclass(frozen=True, slots=True, eq=False)
class AggregateDelta:
    """Δ of an aggregate on the affected groups. `before` is None where the delta says it."""

    node: Aggregate
    mode: AggregateMode
    before: RowsPlan | None
    delta: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class OrderedDelta:
    """Δ of a LIMIT or of window functions: the affected partitions before, and the delta of the input."""

    node: TopK | Window
    before: RowsPlan
    delta: RowsPlan


@dataclass(frozen=True, slots=True, eq=False)
class RecursionDelta:
    """Δ of a recursion that is computed again in whole."""

    node: Recursion
    before: RowsPlan
    after: RowsPlan


RowsPlan = (
    Leaf
    | ValueRows
    | LinearRows
    | SumRows
    | PlacedRows
    | MergedRows
    | SelectedRows
    | ProductRows
    | JoinRows
    | AggregateRows
    | AccumulatorRows
    | OrderedRows
    | JoinDelta
    | OuterJoinDelta
    | SemiJoinDelta
    | AggregateDelta
    | OrderedDelta
    | RecursionDelta
)

# -- what is computed by itself ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MaterializeDelta:
    """Compute the delta of a node now if its text is longer than `longer_than`; it may turn out to be empty."""

    name: str
    node: Node
    rows: RowsPlan
    longer_than: int


@dataclass(frozen=True, slots=True, eq=False)
class MaterializeRows:
    """Compute rows of any number now, because they are read more than once."""

    name: str
    rows: RowsPlan
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ComputeFixpoint:
    """Derive all rows of a recursion at one end of the LSN range, round by round."""

    name: str
    node: Recursion
    side: Side
    base: RowsPlan


Step = MaterializeDelta | MaterializeRows | ComputeFixpoint


@dataclass(frozen=True, slots=True, eq=False)
class DeltaPlan:
    """The steps in their order, then the result."""

    steps: tuple[Step, ...]
    rows: RowsPlan


@dataclass(frozen=True, slots=True)
class StateSummary:
    """What plans depend on of a node's state."""

    holds_rows: bool
    """Whether the state can be read as rows at both ends; minima and maxima cannot."""
    has_changed: bool
    groups: AggregateMode | None
    """FROM_SUMS or FROM_SIGNED_SUMS where the affected groups are already added up."""


@dataclass(frozen=True, slots=True)
class Size:
    """What plans depend on of the number of rows of an input: its place among the inputs of a join, and whether the
    whole input is small enough to broadcast."""

    rank: int
    is_tiny: bool
