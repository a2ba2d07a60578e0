"""Two inputs and a join condition -> the rows of one that have a match in the other (A ⋉ B) or none (A ▷ B).

Both are linear in A and not in B: whether a match exists is one bit, however many matches there are. So the weights of
B are summed first. For a change of B, the old and the new state are compared for the rows of A whose keys ΔB affects:

    Δ(A ▷ B) = ΔA ▷ B' + (A_K ▷ B'_K − A_K ▷ B_K),   K = the keys of ΔB;   the same for ⋉

A NULL key has no match, so no change of B affects it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum

from applier.functions.emit import spark_sql
from applier.operators.support.delta_plan import PlacedRows, RowsPlan
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.inputs import Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.expr import Expr, cols_read, shift
from applier.plan.nodes import Node, OuterJoin, SemiJoin, fields
from applier.zset import LEFT, RIGHT, WEIGHT, ZSet, column_name, plus, sum_same_rows

KeyedRows = tuple[tuple[str, ...], RowsPlan | None]
"""Keys, and the rows over which they are computed; None for no rows."""


class MatchKind(Enum):
    """Which rows are selected; the values are Spark's names of the joins."""

    SEMI = "LEFT SEMI JOIN"
    ANTI = "LEFT ANTI JOIN"


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a condition: the places of its columns in the joined output, and its half of the key pairs."""

    places: range
    keys: tuple[str, ...]
    exprs: tuple[Expr, ...]
    """The keys over the operand's own columns."""

    def place(self, zset: ZSet) -> ZSet:
        """Return the Z-set with its columns named by their places in the joined output."""
        return zset.place(self.places)

    def plan_placed(self, rows: RowsPlan, only: Sequence[int] | None = None) -> PlacedRows:
        """Plan the same; the rows have `only` these columns of the operand, or all."""
        return PlacedRows(rows, tuple(self.places) if only is None else tuple(self.places[i] for i in only))

    def own_ordinals(self, reads: Container[int]) -> tuple[int, ...]:
        """Return the operand's own ordinals of the columns that the condition reads."""
        return tuple(i for i, place in enumerate(self.places) if place in reads)

    def plan_affected(self, node: Node, sources: Sequence[KeyedRows], inputs: InputPlans) -> RowsPlan:
        """Plan the rows of the operand before, that have the keys of these rows."""
        given = tuple((keys, rows) for keys, rows in sources if rows is not None)
        return inputs.snapshot_where(node, Side.BEFORE, KeyFilter(self.exprs, given, False, inputs.small))


@dataclass(frozen=True, slots=True)
class AffectedSides:
    """The rows of both inputs that a change affects, with placed columns. K = the keys of ΔA and ΔB.

    Each input is read once, at the lower end of the LSN range: B'_K = B_K + ΔB.
    """

    left_delta: ZSet | None
    """ΔA"""
    right_delta: ZSet | None
    """ΔB"""
    left_before: ZSet | None
    """A_K, for the keys of ΔB at least; None when it is not needed"""
    right_before: ZSet | None
    """B_K"""

    @property
    def right_after(self) -> ZSet | None:
        """B'_K"""
        return plus(self.right_before, self.right_delta)

    def flipped(self) -> AffectedSides:
        """Return the same with left and right exchanged."""
        return AffectedSides(self.right_delta, self.left_delta, self.right_before, self.left_before)


@dataclass(frozen=True, slots=True)
class JoinMatch:
    """The condition of a join over two operands whose columns stand side by side."""

    left: Operand
    right: Operand
    condition: str
    reads: dict[int, str]
    """The places of the columns that it reads, with their Spark types."""

    @classmethod
    def of(cls, widths: tuple[int, int], equi: tuple[tuple[Expr, Expr], ...], residual: Expr | None) -> JoinMatch:
        """Build it from the widths of both inputs and the condition of their join."""
        pairs = [(left, shift(right, widths[0])) for left, right in equi]
        parts = [f"{spark_sql(left)} = {spark_sql(right)}" for left, right in pairs]
        exprs = [expr for pair in pairs for expr in pair]
        if residual is not None:
            parts.append(spark_sql(residual))
            exprs.append(residual)
        return cls(
            Operand(range(widths[0]), tuple(spark_sql(left) for left, _ in pairs), tuple(left for left, _ in equi)),
            Operand(
                range(widths[0], sum(widths)),
                tuple(spark_sql(right) for _, right in pairs),
                tuple(right for _, right in equi),
            ),
            " AND ".join(parts) or "true",
            {col.ordinal: col.type.spark for expr in exprs for col in cols_read(expr)},
        )

    def flipped(self) -> JoinMatch:
        """Return the same condition with left and right exchanged."""
        return JoinMatch(self.right, self.left, self.condition, self.reads)

    def filter_by_match(self, kind: MatchKind, left: ZSet, right: ZSet) -> ZSet:
        """Return the rows of the left Z-set that have a match in the right one, or none; columns at their places."""
        return self._filter_by_match(kind, self.left.place(left), self.right.place(right))

    def _filter_by_match(self, kind: MatchKind, left: ZSet, right: ZSet) -> ZSet:
        # Only the columns that the condition reads: rows that differ in other columns are one match.
        read = [(column_name(place), self.reads[place]) for place in self.right.places if place in self.reads]
        present = f"SELECT * FROM ({sum_same_rows(right.sql, read, [f'sum({WEIGHT}) AS n'])}) WHERE n > 0"
        return ZSet(f"SELECT l.* FROM ({left.sql}) l {kind.value} ({present}) r ON {self.condition}", left.columns)

    def delta(self, kind: MatchKind, sides: AffectedSides) -> ZSet | None:
        """Return the delta of `filter_by_match`."""
        from_left = None
        if sides.left_delta is not None:
            from_left = self._filter_by_match(kind, sides.left_delta, _present(sides.right_after))
        return plus(from_left, None if sides.right_delta is None else self._delta_of_matches(kind, sides))

    def _delta_of_matches(self, kind: MatchKind, sides: AffectedSides) -> ZSet | None:
        """Return the rows of the left that enter or leave the result because their matches come or go."""
        left, ends = _present(sides.left_before), (_present(sides.right_before), _present(sides.right_after))
        old, new = (self._filter_by_match(kind, left, right) for right in ends)
        return new.plus(old.negate())

    def delta_joined(self, sides: AffectedSides, *, broadcast: bool) -> ZSet | None:
        """Return Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB, columns at their places."""
        from_left = from_right = None
        if sides.left_delta is not None:
            from_left = sides.left_delta.times(
                _present(sides.right_after), [self.condition], LEFT if broadcast else None
            )
        if sides.right_delta is not None:
            left = _present(sides.left_before)
            from_right = left.times(sides.right_delta, [self.condition], RIGHT if broadcast else None)
        return plus(from_left, from_right)


def _present(rows: ZSet | None) -> ZSet:
    if rows is None:
        raise AssertionError("rows that a delta is joined with were not read")
    return rows


def join_match_of(node: OuterJoin | SemiJoin) -> JoinMatch:
    """Return the condition of an outer join or semi-join."""
    return JoinMatch.of((len(fields(node.left)), len(fields(node.right))), node.equi, node.residual)
