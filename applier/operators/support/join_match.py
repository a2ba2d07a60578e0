"""Rows of one input by whether the other has a partner for them: A ⋉ B (some) and A ▷ B (none), and their deltas.

Both are linear in A and not in B: whether a partner exists is one bit, however many there are. So weights of B are
summed first, and a change of B is answered by comparing old and new for the rows of A whose keys ΔB touches:

    Δ(A ▷ B) = ΔA ▷ B' + (A_K ▷ B'_K − A_K ▷ B_K),   K = the keys of ΔB;   the same for ⋉

A NULL key has no partner, so no change of B touches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from applier.functions.emit import spark_sql
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.operand_delta import OperandDelta
from applier.plan.expr import Expr, columns_read, shift
from applier.plan.nodes import OuterJoin, SemiJoin, fields
from applier.zset import LEFT, RIGHT, WEIGHT, column_name, place_columns, plus, select_columns, times

KeyedRows = tuple[tuple[str, ...], str | None]
"""Keys, over rows that have them; None for no rows."""


class MatchKind(Enum):
    """Which rows are wanted; the values are Spark's names of the joins."""

    SEMI = "LEFT SEMI JOIN"
    ANTI = "LEFT ANTI JOIN"


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a condition: the places its columns have in the joined output, and its half of the key pairs."""

    places: range
    keys: tuple[str, ...]
    exprs: tuple[Expr, ...]
    """The keys over the operand's own columns."""

    def placed(self, zset: str) -> str:
        """The Z-set with its columns named by their places."""
        return place_columns(zset, self.places)

    def narrow(self, reads: frozenset[int]) -> list[int]:
        """The operand's own numbers of the columns that are read."""
        return [i for i, place in enumerate(self.places) if place in reads]


@dataclass(frozen=True, slots=True)
class AffectedSides:
    """The parts of both inputs that a window's change touches, placed. K = the keys of ΔA and ΔB.

    All that is asked of an input is one reading of it as it was: B'_K = B_K + ΔB.
    """

    arriving: str | None
    """ΔA"""
    changing: str | None
    """ΔB"""
    left_before: str | None
    """A_K, for the keys of ΔB at least; None when there is no ΔB, and nobody else asks"""
    right_before: str | None
    """B_K"""

    @property
    def right_after(self) -> str:
        """B'_K"""
        return plus(self.right_before, self.changing) or ""

    def flipped(self) -> AffectedSides:
        """Seen from the other side."""
        return AffectedSides(self.changing, self.arriving, self.right_before, self.left_before)


@dataclass(frozen=True, slots=True)
class JoinMatch:
    """The condition of a join over two operands whose columns stand side by side."""

    left: Operand
    right: Operand
    condition: str
    reads: frozenset[int]

    @classmethod
    def of(cls, widths: tuple[int, int], equi: tuple[tuple[Expr, Expr], ...], residual: Expr | None) -> JoinMatch:
        """From the widths of both inputs and the condition of their join."""
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
            frozenset(ordinal for expr in exprs for ordinal in columns_read(expr)),
        )

    def flipped(self) -> JoinMatch:
        """The same condition seen from the other side."""
        return JoinMatch(self.right, self.left, self.condition, self.reads)

    def filter_by_match(self, kind: MatchKind, left: str, right: str) -> str:
        """Rows of the left Z-set, columns at their places, by whether the right one has a partner for them."""
        return self._filter_by_match(kind, self.left.placed(left), self.right.placed(right))

    def _filter_by_match(self, kind: MatchKind, left: str, right: str) -> str:
        names = [column_name(place) for place in self.right.places if place in self.reads]
        grouping = f" GROUP BY {', '.join(names)}" if names else ""
        # Only what the condition looks at: several rows that differ elsewhere are one partner.
        there = f"SELECT {', '.join(names) or '1 AS there'} FROM ({right}){grouping} HAVING sum({WEIGHT}) > 0"
        return f"SELECT l.* FROM ({left}) l {kind.value} ({there}) r ON {self.condition}"

    def affected_sides(
        self,
        left: OperandDelta,
        right: OperandDelta,
        *,
        small: bool,
        again: bool = False,
        full: bool = False,
        bare: bool,
    ) -> AffectedSides:
        """What both inputs have of the keys that a change touches; with `full` also the left rows of its own change.

        A change of B makes both be read more than once; without one that is so where `again` says it. With `bare` the
        rows of B are only asked for partners, so they have no columns but those the condition reads.
        """
        again = again or right.delta is not None
        only = self.right.narrow(self.reads) if bare and again else None
        places = self.right.places if only is None else [self.right.places[i] for i in only]
        arriving = None if left.delta is None else self.left.placed(left.delta)
        changing = None
        if right.delta is not None:
            changing = place_columns(right.delta if only is None else select_columns(right.delta, only), places)
        own, other = (self.left.keys, arriving), (self.right.keys, changing)

        def before(operand: Operand, whole: OperandDelta, only: list[int] | None, *asking: KeyedRows) -> str | None:
            given = [(keys, rows) for keys, rows in asking if rows is not None]
            if not given:
                return None
            return whole.affected_rows(
                KeyFilter.any_of(operand.exprs, given, null_safe=False, small=small), again, only
            )

        there = before(self.left, left, None, *((own, other) if full else (other,)))
        left_before = None if there is None else self.left.placed(there)
        # Partners are only wanted of rows that are there; where those are few and computed, their keys are fewer.
        met = (self.left.keys, left_before) if small and self.left.keys and not full else other
        partners = before(self.right, right, only, own, met)
        return AffectedSides(
            arriving, changing, left_before, None if partners is None else place_columns(partners, places)
        )

    def delta(self, kind: MatchKind, sides: AffectedSides) -> str | None:
        """How the answer of `with_partner` changes."""
        arrived = None
        if sides.arriving is not None:
            arrived = self._filter_by_match(kind, sides.arriving, sides.right_after)
        return plus(arrived, None if sides.changing is None else self._switched(kind, sides))

    def _switched(self, kind: MatchKind, sides: AffectedSides) -> str:
        """What enters and leaves among the rows that stay, because partners come and go."""
        asked, there = sides.left_before or "", (sides.right_before or "", sides.right_after)
        old, new = (self._filter_by_match(kind, asked, right) for right in there)
        names = [column_name(place) for place in self.left.places]
        return f"{new} UNION ALL SELECT {', '.join([*names, f'-{WEIGHT} AS {WEIGHT}'])} FROM ({old})"

    def delta_joined(self, sides: AffectedSides, *, small: bool) -> str | None:
        """Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB, columns at their places."""
        arrived = switched = None
        if sides.arriving is not None:
            arrived = times(sides.arriving, sides.right_after, [self.condition], LEFT if small else None)
        if sides.changing is not None:
            switched = times(sides.left_before or "", sides.changing, [self.condition], RIGHT if small else None)
        return plus(arrived, switched)

    def matches_of(self, left: str, *, small: bool) -> KeyFilter:
        """The rows of the right whose keys occur in these placed rows of the left."""
        return KeyFilter.of(self.right.exprs, self.left.keys, left, null_safe=False, small=small)


def join_match_of(node: OuterJoin | SemiJoin) -> JoinMatch:
    """The condition of such a join."""
    return JoinMatch.of((len(fields(node.left)), len(fields(node.right))), node.equi, node.residual)
