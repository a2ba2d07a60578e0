"""Holds the operator state of every stream table between LSN ranges, and hands it to the operators with their inputs.

The state of a stream table is valid at one frontier. An LSN range that begins there is computed from it. What the range
changes is added to the state only when the next range begins where this one ended, because until then the range may be
repeated. For any other range the state is computed again, from the traces.

After a start the state is read back from the last checkpoint, when it is needed first, and brought to the LSN range's
lower end by computing the changes since then. Where that is not possible it is computed again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, assert_never

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
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.spark.collect import collect, collect_at_most, rows_without_job
from applier.spark.views import drop_view
from applier.state.accumulators_driver import MAX_DRIVER_GROUPS, DriverAccumulators
from applier.state.accumulators_spark import SparkAccumulators
from applier.state.delete_rederive import recursion_delta
from applier.state.fingerprint import state_fingerprint
from applier.state.fixpoint import MAX_DERIVED_ROWS, FixpointState
from applier.state.history import SourceHistory
from applier.state.min_max import MinMaxState
from applier.state.state_files import StateFiles
from applier.state.stored import TOO_LARGE, StoredNode, StoredState
from applier.state.stored_nodes import ExportedNode, NodeState, read_added, read_node
from applier.state.top_k_buffer import TopKBuffer, count_leaving
from applier.zset import ZSet, net
from shared_schema.dependency_facts import DependencyFacts
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn, LsnRange

log = logging.getLogger(__name__)


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
    facts: DependencyFacts | None = field(default=None, compare=False, repr=False)
    """What the catalog said when the states were computed."""
    lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)
    """Held while rows of the states change or are released."""

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


@dataclass
class _Adopted:
    """A stored state that nobody has needed yet; nothing changed what it reads until `until`."""

    stored: StoredState
    until: Lsn


@dataclass(frozen=True)
class ExportedState:
    """The states of one stream table's nodes at one moment, for a checkpoint; who exports closes it."""

    table: StreamTable
    frontier: Lsn
    fingerprint: str
    nodes: tuple[ExportedNode, ...]
    too_large: tuple[int, ...]
    """The places of nodes whose state is too large to keep."""

    def write(self, files: StateFiles) -> StoredState:
        """Write what is not in files yet."""
        nodes = [node.write(files, self.table.id) for node in self.nodes]
        nodes += [StoredNode(place, TOO_LARGE, "{}", {}) for place in self.too_large]
        return StoredState(self.frontier, self.fingerprint, tuple(nodes))

    def close(self) -> None:
        """Hold nothing any longer."""
        for node in self.nodes:
            node.close()


class NotRestorable(Exception):
    """A stored state cannot be used for this LSN range; the text says why."""


class StateStore:
    """The states of all stream tables. Each is used by one thread at a time; a checkpoint may export it meanwhile.

    Without `history` and `files` nothing is exported or restored.
    """

    def __init__(
        self, spark: SparkSession, history: SourceHistory | None = None, files: StateFiles | None = None
    ) -> None:
        self._spark = spark
        self._history = history
        self.files = files
        self._adopted: dict[int, _Adopted] = {}
        self._tables: dict[int, OperatorStates] = {}
        self._plans: dict[int, tuple[Node, DeltaPlans]] = {}
        """By stream table, the root of its plan and the plans of its deltas."""

    @property
    def spark(self) -> SparkSession:
        """The session that holds what is not on the driver."""
        return self._spark

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
        state = self._state_at(table, lsn_range.lower) or self._restore(table, nodes, lsn_range.lower)
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
                        larger = TopKBuffer.of(self._spark, node_state.node, whole, count_leaving(rows))
                        with state.lock:
                            node_state.release()
                            node_state = state.node_states[node] = larger
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
            with state.lock:
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
            if state is None:
                return None
            with state.lock:
                if state.root == table.root and frontier and state.advance_to(frontier):
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
        state = self._tables[table.id] = OperatorStates(table.root, {}, at, at, facts=table.facts)
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
        elif (adopted := self._adopted.get(table.id)) is not None:
            self._extend(table, adopted, lsn_range)

    def forget(self, table_id: int) -> None:
        """Drop the state of a stream table: the table is gone, or the state is no longer valid."""
        self._plans.pop(table_id, None)
        self._adopted.pop(table_id, None)
        if (state := self._tables.pop(table_id, None)) is not None:
            with state.lock:
                for node_state in state.node_states.values():
                    node_state.release()

    # -- between two runs -----------------------------------------------------------------------------------------

    def adopt(self, states: Mapping[str, Any], since: Lsn) -> None:
        """Take over the states of a checkpoint at `since`; each is read when it is needed first.

        One that cannot be read, or is older than the traces, is left out: it will be computed again.
        """
        for table_id, form in states.items():
            try:
                stored = StoredState.from_json(form)
                if stored.frontier >= since:
                    self._adopted[int(table_id)] = _Adopted(stored, stored.frontier)
            except (AttributeError, KeyError, TypeError, ValueError, TrickleError) as error:
                log.warning("a stored state is not known", extra={"stream_table": table_id, "error": repr(error)})
        if self.files is not None:
            self.files.know(file for adopted in self._adopted.values() for file in adopted.stored.files())

    def has_stored(self, table: StreamTable, at: Lsn) -> bool:
        """Whether there is a stored state that was not read yet and can be brought to `at`."""
        adopted = self._adopted.get(table.id)
        return adopted is not None and bool(at) and adopted.stored.frontier <= at

    def export(self, table: StreamTable, at: Lsn) -> ExportedState | StoredState | None:
        """Return the state of a stream table at `at`, its frontier in PostgreSQL; None if it is not known there.

        It is called between two ticks, and copies no more than references.
        """
        if self._history is None or isinstance(table.plan, PostgresQuery):
            return None
        if (adopted := self._adopted.get(table.id)) is not None:
            is_known = adopted.stored.frontier <= at <= adopted.until
            return StoredState(at, adopted.stored.fingerprint, adopted.stored.nodes) if is_known else None
        state = self._tables.get(table.id)
        # A refresh beside the ticks may be changing it.
        if state is None or not state.lock.acquire(blocking=False):
            return None
        try:
            return self._export(table, state, at, self._history) if self._tables.get(table.id) is state else None
        finally:
            state.lock.release()

    def _export(
        self, table: StreamTable, state: OperatorStates, at: Lsn, history: SourceHistory
    ) -> ExportedState | None:
        if state.root != table.root:
            return None
        added: dict[StatefulNode, pa.Table] = {}
        if (pending := state.pending) is not None and pending[0] == at:
            added = pending[1]
        elif not state.since <= at <= state.until:
            return None
        if (digest := state_fingerprint(table, state.facts, history.copies(table))) is None:
            return None
        places = {node: place for place, node in enumerate(stateful_nodes(table.root))}
        nodes = [
            ExportedNode.of(places[node], node_state, added.get(node))
            for node, node_state in list(state.node_states.items())
        ]
        return ExportedState(table, at, digest, tuple(nodes), tuple(places[node] for node in list(state.too_large)))

    def _restore(self, table: StreamTable, nodes: list[StatefulNode], at: Lsn) -> OperatorStates | None:
        """Return the stored state, brought to `at`; None when there is none, or it cannot be used."""
        adopted = self._adopted.pop(table.id, None)
        if adopted is None or not at:
            return None
        began = time.monotonic()
        extra: dict[str, Any] = {"table": str(table), "frontier": str(at), "stored": str(adopted.stored.frontier)}
        try:
            self._read(table, nodes, adopted, at)
            if adopted.until < at:
                self._replay(table, LsnRange(adopted.until, at))
            state = self._state_at(table, at)
        except NotRestorable as reason:
            log.info("state is computed again", extra={**extra, "reason": str(reason)})
            state = None
        except Exception as error:
            # Whatever is wrong with files or with the rows of that time: the traces have everything.
            problem = str(error) if isinstance(error, OSError | TrickleError) else ""
            log.warning("stored state was not used", extra={**extra, "error": type(error).__name__, "problem": problem})
            state = None
        if state is None:
            self.forget(table.id)
            return None
        metrics.STATES_RESTORED.inc()
        rows = sum(node_state.rows for node_state in state.node_states.values())
        log.info("state restored", extra={**extra, "rows": rows, "seconds": round(time.monotonic() - began, 3)})
        return state

    def _read(self, table: StreamTable, nodes: list[StatefulNode], adopted: _Adopted, at: Lsn) -> None:
        """Make a stored state that of the stream table."""
        stored = adopted.stored
        if self._history is None or self.files is None:
            raise NotRestorable("no folder is known")
        if at < stored.frontier:
            raise NotRestorable("the stream table is at an older frontier")
        if stored.fingerprint != state_fingerprint(table, table.facts, self._history.copies(table)):
            raise NotRestorable("the query, a source or the version is another one")
        state = OperatorStates(table.root, {}, stored.frontier, adopted.until, facts=table.facts)
        try:
            self._fill(state, nodes, stored, self.files)
        except BaseException:
            for node_state in state.node_states.values():
                node_state.release()
            raise
        state.until = adopted.until
        # Only now: a checkpoint must not see a part of it.
        self._tables[table.id] = state

    def _fill(self, state: OperatorStates, nodes: list[StatefulNode], stored: StoredState, files: StateFiles) -> None:
        added: dict[StatefulNode, pa.Table] = {}
        for one in stored.nodes:
            node = nodes[one.place]
            if one.kind == TOO_LARGE:
                state.too_large.add(node)
                continue
            state.node_states[node] = read_node(self._spark, files, node, one)
            if (rows := read_added(files, one)) is not None:
                added[node] = rows
        if added:
            state.pending = stored.frontier, added
            state.advance_to(stored.frontier)

    def _replay(self, table: StreamTable, lsn_range: LsnRange) -> None:
        """Bring the state from the lower to the upper end of a past range."""
        if self._history is None:
            raise NotRestorable("no rows of the past are known")
        with self._history.between(table, lsn_range) as inputs, self.through(table, lsn_range, inputs):
            pass

    def _extend(self, table: StreamTable, adopted: _Adopted, lsn_range: LsnRange) -> None:
        """Note that nothing changed in an LSN range; and before it, if nothing did."""
        if self._history is None or lsn_range.lower < adopted.stored.frontier:
            return
        since = LsnRange(adopted.until, max(adopted.until, lsn_range.lower))
        if since.lower == since.upper or self._history.is_unchanged(table, since):
            adopted.until = max(adopted.until, lsn_range.upper)
