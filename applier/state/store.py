"""What is kept for every stream table between windows, and the inputs of the operators that know of it.

The state of a stream table stands at one frontier. A window that begins there is answered from it; what the window adds
is put beside it only when the next window begins where this one ended, because until then the window may be repeated.
Any other window means that the state is computed again, from the traces.
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
from applier.operators.incrementalize import delta, snapshot
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.accumulators import is_additive
from applier.operators.support.accumulators import row_accumulators as shares_of_rows
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
from applier.zset import net
from shared_schema.lsn import Lsn, LsnRange

log = logging.getLogger(__name__)

NodeState = SparkAccumulators | DriverAccumulators | MinMaxState | FixpointState | TopKBuffer
"""What is kept of one node."""


def _unchanged(held: NodeState) -> Accumulators | AffectedMinMax:
    """What is known of a node that a window does not touch."""
    return AffectedMinMax(None) if isinstance(held, MinMaxState) else Accumulators(held.before, None)


@dataclass
class StatefulInputs(ForwardingInputs):
    """The inputs of one window with what is kept for one stream table."""

    known: dict[StatefulNode, Accumulators | AffectedMinMax] = field(default_factory=dict)

    def state_of(self, node: StatefulNode) -> Accumulators | AffectedMinMax | None:
        """What is known of the node."""
        return self.known.get(node)


@dataclass
class OperatorStates:
    """Of one stream table: the shares of its nodes at `since`, which nothing changed until `until`."""

    root: Node
    node_states: dict[StatefulNode, NodeState]
    since: Lsn
    until: Lsn
    pending: tuple[Lsn, dict[StatefulNode, pa.Table]] | None = None
    """What the last window adds, and where it ended."""
    too_large: set[StatefulNode] = field(default_factory=set)
    """What is not kept after all."""

    def advance_to(self, frontier: Lsn) -> bool:
        """Whether it could be made the state at a frontier: there the last window counts, or it is forgotten."""
        if self.pending is not None and self.pending[0] == frontier:
            for node, rows in self.pending[1].items():
                shares = self.node_states[node]
                shares.add(rows)
                if isinstance(shares, DriverAccumulators | TopKBuffer) and (moved := shares.moved()):
                    self.node_states[node] = moved
                    shares.release()
            self.since = self.until = frontier
            self.pending = None
        elif self.since <= frontier <= self.until:
            self.pending = None
        else:
            return False
        return True


class StateStore:
    """By stream table. Each is used by one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables: dict[int, OperatorStates] = {}

    @contextmanager
    def through(self, table: StreamTable, lsn_range: LsnRange, inputs: Inputs) -> Iterator[Inputs]:
        """The inputs of a window for one stream table, with its state at both ends."""
        nodes = stateful_nodes(table.root)
        if not nodes:
            yield inputs
            return
        kept, views = StatefulInputs(inputs), []
        state = self._at(table, lsn_range.lower)
        if state is None:
            side = Side.BEFORE if lsn_range.lower else Side.AFTER
            state = self._computed(table, nodes, kept, side, lsn_range.lower or lsn_range.upper)
        try:
            if lsn_range.lower:
                added: dict[StatefulNode, pa.Table] = {}
                for node in nodes:
                    if (shares := self._before(node, state, kept)) is None:
                        continue
                    rows = self._added(shares, kept)
                    if isinstance(shares, TopKBuffer) and rows is not None and not shares.stands(rows):
                        whole = snapshot(shares.node.input, Side.BEFORE, kept)
                        shares.release()
                        shares = state.node_states[node] = TopKBuffer.of(
                            self._spark, shares.node, whole, count_leaving(rows)
                        )
                    kept.known[node] = _unchanged(shares)
                    if rows is not None:
                        added[node] = rows
                        kept.known[node], made = shares.with_window(rows)
                        views += made
                state.pending = lsn_range.upper, added
            yield kept
        finally:
            for view in views:
                drop_view(self._spark, view)

    def _before(self, node: StatefulNode, state: OperatorStates, kept: StatefulInputs) -> NodeState | None:
        """What is kept of the node at the beginning of a window."""
        if isinstance(node, TopK) and not kept.small:
            # So many changes are not worth bringing to the driver; what is first now is found out in the next window.
            if (shares := state.node_states.pop(node, None)) is not None:
                shares.release()
            return None
        if node not in state.node_states and node not in state.too_large:
            self._hold(node, state, Side.BEFORE, kept)
        return state.node_states.get(node)

    def _added(self, shares: NodeState, kept: StatefulInputs) -> pa.Table | None:
        match shares:
            case TopKBuffer():
                text = delta(shares.node.input, kept)
                rows = None if text is None else net(collect(self._spark.sql(text)))
                return rows if rows is not None and rows.num_rows else None
            case FixpointState():
                return recursion_delta(self._spark, shares, kept)
            case MinMaxState():
                return shares.change(kept)
            case SparkAccumulators() | DriverAccumulators():
                text = delta(shares.node.input, kept)
                if text is None:
                    return None
                rows = self._summed(shares, text)
                return rows if rows.num_rows else None
            case _:
                assert_never(shares)

    def _summed(self, shares: SparkAccumulators | DriverAccumulators, zset: str) -> pa.Table:
        """The shares of a window's Z-set, one per group."""
        if isinstance(shares, DriverAccumulators) and not is_derived(shares.node.input):
            # Few rows that are a matter of single change rows: then a query for them alone takes no job.
            rows = rows_without_job(self._spark.sql(shares_of_rows(shares.node, zset)))
            if rows is not None:
                return shares.summed(rows)
        return collect(self._spark.sql(group_accumulators(shares.node, zset)))

    def _at(self, table: StreamTable, frontier: Lsn) -> OperatorStates | None:
        state = self._tables.get(table.id)
        try:
            if state is None or (state.root == table.root and frontier and state.advance_to(frontier)):
                return state
        except BaseException:
            # Some of the shares may count already: never add them twice.
            self.forget(table.id)
            raise
        self.forget(table.id)
        return None

    def _computed(
        self, table: StreamTable, nodes: list[StatefulNode], kept: StatefulInputs, side: Side, at: Lsn
    ) -> OperatorStates:
        began = time.monotonic()
        state = self._tables[table.id] = OperatorStates(table.root, {}, at, at)
        try:
            for node in nodes:
                self._hold(node, state, side, kept)
                if node in state.node_states:
                    kept.known[node] = _unchanged(state.node_states[node])
        except BaseException:
            self.forget(table.id)
            raise
        rows = sum(shares.rows for shares in state.node_states.values())
        extra = {"table": str(table), "frontier": str(at), "rows": rows, "seconds": round(time.monotonic() - began, 3)}
        log.info("state computed", extra=extra)
        metrics.STATES_COMPUTED.inc()
        kept.known.clear()
        if side is Side.AFTER:
            kept.known |= {node: _unchanged(shares) for node, shares in state.node_states.items()}
        return state

    def _hold(self, node: StatefulNode, state: OperatorStates, side: Side, kept: StatefulInputs) -> None:
        held = self._held(node, side, kept)
        if held is None:
            state.too_large.add(node)
        else:
            state.node_states[node] = held

    def _held(self, node: StatefulNode, side: Side, kept: StatefulInputs) -> NodeState | None:
        match node:
            case TopK():
                return TopKBuffer.of(self._spark, node, snapshot(node.input, side, kept))
            case Aggregate() if not is_additive(node) and not is_derived(node.input):
                text = group_rows(node, snapshot(node.input, side, kept))
                groups = collect_at_most(self._spark, text, MAX_DRIVER_GROUPS)
                schema = self._spark.sql(text).schema
                return None if groups is None else MinMaxState(self._spark, node, schema, groups)
            case Aggregate():
                return self._shares(node, self._spark.sql(group_accumulators(node, snapshot(node.input, side, kept))))
            case Recursion():
                frame = self._spark.sql(snapshot(node, side, kept))
                rows = collect(frame)
                few = rows.num_rows <= MAX_DERIVED_ROWS
                return FixpointState(self._spark, node, frame.schema, net(rows)) if few else None
            case _:
                assert_never(node)

    def _shares(self, node: Aggregate, frame: DataFrame) -> SparkAccumulators | DriverAccumulators:
        held = SparkAccumulators(self._spark, node, frame)
        if held.rows > MAX_DRIVER_GROUPS or not is_additive(node):
            return held
        few = DriverAccumulators(self._spark, node, held.schema, held.collected())
        held.release()
        return few

    def unchanged(self, table: StreamTable, lsn_range: LsnRange) -> None:
        """A window changes nothing the stream table reads."""
        if (state := self._at(table, lsn_range.lower)) is not None:
            state.until = lsn_range.upper

    def forget(self, table_id: int) -> None:
        """A stream table is gone, or what is kept for it is of no use."""
        if (state := self._tables.pop(table_id, None)) is not None:
            for shares in state.node_states.values():
                shares.release()
