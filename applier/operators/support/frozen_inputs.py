"""Inputs of an LSN range -> the same inputs frozen at one end of it, where nothing changes."""

from __future__ import annotations

from dataclasses import dataclass

from applier.operators.support.forwarding_inputs import ForwardingInputs
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.nodes import Scan
from applier.zset import ZSet


@dataclass
class FrozenInputs(ForwardingInputs):
    """`few`: the rows that are joined with these inputs are small enough to broadcast."""

    side: Side
    few: bool

    @property
    def small(self) -> bool:
        """Whether the rows that are joined with these inputs are few; the change rows of the LSN range do not count."""
        return self.few

    def delta(self, scan: Scan) -> ZSet | None:
        """Return None: nothing changes."""
        del scan
        return None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        """Return the same at either end. The lookup is ignored: its keys belong to a change of the LSN range."""
        del side, lookup
        return self.inputs.snapshot(scan, self.side, linear_map)

    def state_of(self, node: StatefulNode) -> None:
        """Return None: state changes over the LSN range."""
        del node
