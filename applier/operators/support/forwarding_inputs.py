"""Inputs that forward every call to other inputs; a subclass overrides the calls that it handles itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.operators.support.inputs import Inputs, LinearMap, Lookup, Side, identity_map
from applier.plan.nodes import Field, Recursion, Scan
from applier.zset import ZSet


@dataclass
class ForwardingInputs:
    """Forwards everything to `inputs`, except `state_of`."""

    inputs: Inputs

    @property
    def small(self) -> bool:
        """Forward to the inputs."""
        return self.inputs.small

    def delta(self, scan: Scan) -> ZSet | None:
        """Forward to the inputs."""
        return self.inputs.delta(scan)

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        """Forward to the inputs."""
        return self.inputs.snapshot(scan, side, linear_map, lookup)

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        """Forward to the inputs."""
        return self.inputs.rows(scan, linear_map)

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        """Forward to the inputs."""
        return self.inputs.fixpoint(node, base, step)

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        """Forward to the inputs."""
        return self.inputs.materialize_small(zset, columns)

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        """Forward to the inputs."""
        return self.inputs.materialize_once(zset, columns)
