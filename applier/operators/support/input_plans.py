"""The interface through which an operator plans its inputs: their deltas, their rows, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from applier.operators.support.delta_plan import RowsPlan, Size, StateSummary
from applier.operators.support.inputs import DeltaKeys, Side, StatefulNode
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Field, Join, Node, Scan


class InputPlans(Protocol):
    """One LSN range, as plans see it. None is proven empty."""

    @property
    def small(self) -> bool:
        """Whether the deltas of the LSN range are small enough to broadcast and to be held on the driver."""

    def has_changed(self, scan: Scan) -> bool:
        """Whether the change rows of the relation do not cancel out."""

    def state_of(self, node: StatefulNode) -> StateSummary | None:
        """Return what is known of the node's state; None when there is none."""

    def sizes_of(self, node: Join, factors: Sequence[Node]) -> tuple[Size, ...]:
        """Return the sizes of the inputs of a product."""

    def delta_read_once(self, node: Node) -> RowsPlan | None:
        """Plan the delta of an input; it is computed by itself where its text is long."""

    def delta_read_again(self, node: Node) -> RowsPlan | None:
        """Plan the delta of an input that is read more than once: it is computed by itself unless that is trivial."""

    def snapshot(self, node: Node, side: Side, lookup: DeltaKeys | None = None) -> RowsPlan:
        """Plan the rows of an input; of a relation with a `lookup`, at least the rows that it names."""

    def snapshot_where(self, node: Node, side: Side, key_filter: KeyFilter) -> RowsPlan:
        """Plan the rows of an input that the key filter selects."""

    def read_again(self, rows: RowsPlan, columns: Sequence[Field]) -> RowsPlan:
        """Plan rows that are read more than once: they are computed by themselves if they are few."""
