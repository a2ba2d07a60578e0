"""The inputs as they are at one end of a window, where nothing changes any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.operators.inputs import Inputs, Keeper, Rule, Side, unchanged
from applier.plan.nodes import Field, Recursion, Scan


@dataclass(frozen=True, slots=True)
class AtOneEnd:
    """`small`: what meets them is small enough to broadcast."""

    inputs: Inputs
    side: Side
    small: bool

    def delta(self, scan: Scan) -> str | None:
        """Nothing changes."""
        del scan
        return None

    def snapshot(self, scan: Scan, side: Side, rule: Rule = unchanged) -> str:
        """The same at either end."""
        del side
        return self.inputs.snapshot(scan, self.side, rule)

    def rows(self, scan: Scan, rule: Rule = unchanged) -> int | None:
        """As the window's."""
        return self.inputs.rows(scan, rule)

    def fixpoint(self, node: Recursion, base: str, step: Callable[[str], str]) -> str:
        """As the window's."""
        return self.inputs.fixpoint(node, base, step)

    def settled(self, zset: str, columns: Sequence[Field]) -> str | None:
        """As the window's."""
        return self.inputs.settled(zset, columns)

    def shared(self, zset: str, columns: Sequence[Field]) -> str:
        """As the window's."""
        return self.inputs.shared(zset, columns)

    def kept(self, node: Keeper) -> None:
        """Nothing: what is kept changes with the window."""
        del node
