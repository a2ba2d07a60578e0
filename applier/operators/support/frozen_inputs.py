"""The inputs as they are at one end of a window, where nothing changes any more."""

from __future__ import annotations

from dataclasses import dataclass

from applier.operators.support.forwarding_inputs import ForwardingInputs
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.nodes import Scan


@dataclass
class FrozenInputs(ForwardingInputs):
    """`few`: what meets them is small enough to broadcast."""

    side: Side
    few: bool

    @property
    def small(self) -> bool:
        """Of what meets them; the window does not count."""
        return self.few

    def delta(self, scan: Scan) -> str | None:
        """Nothing changes."""
        del scan
        return None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> str:
        """The same at either end; what meets them is no change of the window."""
        del side, lookup
        return self.inputs.snapshot(scan, self.side, linear_map)

    def state_of(self, node: StatefulNode) -> None:
        """Nothing: what is kept changes with the window."""
        del node
