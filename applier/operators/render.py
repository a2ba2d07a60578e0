"""A plan of rows -> the Z-set that computes them, as one SELECT. Straight code: all decisions are in the plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from applier.operators.aggregate import aggregate_accumulators, render_aggregate_delta, snapshot_aggregate
from applier.operators.inner_join import inner_join, render_product
from applier.operators.linear_prefix import apply_linear
from applier.operators.outer_join import outer_join, render_outer_join_delta
from applier.operators.recursion import delta_recursion
from applier.operators.semi_join import render_semi_join_delta, semi_join
from applier.operators.support.accumulators import accumulator_columns, key_names
from applier.operators.support.delta_plan import (
    AccumulatorRows,
    AggregateDelta,
    AggregateRows,
    ChangeRows,
    ComputedRows,
    GivenRows,
    JoinDelta,
    JoinRows,
    Leaf,
    LinearRows,
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
    SidesPlan,
    SnapshotRows,
    StatePart,
    StateRows,
    SumRows,
    ValueRows,
)
from applier.operators.support.join_match import AffectedSides
from applier.operators.support.key_filter import KeyFilter
from applier.operators.top_k import render_top_k_delta, snapshot_top_k
from applier.operators.union_all import render_sum
from applier.operators.values import select_values
from applier.operators.window import render_window_delta, snapshot_window
from applier.plan.nodes import Aggregate, Join, OuterJoin, SemiJoin, TopK, Window, fields
from applier.zset import ZSet, column_names

LeafRows = Callable[[Leaf], ZSet]
"""The rows that were read for the leaves of a plan."""


def render(plan: RowsPlan, leaf: LeafRows) -> ZSet:
    """Write a plan over the rows of its leaves."""
    below = partial(render, leaf=leaf)
    match plan:
        case ChangeRows() | SnapshotRows() | StateRows() | ComputedRows() | GivenRows():
            return leaf(plan)
        case ValueRows():
            return select_values(plan.node)
        case LinearRows():
            return apply_linear(plan.node, below(plan.rows))
        case SumRows():
            return render_sum([below(term) for term in plan.terms])
        case PlacedRows():
            return below(plan.rows).place(plan.places)
        case MergedRows():
            return below(plan.rows).keep_columns(plan.ordinals, plan.types)
        case SelectedRows():
            values = render_key_values(plan.key_filter, leaf)
            return plan.key_filter.apply(below(plan.rows), values, plan.names)
        case ProductRows():
            return render_product(plan, below(plan.first), [below(other.rows) for other in plan.joined])
        case JoinRows():
            return _render_join(plan.node, below(plan.left), below(plan.right))
        case AggregateRows():
            return snapshot_aggregate(plan.node, below(plan.rows))
        case AccumulatorRows():
            return aggregate_accumulators(plan.node, below(plan.accumulators))
        case OrderedRows():
            return _render_ordered(plan.node, below(plan.rows))
        case JoinDelta():
            return render_sum([below(term) for term in plan.terms])
        case OuterJoinDelta():
            return _proven(render_outer_join_delta(plan, _render_sides(plan.sides, leaf)))
        case SemiJoinDelta():
            return _proven(render_semi_join_delta(plan, _render_sides(plan.sides, leaf)))
        case AggregateDelta():
            before = None if plan.before is None else below(plan.before)
            return render_aggregate_delta(plan, before, below(plan.delta))
        case OrderedDelta():
            return _render_ordered_delta(plan.node, below(plan.before), below(plan.delta))
        case RecursionDelta():
            return delta_recursion(plan.node, below(plan.before), below(plan.after))
        case _:
            assert_never(plan)


def render_key_values(key_filter: KeyFilter, leaf: LeafRows) -> str:
    """Write the values of the keys of a filter."""
    return key_filter.values_sql([render(rows, leaf) for _, rows in key_filter.sources])


def _render_join(node: Join | OuterJoin | SemiJoin, left: ZSet, right: ZSet) -> ZSet:
    match node:
        case Join():
            return inner_join(node, left, right)
        case OuterJoin():
            return outer_join(node, left, right)
        case SemiJoin():
            return semi_join(node, left, right)
        case _:
            assert_never(node)


def _render_ordered(node: TopK | Window, rows: ZSet) -> ZSet:
    return snapshot_top_k(node, rows) if isinstance(node, TopK) else snapshot_window(node, rows)


def _render_ordered_delta(node: TopK | Window, before: ZSet, delta: ZSet) -> ZSet:
    if isinstance(node, TopK):
        return render_top_k_delta(node, before, delta)
    return render_window_delta(node, before, delta)


def _render_sides(sides: SidesPlan, leaf: LeafRows) -> AffectedSides:
    parts = (sides.left_delta, sides.right_delta, sides.left_before, sides.right_before)
    return AffectedSides(*(None if part is None else render(part, leaf) for part in parts))


def _proven(zset: ZSet | None) -> ZSet:
    if zset is None:
        raise AssertionError("a delta that is proven empty has no plan")
    return zset


# -- plans that are written once and used again ------------------------------------------------------------------------

_HOLE = re.compile("\x00([0-9]+)\x00")


@dataclass(frozen=True, slots=True)
class Template:
    """The SELECT of a plan with a hole for each occurrence of a leaf."""

    pieces: tuple[str, ...]
    holes: tuple[int, ...]
    """For each hole the number of its leaf; there is one piece more than holes."""
    leaves: tuple[Leaf, ...]
    columns: tuple[str, ...]

    def fill(self, rows: Sequence[ZSet]) -> ZSet:
        """Return the SELECT over the rows of the leaves."""
        parts = [self.pieces[0]]
        for hole, piece in zip(self.holes, self.pieces[1:], strict=True):
            parts += (rows[hole].sql, piece)
        return ZSet("".join(parts), self.columns)


def make_template(write: Callable[[LeafRows], ZSet]) -> Template:
    """Write a plan once, whatever rows its leaves will have."""
    leaves: dict[Leaf, int] = {}

    def hole(leaf: Leaf) -> ZSet:
        number = leaves.setdefault(leaf, len(leaves))
        return ZSet(f"\x00{number}\x00", _columns_of(leaf))

    written = write(hole)
    pieces = _HOLE.split(written.sql)
    return Template(tuple(pieces[::2]), tuple(map(int, pieces[1::2])), tuple(leaves), written.columns)


def _columns_of(leaf: Leaf) -> tuple[str, ...]:
    match leaf:
        case ChangeRows():
            return tuple(column_names(len(leaf.scan.fields)))
        case SnapshotRows():
            return tuple(column_names(len(fields(leaf.node))))
        case StateRows():
            return _state_columns(leaf)
        case ComputedRows():
            return leaf.columns
        case GivenRows():
            return leaf.zset.columns
        case _:
            assert_never(leaf)


def _state_columns(leaf: StateRows) -> tuple[str, ...]:
    if not isinstance(leaf.node, Aggregate):
        return tuple(column_names(len(fields(leaf.node))))
    groups = leaf.part is StatePart.AFFECTED_GROUPS
    return tuple(key_names(leaf.node) if groups else accumulator_columns(leaf.node))
