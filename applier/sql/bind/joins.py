"""FROM and WHERE -> a left-deep tree of joins. Pure.

Inner joins first: their ON and WHERE are one list of conditions. A condition that cannot raise goes as low as it can:
below the joins when it reads one member of FROM, as a key pair when it is an equality that both engines hash alike,
else as the residual of the first join where all its columns exist. A condition that may raise stays above all joins,
where it sees no row that PostgreSQL would not show it.

The next member is the first, in the order of the text, that an equality connects to those already joined; only when
there is none a cross product is taken.

An outer join is one member of the list around it, with lists of its own for either side. What WHERE says about it is
applied above it, for its NULLs are only there then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from applier.functions.allow_list import ENTRIES
from applier.functions.comparison_keys import comparison_key
from applier.functions.entry import UnsuitableArguments
from applier.plan.expr import BoolOp, Call, Col, Expr, Logic, children, columns_read, shift
from applier.plan.nodes import Filter, Join, Node, OuterJoin, Values, fields
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.unify import comparable

Compile = Callable[[tree.Expression, "JoinScope"], Expr]


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A member of FROM: its node and where each of its attributes is among the node's columns."""

    entry: int
    node: Node
    ordinals: dict[int, int]


@dataclass(frozen=True, slots=True)
class JoinScope:
    """A node over some members of FROM, and where each attribute (entry, number) is among its columns."""

    node: Node
    ordinals: dict[tuple[int, int], int]
    entries: frozenset[int]
    answers: dict[int, Expr] = field(default_factory=dict)
    """What the subqueries of expressions stand for, by their numbers."""
    made: dict[tree.SetReturningExpr, Expr] = field(default_factory=dict)
    """What the functions that make rows stand for, where they were gone through."""

    @classmethod
    def of(cls, member: JoinMember) -> JoinScope:
        """The frame of one member alone."""
        places = {(member.entry, number): at for number, at in member.ordinals.items()}
        return cls(member.node, places, frozenset({member.entry}))

    def filtered(self, conditions: Sequence[Expr]) -> JoinScope:
        """Only the rows for which all conditions hold."""
        return replace(self, node=Filter(self.node, conjunction(conditions))) if conditions else self

    def beside(self, other: JoinScope) -> dict[tuple[int, int], int]:
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

    def scope(self, expression: tree.Expression) -> Expr | None:
        """What an expression stands for: a column, the answer of a subquery, a member of a set."""
        match expression:
            case tree.Var():
                return self.column(expression)
            case tree.SubLink():
                return self.answers.get(expression.number)
            case tree.SetReturningExpr():
                return self.made.get(expression)
            case _:
                return None


Unjoined = query_tree.RangeTblRef | query_tree.OuterJoinExpr


def place_members(items: Sequence[query_tree.FromItem]) -> tuple[list[Unjoined], list[tree.Expression]]:
    """What inner joins connect, and the conditions of those joins, split at AND; both in the order of the text."""
    found: list[Unjoined] = []
    on: list[tree.Expression] = []
    for item in items:
        match item:
            case query_tree.InnerJoinExpr():
                inner, below = place_members((item.left, item.right))
                found += inner
                on += [*below, *conjuncts(item.condition)]
            case query_tree.RangeTblRef() | query_tree.OuterJoinExpr():
                found.append(item)
    return found, on


def conditions(items: Sequence[query_tree.FromItem]) -> list[tree.Expression]:
    """Every condition of ON, inner and outer, split at AND."""
    found: list[tree.Expression] = []
    for item in items:
        if not isinstance(item, query_tree.RangeTblRef):
            found += [*conditions((item.left, item.right)), *conjuncts(item.condition)]
    return found


def conjuncts(expression: tree.Expression | None) -> list[tree.Expression]:
    """The parts that AND connects; none of nothing."""
    if expression is None:
        return []
    if isinstance(expression, tree.BoolExpr) and expression.connective is tree.BoolOperator.AND:
        return [part for arg in expression.args for part in conjuncts(arg)]
    return [expression]


def total_width(expr: Expr) -> bool:
    """Whether the expression has a value, or NULL, for every row."""
    return not (isinstance(expr, Call) and ENTRIES[expr.signature].raises) and all(
        total_width(c) for c in children(expr)
    )


def is_placeable(expr: Expr) -> bool:
    """Whether it may be evaluated wherever its columns are.

    That a sum or product has no place in its type is an error PostgreSQL meets in such places too; it depends on its
    plan which. That an argument is wrong (a division by zero) may be just what another condition rules out.
    """
    entry = ENTRIES[expr.signature] if isinstance(expr, Call) else None
    raises = entry is not None and entry.raises and not entry.only_out_of_range
    return not raises and all(is_placeable(c) for c in children(expr))


@dataclass(slots=True)
class _Pending:
    """Conditions not yet placed, each with the members of FROM it reads."""

    compile: Compile
    left: list[tuple[tree.Expression, frozenset[int]]] = field(default_factory=list)

    def take(self, frame: JoinScope, entries: frozenset[int]) -> list[Expr]:
        """Compile and remove what reads only these members and cannot raise."""
        taken: list[Expr] = []
        kept: list[tuple[tree.Expression, frozenset[int]]] = []
        for condition, reads in self.left:
            compiled = self.compile(condition, frame) if reads and reads <= entries else None
            if compiled is not None and is_placeable(compiled):
                taken.append(compiled)
            else:
                kept.append((condition, reads))
        self.left = kept
        return taken


Leaning = Callable[[JoinScope], JoinScope]
"""A member of FROM that looks at those before it: the frame with it beside."""


def bind_join(
    parts: Sequence[JoinScope], where: Sequence[tree.Expression], compile_in: Compile, leaning: Sequence[Leaning] = ()
) -> JoinScope:
    """Join all members and apply all conditions; those that lean on others come last, in the order of the text."""
    pending = _Pending(compile_in, [(c, frozenset(v.entry for v in walk.variables(c))) for c in where])
    if len(parts) > 1 or leaning:
        parts = [part.filtered(pending.take(part, part.entries)) for part in parts]
    current, *rest = parts or [no_rows()]
    while rest:
        part = next((p for p in rest if _connected(current.entries, p.entries, pending)), rest[0])
        rest.remove(part)
        product = _product(current, part)
        equi, residual = split_condition(pending.take(product, product.entries), len(fields(current.node)))
        current = replace(product, node=Join(current.node, part.node, equi, residual))
    for lean in leaning:
        current = lean(current)
        current = current.filtered(pending.take(current, current.entries))
    return current.filtered([compile_in(condition, current) for condition, _ in pending.left])


def _connected(joined: frozenset[int], own: frozenset[int], pending: _Pending) -> bool:
    """Whether an equality between the joined members and these is waiting; only the shape is looked at."""
    for condition, reads in pending.left:
        if isinstance(condition, tree.FuncExpr) and len(condition.args) == 2 and reads <= joined | own:
            first, second = (frozenset(v.entry for v in walk.variables(arg)) for arg in condition.args)
            for ours, theirs in ((first, second), (second, first)):
                if ours and ours <= joined and theirs and theirs <= own:
                    return True
    return False


def _product(left: JoinScope, right: JoinScope) -> JoinScope:
    """Everything beside everything; conditions are compiled over it, for which of them are keys shows only then."""
    width = len(fields(left.node))
    answers = left.answers | {number: shift(answer, width) for number, answer in right.answers.items()}
    return JoinScope(Join(left.node, right.node, (), None), left.beside(right), left.entries | right.entries, answers)


def split_condition(conditions: Sequence[Expr], width: int) -> tuple[tuple[tuple[Expr, Expr], ...], Expr | None]:
    """The key pairs among the conditions of a join, and the rest of them."""
    equi: list[tuple[Expr, Expr]] = []
    residual: list[Expr] = []
    for condition in conditions:
        pair = _key_pair(condition, width)
        if pair is None:
            residual.append(condition)
        else:
            equi.append(pair)
    return tuple(equi), conjunction(residual) if residual else None


def bind_outer_join(
    kind: query_tree.OuterJoinType,
    left: JoinScope,
    right: JoinScope,
    on: Sequence[tree.Expression],
    compile_in: Compile,
) -> JoinScope:
    """LEFT, RIGHT or FULL JOIN; a right join is a left one whose columns are found elsewhere."""
    if kind is query_tree.OuterJoinType.RIGHT:
        left, right = right, left
    full = kind is query_tree.OuterJoinType.FULL
    product = _product(left, right)
    own: list[tree.Expression] = []
    both: list[Expr] = []
    for condition in on:
        entries = {v.entry for v in walk.variables(condition)}
        # A row that its own side rules out is nobody's partner: it need not come that far. PostgreSQL tests it there
        # too, so it may raise there.
        if not full and entries and entries <= right.entries:
            own.append(condition)
            continue
        compiled = compile_in(condition, product)
        if not is_placeable(compiled):
            hint = "compute the expression in a subquery of FROM"
            construct = "an outer join on a condition that may raise an error"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=walk.place_of(condition))
        both.append(compiled)
    right = right.filtered([compile_in(condition, right) for condition in own])
    equi, residual = split_condition(both, len(fields(left.node)))
    return replace(product, node=OuterJoin(left.node, right.node, equi, residual, full))


def _key_pair(condition: Expr, width: int) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Call):
        return None
    sides = _hashed_sides(condition)
    if sides is None:
        return None
    reads = [set(columns_read(side)) for side in sides]
    for one, other in ((0, 1), (1, 0)):
        if reads[one] and reads[other] and max(reads[one]) < width <= min(reads[other]):
            return sides[one], shift(sides[other], -width)
    return None


def _hashed_sides(condition: Call) -> tuple[Expr, ...] | None:
    """Two sides in one physical type that Spark hashes, equal where the condition is true; None where there are none.

    Where equal values may look different these are their keys.
    """
    entry = ENTRIES[condition.signature]
    if not entry.hash_equal and not entry.key_equal:
        return None
    try:
        sides = comparable(condition.args)
    except UnsuitableArguments:
        return None
    if entry.hashes(sides):
        return sides
    keys = tuple(key for key in map(comparison_key, sides) if key is not None)
    return keys if len(keys) == len(sides) else None


def conjunction(parts: Sequence[Expr]) -> Expr:
    """All of them, in this order."""
    if len(parts) == 1:
        return parts[0]
    return BoolOp(Logic.AND, tuple(parts), parts[0].type)


def no_rows() -> JoinScope:
    """An empty FROM: one row without columns."""
    return JoinScope(Values(((),), ()), {}, frozenset())
