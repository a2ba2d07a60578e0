"""A1 ⋈ … ⋈ An: all combinations of rows that the conditions accept.

    Δ(A1 ⋈ … ⋈ An) = Σ_i A1 ⋈ … ⋈ A(i−1) ⋈ ΔAi ⋈ A'(i+1) ⋈ … ⋈ A'n, where A' = A + ΔA; weights multiply

There is one term per input that changes. Nested joins are flattened into one product. Each term begins with its delta
and joins the other inputs one by one, so that intermediate results stay as small as the change; the written order would
join the whole inputs before it reaches the delta.   Reads the traces of the other inputs, keeps no state.

Intuitively: only new rows make new combinations, and a pair of two new rows must be counted once, so inputs on the
left are read before the change and inputs on the right after it.

    A: (1, a) (2, b)   B: (1, p)     result (1, a, 1, p)
    ΔA: +(3, c)   ΔB: +(2, q) +(3, r)  →  ΔA ⋈ B' = +(3, c, 3, r)  and  A ⋈ ΔB = +(2, b, 2, q)
        →  delta +(3, c, 3, r) +(2, b, 2, q)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from applier.functions.emit import spark_sql
from applier.operators.support.delta_plan import (
    JoinDelta,
    JoinedInput,
    JoinRows,
    ProductRows,
    RowsPlan,
    SelectedRows,
    Size,
)
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.inputs import INDEXED_TYPES, DeltaKeys, Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.expr import Col, Expr, columns_read, shift
from applier.plan.keys import row_key
from applier.plan.lineage import column_of
from applier.plan.nodes import Join, Node, fields
from applier.zset import LEFT, RIGHT, ZSet, column_names


@dataclass(frozen=True, slots=True)
class _Factor:
    """One input of the product, and the places of its columns in the output."""

    node: Node
    places: range


@dataclass(frozen=True, slots=True)
class _Condition:
    """One join condition, over the output's columns."""

    text: str
    reads: frozenset[int]
    pair: tuple[Expr, Expr] | None
    """The two sides of an equality."""
    reads_of_sides: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())


def inner_join(node: Join, left: ZSet, right: ZSet) -> ZSet:
    """Return A ⋈ B of two Z-sets, in the order in which they are written."""
    width, right_width = len(fields(node.left)), len(fields(node.right))
    conditions = [f"{spark_sql(le)} = {spark_sql(shift(re, width))}" for le, re in node.equi]
    if node.residual is not None:
        conditions.append(spark_sql(node.residual))
    return left.times(right.place(range(width, width + right_width)), conditions)


def plan_join_delta(node: Join, inputs: InputPlans) -> JoinDelta | None:
    """Plan the delta of the product.

    A snapshot is read only when another input changed, so an input without changes causes no reads of the others.
    """
    factors, conditions = _flatten(node, 0)
    deltas = [inputs.delta_read_once(factor.node) for factor in factors]
    if all(delta is None for delta in deltas):
        return None
    product = _Product(factors, conditions, inputs.sizes_of(node, [factor.node for factor in factors]), inputs.small)

    def term(changed: int, delta: RowsPlan) -> ProductRows:
        def read(other: int) -> RowsPlan:
            return inputs.snapshot(factors[other].node, _side_for(other, changed), product.delta_keys(other, changed))

        return product.join_from(changed, delta, read)

    return JoinDelta(node, tuple(term(i, delta) for i, delta in enumerate(deltas) if delta is not None))


def render_product(plan: ProductRows, first: ZSet, others: Sequence[ZSet]) -> ZSet:
    """Return the rows of the first input joined with the others, in the plan's order; columns c0, c1 … of the output.

    A delta of a join is the sum of such products, one for each input that changes.
    """
    joined = first.place(plan.places)
    for other, rows in zip(plan.joined, others, strict=True):
        joined = joined.times(rows.place(other.places), other.conditions, other.broadcast)
    return joined.select(column_names(len(joined.columns)))


def _side_for(factor: int, changed: int) -> Side:
    """Return the end at which an input is read: before for inputs left of the changed one, after for those right of it.

    So a pair of changes is counted exactly once.
    """
    return Side.BEFORE if factor < changed else Side.AFTER


def plan_join_where(node: Join, side: Side, key_filter: KeyFilter, inputs: InputPlans) -> RowsPlan:
    """Plan the rows of A1 ⋈ … ⋈ An that the key filter selects.

    Begins with the input that has most of the keys, then joins the others as for a delta.
    """
    factors, conditions = _flatten(node, 0)
    keys_of = [_keys_within(key_filter, factor) for factor in factors]
    first = max(range(len(factors)), key=lambda i: len(keys_of[i]))
    if not keys_of[first]:
        whole = JoinRows(node, inputs.snapshot(node.left, side), inputs.snapshot(node.right, side))
        return SelectedRows(whole, key_filter)
    sizes = inputs.sizes_of(node, [factor.node for factor in factors])
    product = _Product(factors, conditions, sizes, key_filter.broadcast)
    own_filter = key_filter.restrict_to(keys_of[first], factors[first].places.start)
    first_rows = inputs.snapshot_where(factors[first].node, side, own_filter)
    joined = product.join_from(first, first_rows, lambda other: inputs.snapshot(factors[other].node, side))
    return joined if len(keys_of[first]) == len(key_filter.keys) else SelectedRows(joined, key_filter)


def _keys_within(key_filter: KeyFilter, factor: _Factor) -> list[int]:
    reads = [set(columns_read(key)) for key in key_filter.keys]
    return [place for place, read in enumerate(reads) if read and read <= set(factor.places)]


def _flatten(node: Join, offset: int) -> tuple[list[_Factor], list[_Condition]]:
    """Return the inputs of nested joins, left to right, and all their conditions."""
    factors: list[_Factor] = []
    conditions: list[_Condition] = []
    width = len(fields(node.left))
    for side, start in ((node.left, offset), (node.right, offset + width)):
        if isinstance(side, Join):
            inner, also = _flatten(side, start)
            factors += inner
            conditions += also
        else:
            factors.append(_Factor(side, range(start, start + len(fields(side)))))
    for left, right in node.equi:
        pair = shift(left, offset), shift(right, offset + width)
        sides = frozenset(columns_read(pair[0])), frozenset(columns_read(pair[1]))
        text = f"{spark_sql(pair[0])} = {spark_sql(pair[1])}"
        conditions.append(_Condition(text, sides[0] | sides[1], pair, sides))
    if node.residual is not None:
        moved = shift(node.residual, offset)
        conditions.append(_Condition(spark_sql(moved), frozenset(columns_read(moved)), None))
    return factors, conditions


@dataclass(frozen=True, slots=True)
class _Product:
    """Inputs that may be joined in any order. `few`: the rows with which a product begins are few."""

    factors: Sequence[_Factor]
    conditions: Sequence[_Condition]
    sizes: Sequence[Size]
    few: bool

    def join_from(self, first: int, rows: RowsPlan, read: Callable[[int], RowsPlan]) -> ProductRows:
        """Join these rows of one input with all other inputs, the most selective one first."""
        bound = list(self.factors[first].places)
        remaining, pending = [i for i in range(len(self.factors)) if i != first], list(self.conditions)
        joined = []
        while remaining:
            known = set(bound)
            ranks = {i: _rank(self.factors[i], known, pending, self.sizes[i]) for i in remaining}
            chosen = min(remaining, key=ranks.__getitem__)
            remaining.remove(chosen)
            factor = self.factors[chosen]
            seen = {*bound, *factor.places}
            ready = tuple(condition.text for condition in pending if condition.reads <= seen)
            pending = [condition for condition in pending if not condition.reads <= seen]
            joined.append(JoinedInput(factor.node, read(chosen), factor.places, ready, self._broadcast_side(chosen)))
            bound += factor.places
        return ProductRows(self.factors[first].node, rows, self.factors[first].places, tuple(joined))

    def delta_keys(self, other: int, changed: int) -> DeltaKeys | None:
        """Return the column by which rows of one input that may match another's delta can be looked up, or None."""
        own_factor, changed_factor = self.factors[other], self.factors[changed]
        for own, other_column in self._indexed_pairs():
            if own.ordinal in own_factor.places and other_column.ordinal in changed_factor.places:
                found = column_of(changed_factor.node, other_column.ordinal - changed_factor.places.start)
                if found is not None:
                    return DeltaKeys(own.ordinal - own_factor.places.start, *found)
        return None

    def _indexed_pairs(self) -> Iterator[tuple[Col, Col]]:
        """Yield the pairs of columns that an index lookup can use, in both directions."""
        for first, second in (condition.pair for condition in self.conditions if condition.pair is not None):
            physical_types = {first.type.spark, second.type.spark}
            if (
                isinstance(first, Col)
                and isinstance(second, Col)
                and len(physical_types) == 1
                and physical_types <= INDEXED_TYPES
            ):
                yield from ((first, second), (second, first))

    def _broadcast_side(self, next_factor: int) -> str | None:
        """Return the side that is broadcast, if any."""
        if not self.few:
            return None
        return RIGHT if self.sizes[next_factor].is_tiny else LEFT


def _rank(
    factor: _Factor, known_columns: set[int], conditions: Sequence[_Condition], size: Size
) -> tuple[bool, bool, int]:
    """Return the sort key of an input: first inputs that an equality connects to the rows so far.

    Among those, first inputs that have at most one match for each row.
    """
    own_columns = set(factor.places)
    bound_columns: set[int] = set()
    connected = False
    for condition in conditions:
        if condition.pair is None:
            continue
        for read, other_read in (condition.reads_of_sides, condition.reads_of_sides[::-1]):
            if read and other_read and read <= own_columns and other_read <= known_columns:
                connected = True
                bound_columns |= read
    key = row_key(factor.node)
    unique = key is not None and {factor.places[i] for i in key} <= bound_columns
    return not connected, not unique, size.rank
