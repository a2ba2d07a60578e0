"""Δ(A1 ⋈ … ⋈ An) = Σ_i A1 ⋈ … ⋈ A(i−1) ⋈ ΔAi ⋈ A'(i+1) ⋈ … ⋈ A'n, where A' = A + ΔA; weights multiply.

One term per input that changes, however the joins are nested: they are all one product. Each term begins with its
delta and takes the others in one by one, so that what is joined stays as small as the change; the written order would
join everything before it meets the delta.   Reads the traces of the other inputs, keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from applier.functions.emit import spark_sql
from applier.operators.support.inputs import INDEXED_TYPES, DeltaKeys, Side
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.operand_delta import OperandDelta
from applier.plan.expr import Col, Expr, columns_read, shift
from applier.plan.lineage import column_of
from applier.plan.nodes import Join, Node, fields, row_key
from applier.zset import LEFT, RIGHT, WEIGHT, column_names, place_columns, plus, select, times

TINY_ROWS = 20_000
"""A whole input of at most so many rows is sent to the running result, and not the other way round."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """One of the inputs that are joined, and the places of its columns in the output."""

    node: Node
    places: range


@dataclass(frozen=True, slots=True)
class _Condition:
    """One thing that must hold for joined rows, over the output's columns."""

    text: str
    reads: frozenset[int]
    pair: tuple[Expr, Expr] | None
    """The two sides of an equality."""


def inner_join(node: Join, left: str, right: str) -> str:
    """A ⋈ B of two Z-sets, in the order they are written."""
    width, right_width = len(fields(node.left)), len(fields(node.right))
    conditions = [f"{spark_sql(le)} = {spark_sql(shift(re, width))}" for le, re in node.equi]
    if node.residual is not None:
        conditions.append(spark_sql(node.residual))
    return times(left, place_columns(right, range(width, width + right_width)), conditions)


def delta_join(
    node: Join, changing: Callable[[Node], OperandDelta], *, small: bool, size: Callable[[Node], int | None]
) -> str | None:
    """What changes in the product; `size` is about how many rows an input has, None when nobody knows.

    A snapshot is only asked for when another input changed, so a quiet one costs its partners nothing.
    """
    factors, conditions = _flattened(node, 0)
    inputs = [changing(factor.node) for factor in factors]
    product = _Product(factors, conditions, [size(factor.node) for factor in factors], small)

    def term(changed: int) -> str | None:
        rows = inputs[changed].delta
        if rows is None:
            return None
        return product.beginning_with(
            changed, rows, lambda other: inputs[other].whole(_end(other, changed), product.meets(other, changed))
        )

    return plus(*(term(i) for i in range(len(factors))))


def _end(factor: int, changed: int) -> Side:
    """Inputs before the one that changes as they were, those behind it as they are: so no pair of changes is lost."""
    return Side.BEFORE if factor < changed else Side.AFTER


def join_where(
    node: Join,
    key_filter: KeyFilter,
    among: Callable[[Node, KeyFilter | None], str],
    *,
    size: Callable[[Node], int | None],
) -> str:
    """The rows of A1 ⋈ … ⋈ An that are wanted: the input that knows most of the keys first, then as for a delta."""
    factors, conditions = _flattened(node, 0)
    known = [_places_of(key_filter, factor) for factor in factors]
    first = max(range(len(factors)), key=lambda i: len(known[i]))
    if not known[first]:
        return key_filter.apply(inner_join(node, among(node.left, None), among(node.right, None)))
    product = _Product(factors, conditions, [size(factor.node) for factor in factors], key_filter.small)
    begun = among(factors[first].node, key_filter.some(known[first], factors[first].places.start))
    text = product.beginning_with(first, begun, lambda other: among(factors[other].node, None))
    return text if len(known[first]) == len(key_filter.keys) else key_filter.apply(text)


def _places_of(key_filter: KeyFilter, factor: _Factor) -> list[int]:
    reads = [set(columns_read(key)) for key in key_filter.keys]
    return [place for place, read in enumerate(reads) if read and read <= set(factor.places)]


def _flattened(node: Join, offset: int) -> tuple[list[_Factor], list[_Condition]]:
    """The inputs of joins within joins, left to right, and all their conditions."""
    factors: list[_Factor] = []
    conditions: list[_Condition] = []
    width = len(fields(node.left))
    for side, start in ((node.left, offset), (node.right, offset + width)):
        if isinstance(side, Join):
            inner, also = _flattened(side, start)
            factors += inner
            conditions += also
        else:
            factors.append(_Factor(side, range(start, start + len(fields(side)))))
    for left, right in node.equi:
        pair = shift(left, offset), shift(right, offset + width)
        reads = frozenset((*columns_read(pair[0]), *columns_read(pair[1])))
        conditions.append(_Condition(f"{spark_sql(pair[0])} = {spark_sql(pair[1])}", reads, pair))
    if node.residual is not None:
        moved = shift(node.residual, offset)
        conditions.append(_Condition(spark_sql(moved), frozenset(columns_read(moved)), None))
    return factors, conditions


@dataclass(frozen=True, slots=True)
class _Product:
    """Inputs to be joined, in any order."""

    factors: Sequence[_Factor]
    conditions: Sequence[_Condition]
    sizes: Sequence[int | None]
    small: bool

    def beginning_with(self, first: int, rows: str, other: Callable[[int], str]) -> str:
        """The product of these few rows of one input with the others; columns c0, c1 … of the output."""
        bound = list(self.factors[first].places)
        text = place_columns(rows, bound)
        left, waiting = [i for i in range(len(self.factors)) if i != first], list(self.conditions)
        while left:
            following = min(left, key=lambda i: _rank(self.factors[i], bound, waiting, self.sizes[i]))
            left.remove(following)
            factor = self.factors[following]
            seen = {*bound, *factor.places}
            now = [condition.text for condition in waiting if condition.reads <= seen]
            waiting = [condition for condition in waiting if not condition.reads <= seen]
            text = times(text, place_columns(other(following), factor.places), now, self._sent(following))
            bound += factor.places
        return select(column_names(len(bound)), WEIGHT, f"({text})")

    def meets(self, other: int, changed: int) -> DeltaKeys | None:
        """By which column of one input its rows are found that the change of another may meet; None for no way."""
        ours, theirs = self.factors[other], self.factors[changed]
        for mine, partner in self._columns_that_meet():
            if mine.ordinal in ours.places and partner.ordinal in theirs.places:
                found = column_of(theirs.node, partner.ordinal - theirs.places.start)
                if found is not None:
                    return DeltaKeys(mine.ordinal - ours.places.start, *found)
        return None

    def _columns_that_meet(self) -> Iterator[tuple[Col, Col]]:
        """Pairs of columns by which rows are found, both ways round."""
        for first, second in (condition.pair for condition in self.conditions if condition.pair is not None):
            physical_types = {first.type.spark, second.type.spark}
            if (
                isinstance(first, Col)
                and isinstance(second, Col)
                and len(physical_types) == 1
                and physical_types <= INDEXED_TYPES
            ):
                yield from ((first, second), (second, first))

    def _sent(self, following: int) -> str | None:
        """The side that is broadcast."""
        if not self.small:
            return None
        size = self.sizes[following]
        return RIGHT if size is not None and size <= TINY_ROWS else LEFT


def _rank(
    factor: _Factor, bound: Sequence[int], conditions: Sequence[_Condition], size: int | None
) -> tuple[bool, bool, float]:
    """First what an equality ties to the rows so far, and of that what has at most one partner for each of them."""
    ours, theirs = set(factor.places), set(bound)
    tied: set[int] = set()
    connected = False
    for condition in conditions:
        if condition.pair is None:
            continue
        for mine, other in (condition.pair, condition.pair[::-1]):
            read, lookup = set(columns_read(mine)), set(columns_read(other))
            if read and lookup and read <= ours and lookup <= theirs:
                connected = True
                tied |= read
    key = row_key(factor.node)
    unique = key is not None and {factor.places[i] for i in key} <= tied
    return not connected, not unique, float("inf") if size is None else size
