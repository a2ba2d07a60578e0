"""A plan node -> the SELECT of its delta, or of its snapshot: the table of contents of this folder.

The law of every line here: delta(node) = snapshot(node, after) − snapshot(node, before).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from applier.operators.aggregate import (
    aggregate_accumulators,
    delta_aggregate,
    delta_from_accumulators,
    delta_from_sums,
    snapshot_aggregate,
)
from applier.operators.estimate_rows import estimate_rows
from applier.operators.inner_join import delta_join, inner_join, join_where
from applier.operators.linear_prefix import apply_linear, linear_prefix
from applier.operators.outer_join import delta_outer_join, outer_join
from applier.operators.recursion import delta_recursion, step_over
from applier.operators.scan import delta_scan, snapshot_scan
from applier.operators.semi_join import delta_semi_join, semi_join
from applier.operators.support.accumulators import key_names
from applier.operators.support.inputs import Accumulators, AffectedMinMax, Inputs, Lookup, Side
from applier.operators.support.join_match import join_match_of
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.operand_delta import OperandDelta
from applier.operators.top_k import delta_top_k, snapshot_top_k
from applier.operators.union_all import sum_deltas, sum_zsets
from applier.operators.unnest import apply_unnest
from applier.operators.values import select_values
from applier.operators.window import delta_window, snapshot_window
from applier.plan.expr import columns_read
from applier.plan.nodes import (
    Aggregate,
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
    scans,
)
from applier.zset import ZSet, column_names

LONG_TEXT = 4_000
"""A delta with a longer text is computed by itself before others read it: Spark would plan all of the text."""


def snapshot(node: Node, side: Side, inputs: Inputs, lookup: Lookup | None = None) -> ZSet:
    """Return the node's whole result at one end of the LSN range.

    For a relation, `lookup` may name the rows that are needed at least; then fewer rows may come.
    """
    if (prefix := linear_prefix(node)) is not None:
        return snapshot_scan(*prefix, side, inputs, lookup)
    match node:
        case Scan():
            raise AssertionError("a Scan is always a linear prefix")
        case Values():
            return select_values(node)
        case WorkTable():
            if node.text is None:
                raise AssertionError("a work table outside its recursion")
            return ZSet(node.text, _names(node))
        case Recursion():
            if isinstance(state := inputs.state_of(node), Accumulators):
                return _state_at(state, side)

            def step(work_table: ZSet) -> ZSet:
                return snapshot(step_over(node, work_table), side, inputs)

            return inputs.fixpoint(node, snapshot(node.base, side, inputs), step)
        case Unnest():
            return apply_unnest(node, snapshot(node.input, side, inputs))
        case Filter() | Project() | Repeat():
            return apply_linear(node, snapshot(node.input, side, inputs))
        case Join():
            return inner_join(node, snapshot(node.left, side, inputs), snapshot(node.right, side, inputs))
        case OuterJoin():
            return outer_join(node, snapshot(node.left, side, inputs), snapshot(node.right, side, inputs))
        case SemiJoin():
            return semi_join(node, snapshot(node.left, side, inputs), snapshot(node.right, side, inputs))
        case Aggregate():
            if isinstance(state := inputs.state_of(node), Accumulators):
                return aggregate_accumulators(node, _state_at(state, side))
            return snapshot_aggregate(node, snapshot(node.input, side, inputs))
        case UnionAll():
            return sum_zsets([snapshot(branch, side, inputs) for branch in node.branches])
        case TopK():
            state = inputs.state_of(node)
            rows = _state_at(state, side) if isinstance(state, Accumulators) else snapshot(node.input, side, inputs)
            return snapshot_top_k(node, rows)
        case Window():
            return snapshot_window(node, snapshot(node.input, side, inputs))
        case _:
            assert_never(node)


def delta(node: Node, inputs: Inputs) -> ZSet | None:
    """Return the delta of the node's result over the LSN range; None when it is proven empty."""
    operand = partial(_operand_delta, inputs=inputs, again=True)
    match node:
        case Scan():
            return delta_scan(node, inputs)
        case Values():
            return None
        case WorkTable():
            return None if node.changed is None else ZSet(node.changed, _names(node))
        case Recursion():
            if isinstance(state := inputs.state_of(node), Accumulators):
                return state.delta
            if all(inputs.delta(scan) is None for scan in scans(node)):
                return None
            return delta_recursion(node, *(snapshot(node, side, inputs) for side in (Side.BEFORE, Side.AFTER)))
        case Unnest():
            below = delta(node.input, inputs)
            return None if below is None else apply_unnest(node, below)
        case Filter() | Project() | Repeat():
            below = delta(node.input, inputs)
            return None if below is None else apply_linear(node, below)
        case Join():
            once = partial(_operand_delta, inputs=inputs, again=False)
            return delta_join(node, once, small=inputs.small, size=partial(estimate_rows, inputs=inputs))
        case OuterJoin():
            return delta_outer_join(node, operand(node.left), operand(node.right), small=inputs.small)
        case SemiJoin():
            return delta_semi_join(node, operand(node.left), operand(node.right), small=inputs.small)
        case Aggregate() if (state := inputs.state_of(node)) is not None:
            if state.affected_groups is not None:
                return delta_from_sums(node, state.affected_groups)
            if isinstance(state, AffectedMinMax):
                return None
            return (
                None
                if state.delta is None
                else delta_from_accumulators(node, state.before(), state.delta, small=inputs.small)
            )
        case TopK() if isinstance(state := inputs.state_of(node), Accumulators):
            buffered = state.before
            return (
                None
                if state.delta is None
                else delta_top_k(node, lambda _: buffered(), state.delta, small=inputs.small)
            )
        case Aggregate() | TopK() | Window():
            below = _materialize(node.input, delta(node.input, inputs), inputs, again=True)
            if below is None:
                return None
            before = partial(snapshot_where, node.input, Side.BEFORE, inputs=inputs)
            if isinstance(node, Aggregate):
                return delta_aggregate(node, before, below, small=inputs.small)
            if isinstance(node, TopK):
                return delta_top_k(node, before, below, small=inputs.small)
            return delta_window(node, before, below, small=inputs.small)
        case UnionAll():
            return sum_deltas([delta(branch, inputs) for branch in node.branches])
        case _:
            assert_never(node)


def _materialize(node: Node, zset: ZSet | None, inputs: Inputs, *, again: bool = False) -> ZSet | None:
    """Return a Z-set that is as small as the change; computes it now if it is read `again`, or if its text is long."""
    if zset is None or not ((again and is_derived(node)) or len(zset.sql) > LONG_TEXT):
        return zset
    return inputs.materialize_small(zset, fields(node))


def _state_at(state: Accumulators, side: Side) -> ZSet:
    """Return the node's state at one end of the LSN range."""
    return sum_zsets([state.before()] if state.delta is None or side is Side.BEFORE else [state.before(), state.delta])


def _operand_delta(node: Node, inputs: Inputs, *, again: bool) -> OperandDelta:
    def affected(key_filter: KeyFilter, again: bool, only: Sequence[int] | None) -> ZSet:
        rows = snapshot_where(node, Side.BEFORE, key_filter, inputs)
        columns = fields(node) if only is None else [fields(node)[i] for i in only]
        if only is not None:
            rows = rows.keep_columns(only)
        # Without keys it is the whole input, which needs no copy.
        return inputs.materialize_once(rows, columns) if again and key_filter.keys else rows

    changed = _materialize(node, delta(node, inputs), inputs, again=again)

    def whole(side: Side, lookup: Lookup | None) -> ZSet:
        return snapshot(node, side, inputs, lookup)

    return OperandDelta(changed, whole, affected)


def snapshot_where(node: Node, side: Side, key_filter: KeyFilter, inputs: Inputs) -> ZSet:
    """Return the rows of the node's result that the key filter selects: σ_key_filter(snapshot(node, side)).

    The filter is pushed down to the inputs wherever their columns decide it, so that no more is read than necessary.
    """
    below = partial(snapshot_where, side=side, inputs=inputs)
    if linear_prefix(node) is not None:
        return key_filter.apply(snapshot(node, side, inputs, key_filter.index_lookup()))
    match node:
        case Filter() | Repeat() if key_filter.keys:
            return apply_linear(node, below(node.input, key_filter=key_filter))
        case Project() if key_filter.keys:
            return apply_linear(node, below(node.input, key_filter=key_filter.push_through(node.exprs)))
        case UnionAll() if key_filter.keys:
            return sum_zsets([below(branch, key_filter=key_filter) for branch in node.branches])
        case Join() if key_filter.keys:

            def part(factor: Node, part_filter: KeyFilter | None) -> ZSet:
                return snapshot(factor, side, inputs) if part_filter is None else below(factor, key_filter=part_filter)

            return join_where(node, key_filter, part, size=partial(estimate_rows, inputs=inputs))
        case SemiJoin() if key_filter.keys:
            left = inputs.materialize_once(below(node.left, key_filter=key_filter), fields(node.left))
            return semi_join(node, left, _possible_matches(node, left, side, key_filter, inputs))
        case OuterJoin() if not node.full and _reads_only(key_filter, range(len(fields(node.left)))):
            left = inputs.materialize_once(below(node.left, key_filter=key_filter), fields(node.left))
            return outer_join(node, left, _possible_matches(node, left, side, key_filter, inputs))
        case Aggregate() if _reads_only(key_filter, range(len(node.keys))):
            if not isinstance(state := inputs.state_of(node), Accumulators):
                return snapshot_aggregate(node, below(node.input, key_filter=key_filter.push_through(node.keys)))
            if (column_ordinals := key_filter.column_ordinals()) is None:
                return key_filter.apply(snapshot(node, side, inputs))
            return aggregate_accumulators(
                node, key_filter.apply(_state_at(state, side), [key_names(node)[i] for i in column_ordinals])
            )
        case TopK() if key_filter.keys and set(key_filter.keys) <= set(node.keys):
            return snapshot_top_k(node, below(node.input, key_filter=key_filter))
        case Window() if key_filter.keys and set(key_filter.keys) <= set(node.keys):
            return snapshot_window(node, below(node.input, key_filter=key_filter))
        case _:
            return key_filter.apply(snapshot(node, side, inputs))


def _possible_matches(
    node: SemiJoin | OuterJoin, left: ZSet, side: Side, key_filter: KeyFilter, inputs: Inputs
) -> ZSet:
    """Return the right rows that may match these left rows."""
    partners = join_match_of(node).matches_of(left, small=key_filter.small)
    return snapshot_where(node.right, side, partners, inputs)


def _names(node: Node) -> tuple[str, ...]:
    return tuple(column_names(len(fields(node))))


def _reads_only(key_filter: KeyFilter, places: range) -> bool:
    reads = [set(columns_read(key)) for key in key_filter.keys]
    return bool(reads) and all(read and read <= set(places) for read in reads)
