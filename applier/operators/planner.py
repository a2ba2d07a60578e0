"""A plan node -> how its delta, or its rows, are computed: the table of contents of this folder.

The law of every line here: delta(node) = snapshot(node, after) − snapshot(node, before).
All decisions are taken here and in the operators' `plan_…` functions, from statistics alone. Nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, assert_never

from applier.operators.aggregate import plan_aggregate_delta
from applier.operators.estimate_rows import size_source
from applier.operators.inner_join import plan_join_delta, plan_join_where
from applier.operators.linear_prefix import linear_prefix
from applier.operators.outer_join import plan_outer_join_delta
from applier.operators.recursion import plan_recursion_delta
from applier.operators.scan import plan_scan_delta
from applier.operators.semi_join import plan_semi_join_delta
from applier.operators.statistics import Fact, HasChanged, IsSmall, Question, SizesOf, StateOf, Statistics
from applier.operators.support.accumulators import key_names
from applier.operators.support.delta_plan import (
    AccumulatorRows,
    AggregateRows,
    ChangeRows,
    ComputedRows,
    ComputeFixpoint,
    DeltaPlan,
    GivenRows,
    JoinRows,
    LinearRows,
    MaterializeDelta,
    MaterializeRows,
    OrderedRows,
    RowsPlan,
    SelectedRows,
    Size,
    SnapshotRows,
    StatePart,
    StateRows,
    StateSummary,
    Step,
    SumRows,
    ValueRows,
)
from applier.operators.support.inputs import DeltaKeys, Side, StatefulNode
from applier.operators.support.join_match import join_match_of
from applier.operators.support.key_filter import KeyFilter, KeyLookup
from applier.operators.top_k import plan_top_k_delta
from applier.operators.union_all import plan_sum
from applier.operators.window import plan_window_delta
from applier.plan.expr import columns_read
from applier.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    Node,
    OuterJoin,
    Project,
    Recursion,
    Repeat,
    Scan,
    SemiJoin,
    TopK,
    UnionAll,
    Unnest,
    Values,
    Window,
    WorkTable,
    fields,
    is_derived,
)
from applier.zset import column_names

LONG_TEXT = 4_000
"""A delta with a longer text is computed by itself before others read it: Spark would plan all of the text."""

T = TypeVar("T")


def plan_delta(node: Node, statistics: Statistics) -> tuple[DeltaPlan | None, tuple[Fact, ...]]:
    """Plan the delta of the node's result over the LSN range; None when it is proven empty.

    Returns also the facts on which the plan depends: it holds wherever they do.
    """
    planner = Planner(statistics)
    rows = planner.delta(node)
    return None if rows is None else DeltaPlan(tuple(planner.steps), rows), planner.facts


def plan_snapshot(node: Node, side: Side, statistics: Statistics) -> DeltaPlan:
    """Plan the node's whole result at one end of the LSN range."""
    planner = Planner(statistics)
    rows = planner.snapshot(node, side)
    return DeltaPlan(tuple(planner.steps), rows)


def plan_snapshot_where(node: Node, side: Side, key_filter: KeyFilter, statistics: Statistics) -> DeltaPlan:
    """Plan the rows of the node's result that the key filter selects."""
    planner = Planner(statistics)
    rows = planner.snapshot_where(node, side, key_filter)
    return DeltaPlan(tuple(planner.steps), rows)


class Planner:
    """Makes one plan: implements `InputPlans` for the operators."""

    def __init__(self, statistics: Statistics) -> None:
        self.steps: list[Step] = []
        self._facts: dict[tuple[type, int], Fact] = {}
        self._statistics = statistics

    def _ask(self, question: Question[T]) -> T:
        answer = self._statistics.ask(question)
        self._facts[type(question), id(question.subject)] = question, answer
        return answer

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the plan depends on."""
        return tuple(self._facts.values())

    @property
    def small(self) -> bool:
        """Whether the deltas of the LSN range are few."""
        return self._ask(IsSmall())

    def has_changed(self, scan: Scan) -> bool:
        """Whether the change rows of the relation do not cancel out."""
        return self._ask(HasChanged(scan))

    def state_of(self, node: StatefulNode) -> StateSummary | None:
        """Return what is known of the node's state; None when there is none."""
        return self._ask(StateOf(node))

    def sizes_of(self, node: Join, factors: Sequence[Node]) -> tuple[Size, ...]:
        """Return the sizes of the inputs of a product."""
        return self._ask(SizesOf(node, tuple(size_source(factor) for factor in factors)))

    def delta(self, node: Node) -> RowsPlan | None:
        """Plan the delta of a node; None when it is proven empty."""
        match node:
            case Scan():
                return plan_scan_delta(node, self)
            case Values():
                return None
            case WorkTable():
                return None if node.delta is None else GivenRows(node.delta)
            case Recursion():
                return plan_recursion_delta(node, self)
            case Filter() | Project() | Repeat() | Unnest():
                below = self.delta(node.input)
                return None if below is None else LinearRows(node, below)
            case Join():
                return plan_join_delta(node, self)
            case OuterJoin():
                return plan_outer_join_delta(node, self)
            case SemiJoin():
                return plan_semi_join_delta(node, self)
            case Aggregate():
                return plan_aggregate_delta(node, self)
            case TopK():
                return plan_top_k_delta(node, self)
            case Window():
                return plan_window_delta(node, self)
            case UnionAll():
                return plan_sum([self.delta(branch) for branch in node.branches])
            case _:
                assert_never(node)

    def delta_read_once(self, node: Node) -> RowsPlan | None:
        """Plan the delta of an input; it is computed by itself where its text is long."""
        return self._materialize_delta(node, self.delta(node), LONG_TEXT)

    def delta_read_again(self, node: Node) -> RowsPlan | None:
        """Plan the delta of an input that is read more than once: it is computed by itself unless that is trivial."""
        return self._materialize_delta(node, self.delta(node), 0 if is_derived(node) else LONG_TEXT)

    def _materialize_delta(self, node: Node, rows: RowsPlan | None, longer_than: int) -> RowsPlan | None:
        """Plan the step that computes a delta. It is as small as the change if the LSN range is small."""
        if rows is None or isinstance(rows, ChangeRows) or not self.small:
            return rows
        # A node's hash is that of its whole tree: asking an empty set first spares it in nearly every plan.
        if self._statistics.empty and node in self._statistics.empty:
            return None
        name = self._next_name()
        self.steps.append(MaterializeDelta(name, node, rows, longer_than))
        return ComputedRows(name, _columns(node))

    def read_again(self, rows: RowsPlan, columns: Sequence[Field]) -> RowsPlan:
        """Plan rows that are read more than once: they are computed by themselves if the LSN range is small."""
        if not self.small:
            return rows
        name = self._next_name()
        self.steps.append(MaterializeRows(name, rows, tuple(columns)))
        return ComputedRows(name, tuple(column_names(len(columns))))

    def _next_name(self) -> str:
        return f"step {len(self.steps) + 1}"

    def snapshot(self, node: Node, side: Side, lookup: DeltaKeys | KeyLookup | None = None) -> RowsPlan:
        """Plan the node's whole result at one end of the LSN range.

        For a relation, `lookup` may name the rows that are needed at least; then fewer rows may come.
        """
        self._statistics.check_time()
        if (prefix := linear_prefix(node)) is not None:
            return SnapshotRows(node, *prefix, side, lookup)
        match node:
            case Scan():
                raise AssertionError("a Scan is always a linear prefix")
            case Values():
                return ValueRows(node)
            case WorkTable():
                if node.rows is None:
                    raise AssertionError("a work table outside its recursion")
                return GivenRows(node.rows)
            case Recursion():
                return self._state_rows(node, side) or self._fixpoint(node, side)
            case Filter() | Project() | Repeat() | Unnest():
                return LinearRows(node, self.snapshot(node.input, side))
            case Join() | OuterJoin() | SemiJoin():
                return JoinRows(node, self.snapshot(node.left, side), self.snapshot(node.right, side))
            case Aggregate():
                if (state := self._state_rows(node, side)) is not None:
                    return AccumulatorRows(node, state)
                return AggregateRows(node, self.snapshot(node.input, side))
            case UnionAll():
                return SumRows(tuple(self.snapshot(branch, side) for branch in node.branches))
            case TopK():
                return OrderedRows(node, self._state_rows(node, side) or self.snapshot(node.input, side))
            case Window():
                return OrderedRows(node, self.snapshot(node.input, side))
            case _:
                assert_never(node)

    def _state_rows(self, node: StatefulNode, side: Side) -> RowsPlan | None:
        """Plan the node's state at one end of the LSN range; None where it cannot be read as rows."""
        state = self.state_of(node)
        if state is None or not state.holds_rows:
            return None
        before = StateRows(node, StatePart.BEFORE)
        if side is Side.BEFORE or not state.has_changed:
            return before
        return SumRows((before, StateRows(node, StatePart.DELTA)))

    def _fixpoint(self, node: Recursion, side: Side) -> ComputedRows:
        base = self.snapshot(node.base, side)
        name = self._next_name()
        self.steps.append(ComputeFixpoint(name, node, side, base))
        return ComputedRows(name, _columns(node))

    def snapshot_where(self, node: Node, side: Side, key_filter: KeyFilter) -> RowsPlan:
        """Plan the rows of the node's result that the key filter selects: σ_key_filter(snapshot(node, side)).

        The filter is pushed down to the inputs wherever their columns decide it, so that no more is read than
        necessary.
        """
        if linear_prefix(node) is not None:
            return _select(self.snapshot(node, side, key_filter.index_lookup()), key_filter)
        match node:
            case Filter() | Repeat() if key_filter.keys:
                return LinearRows(node, self.snapshot_where(node.input, side, key_filter))
            case Project() if key_filter.keys:
                return LinearRows(node, self.snapshot_where(node.input, side, key_filter.push_through(node.exprs)))
            case UnionAll() if key_filter.keys:
                return SumRows(tuple(self.snapshot_where(branch, side, key_filter) for branch in node.branches))
            case Join() if key_filter.keys:
                return plan_join_where(node, side, key_filter, self)
            case SemiJoin() if key_filter.keys:
                return self._join_from_left(node, side, key_filter)
            case OuterJoin() if not node.full and _reads_only(key_filter, range(len(fields(node.left)))):
                return self._join_from_left(node, side, key_filter)
            case Aggregate() if _reads_only(key_filter, range(len(node.keys))):
                if (state := self._state_rows(node, side)) is None:
                    below = self.snapshot_where(node.input, side, key_filter.push_through(node.keys))
                    return AggregateRows(node, below)
                if (ordinals := key_filter.column_ordinals()) is None:
                    return SelectedRows(AccumulatorRows(node, state), key_filter)
                names = tuple(key_names(node)[i] for i in ordinals)
                return AccumulatorRows(node, SelectedRows(state, key_filter, names))
            case TopK() | Window() if key_filter.keys and set(key_filter.keys) <= set(node.keys):
                return OrderedRows(node, self.snapshot_where(node.input, side, key_filter))
            case _:
                return _select(self.snapshot(node, side), key_filter)

    def _join_from_left(self, node: SemiJoin | OuterJoin, side: Side, key_filter: KeyFilter) -> JoinRows:
        """Plan the left rows that the filter selects, and the right rows that may match these."""
        match = join_match_of(node)
        left = self.read_again(self.snapshot_where(node.left, side, key_filter), fields(node.left))
        matches = KeyFilter.of(
            match.right.exprs, match.left.keys, left, null_safe=False, broadcast=key_filter.broadcast
        )
        return JoinRows(node, left, self.snapshot_where(node.right, side, matches))


def _select(rows: RowsPlan, key_filter: KeyFilter) -> RowsPlan:
    return SelectedRows(rows, key_filter) if key_filter.keys else rows


def _columns(node: Node) -> tuple[str, ...]:
    return tuple(column_names(len(fields(node))))


def _reads_only(key_filter: KeyFilter, places: range) -> bool:
    reads = [set(columns_read(key)) for key in key_filter.keys]
    return bool(reads) and all(read and read <= set(places) for read in reads)
