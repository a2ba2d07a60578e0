"""A plan and the inputs of one LSN range -> the Z-set of its result, after its steps were run in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from applier.operators.planner import plan_snapshot
from applier.operators.recursion import step_over
from applier.operators.render import LeafRows, Template, make_template, render, render_key_values
from applier.operators.statistics import Statistics
from applier.operators.support.delta_plan import (
    ChangeRows,
    ComputedRows,
    ComputeFixpoint,
    DeltaPlan,
    GivenRows,
    Leaf,
    MaterializeDelta,
    MaterializeRows,
    RowsPlan,
    SnapshotRows,
    StatePart,
    StateRows,
    Step,
)
from applier.operators.support.inputs import (
    Accumulators,
    AffectedMinMax,
    DeltaKeys,
    Inputs,
    Lookup,
    QueryKeys,
    Side,
)
from applier.operators.support.key_filter import KeyLookup
from applier.plan.nodes import Node, Recursion, fields
from applier.zset import ZSet


@dataclass(frozen=True, slots=True)
class EmptyDelta:
    """The delta of this node turned out to be empty: the plan that reads it is made again without it."""

    node: Node


class WrittenPlan:
    """A plan whose texts are written once, except for the names of what they read."""

    def __init__(self, plan: DeltaPlan) -> None:
        self._steps = [
            (step, _write(step.base if isinstance(step, ComputeFixpoint) else step.rows)) for step in plan.steps
        ]
        self._rows = _write(plan.rows)
        templates = [*(template for _, template in self._steps), self._rows]
        self._key_values: dict[KeyLookup, Template] = {}
        """The values of the keys of each lookup."""
        for template in templates:
            self._write_lookups(template)

    def _write_lookups(self, template: Template) -> None:
        for leaf in template.leaves:
            lookup = leaf.lookup if isinstance(leaf, SnapshotRows) else None
            if isinstance(lookup, KeyLookup) and lookup not in self._key_values:
                values = self._key_values[lookup] = make_template(partial(_write_values, lookup))
                self._write_lookups(values)

    def execute(self, inputs: Inputs) -> ZSet | EmptyDelta:
        """Run the steps, then return the result as a SELECT over what they computed."""
        computed: dict[str, ZSet] = {}
        for step, template in self._steps:
            found = _run(step, self._fill(template, computed, inputs), inputs)
            if isinstance(found, EmptyDelta):
                return found
            computed[step.name] = found
        return self._fill(self._rows, computed, inputs)

    def _fill(self, template: Template, computed: dict[str, ZSet], inputs: Inputs) -> ZSet:
        return template.fill([self._read(leaf, computed, inputs) for leaf in template.leaves])

    def _read(self, leaf: Leaf, computed: dict[str, ZSet], inputs: Inputs) -> ZSet:
        """Read the rows of a leaf."""
        match leaf:
            case ChangeRows():
                return _expect(inputs.delta(leaf.scan))
            case SnapshotRows():
                lookup = self._lookup(leaf.lookup, computed, inputs)
                return inputs.snapshot(leaf.scan, leaf.side, leaf.linear_map, lookup)
            case StateRows():
                return _read_state(leaf, inputs)
            case ComputedRows():
                return computed[leaf.name]
            case GivenRows():
                return leaf.zset
            case _:
                assert_never(leaf)

    def _lookup(self, lookup: DeltaKeys | KeyLookup | None, computed: dict[str, ZSet], inputs: Inputs) -> Lookup | None:
        if not isinstance(lookup, KeyLookup):
            return lookup
        values = self._fill(self._key_values[lookup], computed, inputs)
        return QueryKeys(lookup.column, lookup.values_sql(values.sql), lookup.key_filter.null_safe)


def _write(plan: RowsPlan) -> Template:
    return make_template(partial(render, plan))


def _write_values(lookup: KeyLookup, leaf: LeafRows) -> ZSet:
    return ZSet(render_key_values(lookup.key_filter, leaf), ())


def _run(step: Step, zset: ZSet, inputs: Inputs) -> ZSet | EmptyDelta:
    """Run one step over its text; return what reads its rows."""
    match step:
        case MaterializeDelta():
            if len(zset.sql) <= step.longer_than:
                return zset
            return inputs.materialize_small(zset, fields(step.node)) or EmptyDelta(step.node)
        case MaterializeRows():
            return inputs.materialize_once(zset, step.fields)
        case ComputeFixpoint():
            return inputs.fixpoint(step.node, zset, _step_function(step.node, step.side, inputs))
        case _:
            assert_never(step)


def _step_function(node: Recursion, side: Side, inputs: Inputs) -> Callable[[ZSet], ZSet]:
    """Return the step of a recursion as a function of the rows of the last round."""

    def step(work_table: ZSet) -> ZSet:
        return execute_snapshot(plan_snapshot(step_over(node, work_table), side, Statistics(inputs)), inputs)

    return step


def execute_snapshot(plan: DeltaPlan, inputs: Inputs) -> ZSet:
    """Run a plan that reads no delta which may turn out to be empty."""
    found = WrittenPlan(plan).execute(inputs)
    if isinstance(found, EmptyDelta):
        raise AssertionError("a snapshot has no deltas")
    return found


def _read_state(leaf: StateRows, inputs: Inputs) -> ZSet:
    state = inputs.state_of(leaf.node)
    match leaf.part, state:
        case StatePart.BEFORE, Accumulators():
            return state.before()
        case StatePart.DELTA, Accumulators():
            return _expect(state.delta)
        case StatePart.AFFECTED_GROUPS, Accumulators() | AffectedMinMax() if state.affected_groups is not None:
            return state.affected_groups.rows
        case _:
            raise AssertionError("the plan does not belong to this state")


def _expect(zset: ZSet | None) -> ZSet:
    if zset is None:
        raise AssertionError("the plan does not belong to this LSN range")
    return zset
