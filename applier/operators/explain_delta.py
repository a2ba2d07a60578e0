"""Writes how a change of each table becomes a change of the result: the delta plan that a usual refresh executes.

A usual change is small and changes one table, and all state is held. Columns have the names of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from applier.operators.planner import plan_delta
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.statistics import Statistics
from applier.operators.support.accumulators import is_additive
from applier.operators.support.delta_plan import (
    AccumulatorRows,
    AggregateDelta,
    AggregateMode,
    AggregateRows,
    ChangeRows,
    ComputedRows,
    ComputeFixpoint,
    DeltaPlan,
    GivenRows,
    JoinDelta,
    JoinRows,
    LinearRows,
    MaterializeDelta,
    MaterializeRows,
    MergedRows,
    OrderedDelta,
    OrderedRows,
    OuterJoinDelta,
    PlacedRows,
    ProductRows,
    RecursionDelta,
    RowsPlan,
    SelectedRows,
    SemiJoinDelta,
    SnapshotRows,
    StateRows,
    SumRows,
    ValueRows,
)
from applier.operators.support.inputs import (
    Accumulators,
    AffectedGroups,
    AffectedMinMax,
    LinearMap,
    Lookup,
    Side,
    StatefulNode,
    identity_map,
)
from applier.plan.explain import describe
from applier.plan.limits import PlanBudget
from applier.plan.naming import NamedNode, name_columns
from applier.plan.nodes import Aggregate, Field, Node, Recursion, Scan, StreamPlan, is_derived, scans
from applier.zset import LEFT, RIGHT, ZSet
from shared_schema.table_schema import TableId

_NOTHING = ZSet("", ())
_INDENT = "  "


def explain_deltas(plan: StreamPlan, budget: PlanBudget | None = None) -> str:
    """Return for each table what a change of it alone makes a refresh do; with a budget, it ends in time."""
    names = {id(found.node): found for found in name_columns(plan).walk()}
    stateful = stateful_nodes(plan.root)
    lines: list[str] = []
    for table in dict.fromkeys(scan.table for scan in scans(plan.root)):
        lines += _explain_change(plan.root, table, stateful, _Words(names), budget)
    return "".join(f"{line}\n" for line in lines)


def _explain_change(
    root: Node, table: TableId, stateful: Sequence[StatefulNode], words: _Words, budget: PlanBudget | None
) -> Iterator[str]:
    inputs = UsualInputs(table, frozenset(stateful))
    yield f"a change of {table}:"
    for node in stateful:
        if isinstance(node, Recursion) or table not in {scan.table for scan in scans(node)}:
            continue
        if (found := plan_delta(node.input, Statistics(inputs, budget=budget))[0]) is not None:
            yield f"{_INDENT}updates the state of {words.node(node)}"
            yield from words.plan(found, 2)
    changed = plan_delta(root, Statistics(inputs, budget=budget))[0]
    if changed is None:
        yield f"{_INDENT}changes nothing"
    else:
        yield f"{_INDENT}changes the result"
        yield from words.plan(changed, 2)


@dataclass(frozen=True, slots=True)
class UsualInputs:
    """A small change of one table, and the state of all nodes that keep some. Nothing can be read."""

    table: TableId
    stateful: frozenset[StatefulNode]
    small: bool = True

    def delta(self, scan: Scan) -> ZSet | None:
        """Return that the table changed and no other."""
        return _NOTHING if scan.table == self.table else None

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        """Return None: sizes are not known."""
        del scan, linear_map
        return None

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        """Return the state as it is held for few groups."""
        if node not in self.stateful:
            return None
        changed = any(scan.table == self.table for scan in scans(node))
        groups = AffectedGroups(_NOTHING, True) if changed else None
        if isinstance(node, Aggregate) and not is_additive(node) and not is_derived(node.input):
            return AffectedMinMax(groups)
        added_up = groups if isinstance(node, Aggregate) and is_additive(node) else None
        return Accumulators(lambda: _NOTHING, _NOTHING if changed else None, added_up)

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        """Fail: a plan is only printed."""
        raise NotImplementedError

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        """Fail: a plan is only printed."""
        raise NotImplementedError

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        """Fail: a plan is only printed."""
        raise NotImplementedError

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        """Fail: a plan is only printed."""
        raise NotImplementedError


class _Words:
    """Describes parts of delta plans, with the names of the query."""

    def __init__(self, names: dict[int, NamedNode]) -> None:
        self._names = names
        self._inline: dict[str, RowsPlan] = {}
        """Steps that are computed by themselves only where their text is long."""

    def node(self, node: Node) -> str:
        found = self._names.get(id(node))
        return type(node).__name__ if found is None else describe(found)

    def plan(self, plan: DeltaPlan, depth: int) -> Iterator[str]:
        self._inline = {}
        for step in plan.steps:
            match step:
                case MaterializeDelta(longer_than=0) | MaterializeRows():
                    yield f"{_INDENT * depth}{step.name}, computed by itself because it is read again"
                    yield from self._rows(step.rows, depth + 1)
                case MaterializeDelta():
                    self._inline[step.name] = step.rows
                case ComputeFixpoint():
                    yield f"{_INDENT * depth}{step.name}, all rows of {self.node(step.node)} {step.side.value}"
                case _:
                    assert_never(step)
        yield from self._rows(plan.rows, depth)

    def _rows(self, rows: RowsPlan, depth: int) -> Iterator[str]:
        """Describe rows, one line for each part, inputs below what reads them."""
        match rows:
            case ChangeRows():
                yield f"{_INDENT * depth}the change rows of {self._relation(rows.scan)}"
            case SnapshotRows():
                yield f"{_INDENT * depth}{self._snapshot(rows)}"
            case StateRows():
                yield f"{_INDENT * depth}the state of {self.node(rows.node)}, {rows.part.value}"
            case ComputedRows() if rows.name in self._inline:
                yield from self._rows(self._inline[rows.name], depth)
            case ComputedRows():
                yield f"{_INDENT * depth}{rows.name}"
            case GivenRows() | ValueRows():
                yield f"{_INDENT * depth}rows that do not change"
            case LinearRows() | PlacedRows() | MergedRows():
                yield from self._rows(rows.rows, depth)
            case SelectedRows():
                # A lookup already says by which keys the rows are found.
                if isinstance(rows.rows, SnapshotRows) and rows.rows.lookup is not None:
                    yield from self._rows(rows.rows, depth)
                else:
                    yield f"{_INDENT * depth}only rows with affected keys{self._broadcast(rows.key_filter.broadcast)}"
                    yield from self._rows(rows.rows, depth + 1)
            case SumRows():
                for term in rows.terms:
                    yield from self._rows(term, depth)
            case ProductRows():
                yield from self._product(rows, depth)
            case JoinRows():
                yield f"{_INDENT * depth}{self.node(rows.node)}"
                yield from self._rows(rows.left, depth + 1)
                yield from self._rows(rows.right, depth + 1)
            case AggregateRows() | OrderedRows():
                yield f"{_INDENT * depth}{self.node(rows.node)}"
                yield from self._rows(rows.rows, depth + 1)
            case AccumulatorRows():
                yield f"{_INDENT * depth}{self.node(rows.node)}, from accumulators"
                yield from self._rows(rows.accumulators, depth + 1)
            case (
                JoinDelta() | OuterJoinDelta() | SemiJoinDelta() | AggregateDelta() | OrderedDelta() | RecursionDelta()
            ):
                yield from self._delta(rows, depth)
            case _:
                assert_never(rows)

    def _delta(
        self,
        rows: JoinDelta | OuterJoinDelta | SemiJoinDelta | AggregateDelta | OrderedDelta | RecursionDelta,
        depth: int,
    ) -> Iterator[str]:
        """Describe the delta of an operator that is not linear."""
        match rows:
            case JoinDelta():
                for term in rows.terms:
                    yield from self._rows(term, depth)
            case OuterJoinDelta() | SemiJoinDelta():
                scope = "the affected keys" if rows.node.equi else "all rows"
                yield f"{_INDENT * depth}{self.node(rows.node)}, for {scope}, before and after"
                sides = rows.sides
                for part in (sides.left_delta, sides.right_delta, sides.left_before, sides.right_before):
                    if part is not None:
                        yield from self._rows(part, depth + 1)
            case AggregateDelta():
                yield f"{_INDENT * depth}{self.node(rows.node)}, from {self._mode(rows)}"
                if rows.mode is AggregateMode.FROM_INPUT and rows.before is not None:
                    yield from self._rows(rows.delta, depth + 1)
                    yield from self._rows(rows.before, depth + 1)
            case OrderedDelta(before=StateRows()):
                yield f"{_INDENT * depth}{self.node(rows.node)}, from the first rows in its state"
            case OrderedDelta():
                scope = "the affected partitions" if rows.node.keys else "all rows"
                yield f"{_INDENT * depth}{self.node(rows.node)}, for {scope}, before and after"
                yield from self._rows(rows.delta, depth + 1)
                yield from self._rows(rows.before, depth + 1)
            case RecursionDelta():
                yield f"{_INDENT * depth}{self.node(rows.node)}, in whole, before and after"
            case _:
                assert_never(rows)

    def _product(self, rows: ProductRows, depth: int) -> Iterator[str]:
        yield from self._rows(rows.first, depth)
        for joined in rows.joined:
            first, *others = self._rows(joined.rows, depth + 1)
            sent = {LEFT: ", the rows so far are broadcast", RIGHT: ", which is broadcast", None: ""}[joined.broadcast]
            yield f"{_INDENT * (depth + 1)}joined with {first.strip()}{sent}"
            yield from (f"{_INDENT}{line}" for line in others)

    def _relation(self, node: Node) -> str:
        found = self._names.get(id(node))
        scan = next(scans(node))
        return found.alias if found is not None and found.alias else str(scan.table)

    def _snapshot(self, rows: SnapshotRows) -> str:
        found, text = self._names.get(id(rows.node)), f"{self._relation(rows.scan)} {rows.side.value}"
        if rows.lookup is None or found is None:
            return text
        return f"{text}, looked up by {found.output_writer().column(rows.lookup.column)}"

    @staticmethod
    def _broadcast(broadcast: bool) -> str:
        return ", which are broadcast" if broadcast else ""

    @staticmethod
    def _mode(rows: AggregateDelta) -> str:
        match rows.mode:
            case AggregateMode.FROM_SUMS | AggregateMode.FROM_SIGNED_SUMS:
                return "the sums in its state" if is_additive(rows.node) else "the minima and maxima in its state"
            case AggregateMode.FROM_STATE:
                return "the accumulators in its state"
            case AggregateMode.FROM_INPUT:
                return "the rows of the affected groups"
            case _:
                assert_never(rows.mode)
