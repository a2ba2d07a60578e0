"""Holds the operator state of every stream table between LSN ranges, and hands it to the operators with their inputs.

The state of a stream table is valid at one frontier. An LSN range that begins there is computed from it. What the range
changes is added to the state only when the next range begins where this one ended, because until then the range may be
repeated. For any other range the state is computed again, from the traces.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier import metrics
from applier.operators.aggregate import group_accumulators, group_rows
from applier.operators.delta_plans import DeltaPlans
from applier.operators.incrementalize import delta, snapshot
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.accumulators import is_additive, row_accumulators
from applier.operators.support.forwarding_inputs import ForwardingInputs
from applier.operators.support.inputs import Accumulators, AffectedMinMax, Inputs, Side, StatefulNode
from applier.plan.nodes import Aggregate, Node, Recursion, TopK, is_derived
from applier.plan.stream_table import StreamTable
from applier.spark.collect import collect, collect_at_most, rows_without_job
from applier.spark.views import drop_view
from applier.state.accumulators_driver import MAX_DRIVER_GROUPS, DriverAccumulators
from applier.state.accumulators_spark import SparkAccumulators
from applier.state.delete_rederive import recursion_delta
from applier.state.fixpoint import MAX_DERIVED_ROWS, FixpointState
from applier.state.min_max import MinMaxState
from applier.state.top_k_buffer import TopKBuffer, count_leaving
from applier.zset import ZSet, net
from shared_schema.lsn import Lsn, LsnRange

log = logging.getLogger(__name__)

NodeState = SparkAccumulators | DriverAccumulators | MinMaxState | FixpointState | TopKBuffer
"""The state of one node."""


def _unchanged(node_state: NodeState) -> Accumulators | AffectedMinMax:
    """Return the state of a node over an LSN range that does not change it."""
    return AffectedMinMax(None) if isinstance(node_state, MinMaxState) else Accumulators(node_state.before, None)


@dataclass
class StatefulInputs(ForwardingInputs):
    """The inputs of one LSN range with the state of one stream table."""

    known: dict[StatefulNode, Accumulators | AffectedMinMax] = field(default_factory=dict)

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        """Return the state of the node, if there is one."""
        return self.known.get(node)


@dataclass
class OperatorStates:
    """The states of one stream table's nodes at `since`; nothing changed them until `until`."""

    root: Node
    node_states: dict[StatefulNode, NodeState]
    since: Lsn
    until: Lsn
    pending: tuple[Lsn, dict[StatefulNode, pa.Table]] | None = None
    """The upper end of the last LSN range, and what that range adds."""
    too_large: set[StatefulNode] = field(default_factory=set)
    """Nodes whose state is too large to keep."""

    def advance_to(self, frontier: Lsn) -> bool:
        """Bring the state to a frontier; return whether that was possible.

        If the last LSN range ended there, its changes are added; otherwise they are dropped.
        """
        if self.pending is not None and self.pending[0] == frontier:
            for node, rows in self.pending[1].items():
                node_state = self.node_states[node]
                node_state.add(rows)
                if isinstance(node_state, DriverAccumulators | TopKBuffer) and (
                    rebuilt := node_state.rebuild_if_large()
                ):
                    self.node_states[node] = rebuilt
                    node_state.release()
            self.since = self.until = frontier
            self.pending = None
        elif self.since <= frontier <= self.until:
            self.pending = None
        else:
            return False
        return True


class StateStore:
    """The states of all stream tables. Each is used by one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables: dict[int, OperatorStates] = {}
        self._plans: dict[int, tuple[Node, DeltaPlans]] = {}
        """By stream table, the root of its plan and the plans of its deltas."""

    def plans_of(self, table: StreamTable) -> DeltaPlans:
        """Return the delta plans of a stream table; they are made again when its query is."""
        root, plans = self._plans.get(table.id, (None, None))
        if plans is None or root is not table.root:
            plans = DeltaPlans()
            self._plans[table.id] = table.root, plans
        return plans

    @contextmanager
    def through(self, table: StreamTable, lsn_range: LsnRange, inputs: Inputs) -> Iterator[Inputs]:
        """Yield the inputs of an LSN range for one stream table, with its state at both ends."""
        nodes = stateful_nodes(table.root)
        if not nodes:
            yield inputs
            return
        stateful, views = StatefulInputs(inputs), []
        state = self._state_at(table, lsn_range.lower)
        if state is None:
            side = Side.BEFORE if lsn_range.lower else Side.AFTER
            state = self._compute_states(table, nodes, stateful, side, lsn_range.lower or lsn_range.upper)
        try:
            if lsn_range.lower:
                added: dict[StatefulNode, pa.Table] = {}
                for node in nodes:
                    if (node_state := self._node_state_before(node, state, stateful)) is None:
                        continue
                    rows = self._node_delta(node_state, stateful, self.plans_of(table))
                    if isinstance(node_state, TopKBuffer) and rows is not None and not node_state.is_sufficient(rows):
                        whole = snapshot(node_state.node.input, Side.BEFORE, stateful)
                        node_state.release()
                        node_state = state.node_states[node] = TopKBuffer.of(
                            self._spark, node_state.node, whole, count_leaving(rows)
                        )
                    stateful.known[node] = _unchanged(node_state)
                    if rows is not None:
                        added[node] = rows
                        stateful.known[node], new_views = node_state.with_delta(rows)
                        views += new_views
                state.pending = lsn_range.upper, added
            yield stateful
        finally:
            for view in views:
                drop_view(self._spark, view)

    def _node_state_before(
        self, node: StatefulNode, state: OperatorStates, stateful: StatefulInputs
    ) -> NodeState | None:
        """Return the state of the node at the lower end of the LSN range; None when there is none."""
        if isinstance(node, TopK) and not stateful.small:
            # So many changes are not worth collecting on the driver; the buffer is read again in the next LSN range.
            if (node_state := state.node_states.pop(node, None)) is not None:
                node_state.release()
            return None
        if node not in state.node_states and node not in state.too_large:
            self._add_node_state(node, state, Side.BEFORE, stateful)
        return state.node_states.get(node)

    def _node_delta(self, node_state: NodeState, stateful: StatefulInputs, plans: DeltaPlans) -> pa.Table | None:
        if isinstance(node_state, FixpointState):
            return recursion_delta(self._spark, node_state, stateful)
        changed = delta(node_state.node.input, stateful, plans)
        if changed is None:
            return None
        match node_state:
            case TopKBuffer():
                rows = net(collect(self._spark.sql(changed.sql)))
                return rows if rows.num_rows else None
            case MinMaxState():
                return node_state.change(changed, stateful)
            case SparkAccumulators() | DriverAccumulators():
                rows = self._sum_delta(node_state, changed)
                return rows if rows.num_rows else None
            case _:
                assert_never(node_state)

    def _sum_delta(self, node_state: SparkAccumulators | DriverAccumulators, zset: ZSet) -> pa.Table:
        """Return the accumulators of a delta, one per group."""
        if isinstance(node_state, DriverAccumulators) and not is_derived(node_state.node.input):
            # The rows come from single change rows of one relation; if they are few, the query needs no Spark job.
            rows = rows_without_job(self._spark.sql(row_accumulators(node_state.node, zset).sql))
            if rows is not None:
                return node_state.sum_rows(rows)
        return collect(self._spark.sql(group_accumulators(node_state.node, zset).sql))

    def _state_at(self, table: StreamTable, frontier: Lsn) -> OperatorStates | None:
        state = self._tables.get(table.id)
        try:
            if state is None or (state.root == table.root and frontier and state.advance_to(frontier)):
                return state
        except BaseException:
            # Some of the changes may be added already: never add them twice.
            self.forget(table.id)
            raise
        self.forget(table.id)
        return None

    def _compute_states(
        self, table: StreamTable, nodes: list[StatefulNode], stateful: StatefulInputs, side: Side, at: Lsn
    ) -> OperatorStates:
        began = time.monotonic()
        state = self._tables[table.id] = OperatorStates(table.root, {}, at, at)
        try:
            for node in nodes:
                self._add_node_state(node, state, side, stateful)
                if node in state.node_states:
                    stateful.known[node] = _unchanged(state.node_states[node])
        except BaseException:
            self.forget(table.id)
            raise
        rows = sum(node_state.rows for node_state in state.node_states.values())
        extra = {"table": str(table), "frontier": str(at), "rows": rows, "seconds": round(time.monotonic() - began, 3)}
        log.info("state computed", extra=extra)
        metrics.STATES_COMPUTED.inc()
        stateful.known.clear()
        if side is Side.AFTER:
            stateful.known |= {node: _unchanged(node_state) for node, node_state in state.node_states.items()}
        return state

    def _add_node_state(self, node: StatefulNode, state: OperatorStates, side: Side, stateful: StatefulInputs) -> None:
        built = self._build_node_state(node, side, stateful)
        if built is None:
            state.too_large.add(node)
        else:
            state.node_states[node] = built

    def _build_node_state(self, node: StatefulNode, side: Side, stateful: StatefulInputs) -> NodeState | None:
        match node:
            case TopK():
                return TopKBuffer.of(self._spark, node, snapshot(node.input, side, stateful))
            case Aggregate() if not is_additive(node) and not is_derived(node.input):
                text = group_rows(node, snapshot(node.input, side, stateful))
                groups = collect_at_most(self._spark, text, MAX_DRIVER_GROUPS)
                schema = self._spark.sql(text).schema
                return None if groups is None else MinMaxState(self._spark, node, schema, groups)
            case Aggregate():
                return self._build_accumulators(
                    node, self._spark.sql(group_accumulators(node, snapshot(node.input, side, stateful)).sql)
                )
            case Recursion():
                frame = self._spark.sql(snapshot(node, side, stateful).sql)
                rows = collect(frame)
                on_driver = rows.num_rows <= MAX_DERIVED_ROWS
                return FixpointState(self._spark, node, frame.schema, net(rows)) if on_driver else None
            case _:
                assert_never(node)

    def _build_accumulators(self, node: Aggregate, frame: DataFrame) -> SparkAccumulators | DriverAccumulators:
        built = SparkAccumulators(self._spark, node, frame)
        if built.rows > MAX_DRIVER_GROUPS or not is_additive(node):
            return built
        on_driver = DriverAccumulators(self._spark, node, built.schema, built.collect_base())
        built.release()
        return on_driver

    def unchanged(self, table: StreamTable, lsn_range: LsnRange) -> None:
        """Note that the LSN range changes nothing that the stream table reads."""
        if (state := self._state_at(table, lsn_range.lower)) is not None:
            state.until = lsn_range.upper

    def forget(self, table_id: int) -> None:
        """Drop the state of a stream table: the table is gone, or the state is no longer valid."""
        self._plans.pop(table_id, None)
        if (state := self._tables.pop(table_id, None)) is not None:
            for node_state in state.node_states.values():
                node_state.release()
