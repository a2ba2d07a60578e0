"""FROM and WHERE -> a left-deep tree of joins. Pure.

All joins are inner, so ON and WHERE are one list of conditions. A condition that cannot raise goes as low as it can:
below the joins when it reads one member of FROM, as a key pair when it is an equality that both engines hash alike,
else as the residual of the first join where all its columns exist. A condition that may raise stays above all joins,
where it sees no row that PostgreSQL would not show it.

The next member is the first, in the order of the text, that an equality connects to those already joined; only when
there is none a cross product is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from applier.definition import query_tree, tree
from applier.definition.refusal import Reason, Refused
from applier.definition.sources import members
from applier.definition.unify import unify
from applier.expressions.allow_list import ENTRIES
from applier.expressions.entry import Unfit
from applier.plan.expr import BoolOp, Call, Col, Expr, Logic, children, columns_read, shift
from applier.plan.nodes import Filter, Join, Node, fields

Compile = Callable[[tree.Expression, "Frame"], Expr]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of FROM: its node and where each of its attributes is among the node's columns."""

    entry: int
    node: Node
    ordinals: dict[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """A node over some members of FROM, and where each attribute (entry, number) is among its columns."""

    node: Node
    ordinals: dict[tuple[int, int], int]

    @classmethod
    def of(cls, member: Member) -> Frame:
        """The frame of one member alone."""
        return cls(member.node, {(member.entry, number): at for number, at in member.ordinals.items()})

    def beside(self, other: Frame) -> dict[tuple[int, int], int]:
        """Where everything is once the other's columns follow."""
        width = len(fields(self.node))
        return self.ordinals | {key: width + at for key, at in other.ordinals.items()}

    def column(self, var: tree.Var) -> Col | None:
        """The column a variable stands for."""
        ordinal = self.ordinals.get((var.entry, var.number))
        if ordinal is None:
            return None
        found = fields(self.node)[ordinal]
        return Col(ordinal, found.type, found.nullable)


def conditions(items: Sequence[query_tree.FromItem], where: tree.Expression | None) -> list[tree.Expression]:
    """Every condition of ON and WHERE, split at AND, in the order of the text."""
    found: list[tree.Expression] = []
    for item in items:
        if isinstance(item, query_tree.InnerJoin):
            found += conditions((item.left, item.right), item.condition)
    return found + ([] if where is None else list(_conjuncts(where)))


def _conjuncts(expression: tree.Expression) -> list[tree.Expression]:
    if isinstance(expression, tree.Connected) and expression.connective is tree.Connective.AND:
        return [part for arg in expression.args for part in _conjuncts(arg)]
    return [expression]


def total(expr: Expr) -> bool:
    """Whether the expression has a value, or NULL, for every row."""
    return not (isinstance(expr, Call) and ENTRIES[expr.signature].raises) and all(total(c) for c in children(expr))


@dataclass(slots=True)
class _Pending:
    """Conditions not yet placed, each with the members of FROM it reads."""

    compile: Compile
    left: list[tuple[tree.Expression, frozenset[int]]] = field(default_factory=list)

    def take(self, frame: Frame, entries: frozenset[int]) -> list[Expr]:
        """Compile and remove what reads only these members and cannot raise."""
        taken: list[Expr] = []
        kept: list[tuple[tree.Expression, frozenset[int]]] = []
        for condition, reads in self.left:
            compiled = self.compile(condition, frame) if reads and reads <= entries else None
            if compiled is not None and total(compiled):
                taken.append(compiled)
            else:
                kept.append((condition, reads))
        self.left = kept
        return taken


def join(parts: Sequence[Member], where: Sequence[tree.Expression], compile_in: Compile) -> Frame:
    """Join all members and apply all conditions."""
    pending = _Pending(compile_in, [(c, frozenset(v.entry for v in tree.variables(c))) for c in where])
    if len(parts) > 1:
        parts = [_filtered(member, pending) for member in parts]
    rest = list(parts)
    current, joined = Frame.of(rest[0]), frozenset({rest.pop(0).entry})
    while rest:
        member = next((m for m in rest if _connected(joined, m.entry, pending)), rest[0])
        rest.remove(member)
        joined |= {member.entry}
        current = _joined(current, Frame.of(member), joined, pending)
    above = [compile_in(condition, current) for condition, _ in pending.left]
    return Frame(Filter(current.node, conjunction(above)), current.ordinals) if above else current


def _filtered(member: Member, pending: _Pending) -> Member:
    taken = pending.take(Frame.of(member), frozenset({member.entry}))
    return Member(member.entry, Filter(member.node, conjunction(taken)), member.ordinals) if taken else member


def _connected(joined: frozenset[int], entry: int, pending: _Pending) -> bool:
    """Whether an equality between the joined members and this one is waiting; only the shape is looked at."""
    for condition, reads in pending.left:
        if isinstance(condition, tree.Apply) and len(condition.args) == 2 and reads <= joined | {entry}:
            first, second = (frozenset(v.entry for v in tree.variables(arg)) for arg in condition.args)
            own = frozenset({entry})
            if (first and first <= joined and second == own) or (second and second <= joined and first == own):
                return True
    return False


def _joined(left: Frame, right: Frame, entries: frozenset[int], pending: _Pending) -> Frame:
    width = len(fields(left.node))
    ordinals = left.beside(right)
    # Conditions are compiled over the bare product first: which of them are keys shows only then.
    product = Frame(Join(left.node, right.node, (), None), ordinals)
    equi: list[tuple[Expr, Expr]] = []
    residual: list[Expr] = []
    for condition in pending.take(product, entries):
        pair = _key_pair(condition, width)
        if pair is None:
            residual.append(condition)
        else:
            equi.append(pair)
    node = Join(left.node, right.node, tuple(equi), conjunction(residual) if residual else None)
    return Frame(node, ordinals)


def _key_pair(condition: Expr, width: int) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Call) or not ENTRIES[condition.signature].hash_equal:
        return None
    try:
        sides = unify(condition.args)
    except Unfit:
        return None
    reads = [set(columns_read(side)) for side in sides]
    for one, other in ((0, 1), (1, 0)):
        if reads[one] and reads[other] and max(reads[one]) < width <= min(reads[other]):
            return sides[one], shift(sides[other], -width)
    return None


def conjunction(parts: Sequence[Expr]) -> Expr:
    """All of them, in this order."""
    if len(parts) == 1:
        return parts[0]
    return BoolOp(Logic.AND, tuple(parts), parts[0].type)


def from_members(query: query_tree.Query) -> list[int]:
    """The range-table entries of FROM; refused when there is none."""
    found = list(members(query.items))
    if not found:
        raise Refused(Reason.CONSTRUCT, "an empty FROM", hint="read a table")
    return found
