"""What is kept for every stream table between windows, and the inputs of the operators that know of it.

The state of a stream table stands at one frontier. A window that begins there is answered from it; what the window adds
is put beside it only when the next window begins where this one ended, because until then the window may be repeated.
Any other window means that the state is computed again, from the traces.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier import metrics
from applier.operators.aggregate import shares_of
from applier.operators.calls import additive
from applier.operators.incrementalize import delta, snapshot
from applier.operators.inputs import Inputs, Rule, Shares, Side, unchanged
from applier.plan.nodes import Aggregate, Field, Node, Recursion, Scan, derived, inputs
from applier.state.shares import SharesInSpark
from applier.state.sums import MOST_GROUPS, SumsOnDriver
from applier.stream_table import StreamTable
from applier.trace.views import drop_view
from shared_schema.lsn import Lsn, Window

log = logging.getLogger(__name__)


def kept_nodes(root: Node) -> list[Aggregate]:
    """The aggregates whose shares are worth keeping, inner ones first.

    Sums always are. A multiset of values is only where its rows are not those of a relation, which is kept anyway.
    What a recursion computes is computed in whole.
    """
    found = [node for node in _within(root) if isinstance(node, Aggregate) and (additive(node) or derived(node.input))]
    return list(dict.fromkeys(found))


def _within(node: Node) -> Iterator[Node]:
    if not isinstance(node, Recursion):
        for child in inputs(node):
            yield from _within(child)
    yield node


@dataclass
class KeptInputs:
    """The inputs of one window with what is kept for one stream table."""

    inputs: Inputs
    known: dict[Aggregate, Shares] = field(default_factory=dict)

    @property
    def small(self) -> bool:
        """As the window's."""
        return self.inputs.small

    def delta(self, scan: Scan) -> str | None:
        """As the window's."""
        return self.inputs.delta(scan)

    def snapshot(self, scan: Scan, side: Side, rule: Rule = unchanged) -> str:
        """As the window's."""
        return self.inputs.snapshot(scan, side, rule)

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

    def kept(self, node: Aggregate) -> Shares | None:
        """What is known of the node."""
        return self.known.get(node)


@dataclass
class TableState:
    """Of one stream table: the shares of its nodes at `since`, which nothing changed until `until`."""

    root: Node
    shares: dict[Aggregate, SharesInSpark | SumsOnDriver]
    since: Lsn
    until: Lsn
    pending: tuple[Lsn, dict[Aggregate, pa.Table]] | None = None
    """What the last window adds, and where it ended."""

    def brought_to(self, frontier: Lsn) -> bool:
        """Whether it could be made the state at a frontier: there the last window counts, or it is forgotten."""
        if self.pending is not None and self.pending[0] == frontier:
            for node, rows in self.pending[1].items():
                shares = self.shares[node]
                shares.add(rows)
                if isinstance(shares, SumsOnDriver) and (moved := shares.moved()):
                    self.shares[node] = moved
                    shares.release()
            self.since = self.until = frontier
            self.pending = None
        elif self.since <= frontier <= self.until:
            self.pending = None
        else:
            return False
        return True


class States:
    """By stream table. Each is used by one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables: dict[int, TableState] = {}

    @contextmanager
    def through(self, table: StreamTable, window: Window, inputs: Inputs) -> Iterator[Inputs]:
        """The inputs of a window for one stream table, with its state at both ends."""
        nodes = kept_nodes(table.root)
        if not nodes:
            yield inputs
            return
        kept, views = KeptInputs(inputs), []
        state = self._at(table, window.old)
        if state is None:
            side = Side.BEFORE if window.old else Side.AFTER
            state = self._computed(table, nodes, kept, side, window.old or window.new)
        try:
            if window.old:
                added: dict[Aggregate, pa.Table] = {}
                for node in nodes:
                    shares = state.shares[node]
                    rows = self._added(node, kept)
                    kept.known[node] = Shares(shares.before, None)
                    if rows is not None:
                        added[node] = rows
                        kept.known[node], made = shares.with_window(rows)
                        views += made
                state.pending = window.new, added
            yield kept
        finally:
            for view in views:
                drop_view(self._spark, view)

    def _added(self, node: Aggregate, kept: KeptInputs) -> pa.Table | None:
        text = delta(node.input, kept)
        if text is None:
            return None
        rows = self._spark.sql(shares_of(node, text)).toArrow()
        return rows if rows.num_rows else None

    def _at(self, table: StreamTable, frontier: Lsn) -> TableState | None:
        state = self._tables.get(table.id)
        try:
            if state is None or (state.root == table.root and frontier and state.brought_to(frontier)):
                return state
        except BaseException:
            # Some of the shares may count already: never add them twice.
            self.forget(table.id)
            raise
        self.forget(table.id)
        return None

    def _computed(
        self, table: StreamTable, nodes: list[Aggregate], kept: KeptInputs, side: Side, at: Lsn
    ) -> TableState:
        began = time.monotonic()
        state = self._tables[table.id] = TableState(table.root, {}, at, at)
        try:
            for node in nodes:
                text = shares_of(node, snapshot(node.input, side, kept))
                shares = state.shares[node] = self._held(node, self._spark.sql(text))
                kept.known[node] = Shares(shares.before, None)
        except BaseException:
            self.forget(table.id)
            raise
        rows = sum(shares.rows for shares in state.shares.values())
        extra = {"table": str(table), "frontier": str(at), "rows": rows, "seconds": round(time.monotonic() - began, 3)}
        log.info("state of aggregates computed", extra=extra)
        metrics.STATES_COMPUTED.inc()
        kept.known.clear()
        if side is Side.AFTER:
            kept.known |= {node: Shares(shares.before, None) for node, shares in state.shares.items()}
        return state

    def _held(self, node: Aggregate, frame: DataFrame) -> SharesInSpark | SumsOnDriver:
        held = SharesInSpark(self._spark, node, frame)
        if held.rows > MOST_GROUPS or not additive(node):
            return held
        few = SumsOnDriver(self._spark, node, held.schema, held.collected())
        held.release()
        return few

    def unchanged(self, table: StreamTable, window: Window) -> None:
        """A window changes nothing the stream table reads."""
        if (state := self._at(table, window.old)) is not None:
            state.until = window.new

    def forget(self, table_id: int) -> None:
        """A stream table is gone, or what is kept for it is of no use."""
        if (state := self._tables.pop(table_id, None)) is not None:
            for shares in state.shares.values():
                shares.release()
