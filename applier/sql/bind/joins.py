"""FROM and WHERE -> a left-deep tree of joins. Pure.

Inner joins come first. Their ON conditions and WHERE are one list of conditions. A condition that cannot raise an error
is pushed down as far as possible. It goes below the joins when it reads one FROM item. It becomes a key pair when it is
an equality that PostgreSQL and Spark hash in the same way. Otherwise it becomes the residual of the first join that has
all its columns. A condition that may raise an error stays above all joins, so that it is not evaluated for a row that
PostgreSQL would not evaluate it for.

The next item to join is the first one, in the order of the text, that an equality connects to the items already joined.
Only when there is none, a cross product is used.

An outer join is one item of its list, and has a list of its own for each side. Conditions of WHERE on it are applied
above it, because its NULLs exist only there.
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
from applier.sql.typing.unify import unify_for_equality

Compile = Callable[[tree.Expression, "JoinScope"], Expr]


@dataclass(frozen=True, slots=True)
class JoinItem:
    """A FROM item: its node, and for each attribute number the ordinal among the node's columns."""

    entry: int
    node: Node
    ordinals: dict[int, int]


@dataclass(frozen=True, slots=True)
class JoinScope:
    """A node over some FROM items, and for each attribute (entry, number) the ordinal among the node's columns."""

    node: Node
    ordinals: dict[tuple[int, int], int]
    entries: frozenset[int]
    subquery_results: dict[int, Expr] = field(default_factory=dict)
    """The expressions that replace the subqueries of expressions, by subquery number."""
    set_results: dict[tree.SetReturningExpr, Expr] = field(default_factory=dict)
    """The expressions that replace set-returning functions that are already unnested."""

    @classmethod
    def of(cls, member: JoinItem) -> JoinScope:
        """Build the scope of one FROM item."""
        places = {(member.entry, number): at for number, at in member.ordinals.items()}
        return cls(member.node, places, frozenset({member.entry}))

    def filter(self, conditions: Sequence[Expr]) -> JoinScope:
        """Keep only the rows that satisfy all conditions."""
        return replace(self, node=Filter(self.node, conjunction(conditions))) if conditions else self

    def append_ordinals(self, other: JoinScope) -> dict[tuple[int, int], int]:
        """Return the ordinals after a join that appends the columns of the other scope."""
        width = len(fields(self.node))
        return self.ordinals | {key: width + at for key, at in other.ordinals.items()}

    def column(self, var: tree.Var) -> Col | None:
        """Return the column of a variable; None when the scope does not have it."""
        ordinal = self.ordinals.get((var.entry, var.number))
        if ordinal is None:
            return None
        found = fields(self.node)[ordinal]
        return Col(ordinal, found.type, found.nullable)

    def resolve(self, expression: tree.Expression) -> Expr | None:
        """Resolve a column, a subquery or a set-returning function; None for any other expression."""
        match expression:
            case tree.Var():
                return self.column(expression)
            case tree.SubLink():
                return self.subquery_results.get(expression.number)
            case tree.SetReturningExpr():
                return self.set_results.get(expression)
            case _:
                return None


InnerJoinOperand = query_tree.RangeTblRef | query_tree.OuterJoinExpr


def flatten_inner_joins(items: Sequence[query_tree.FromItem]) -> tuple[list[InnerJoinOperand], list[tree.Expression]]:
    """Return the operands of all inner joins, and their conditions split at AND; both in the order of the text."""
    found: list[InnerJoinOperand] = []
    on: list[tree.Expression] = []
    for item in items:
        match item:
            case query_tree.InnerJoinExpr():
                inner, below = flatten_inner_joins((item.left, item.right))
                found += inner
                on += [*below, *conjuncts(item.condition)]
            case query_tree.RangeTblRef() | query_tree.OuterJoinExpr():
                found.append(item)
    return found, on


def on_conditions(items: Sequence[query_tree.FromItem]) -> list[tree.Expression]:
    """Return the ON conditions of all inner and outer joins, split at AND."""
    found: list[tree.Expression] = []
    for item in items:
        if not isinstance(item, query_tree.RangeTblRef):
            found += [*on_conditions((item.left, item.right)), *conjuncts(item.condition)]
    return found


def conjuncts(expression: tree.Expression | None) -> list[tree.Expression]:
    """Split an expression at AND; None has no parts."""
    if expression is None:
        return []
    if isinstance(expression, tree.BoolExpr) and expression.connective is tree.BoolOperator.AND:
        return [part for arg in expression.args for part in conjuncts(arg)]
    return [expression]


def is_total(expr: Expr) -> bool:
    """Whether the expression never raises an error: it has a value, or NULL, for every row."""
    return not (isinstance(expr, Call) and ENTRIES[expr.signature].raises) and all(is_total(c) for c in children(expr))


def can_push_down(expr: Expr) -> bool:
    """Whether the expression may be evaluated wherever its columns exist.

    A sum or product that is out of range is an error that PostgreSQL may raise in such places too, depending on its
    plan. An invalid argument (a division by zero) may be exactly what another condition excludes.
    """
    entry = ENTRIES[expr.signature] if isinstance(expr, Call) else None
    raises = entry is not None and entry.raises and not entry.only_out_of_range
    return not raises and all(can_push_down(c) for c in children(expr))


@dataclass(slots=True)
class _Pending:
    """The conditions that are not yet placed, each with the FROM items it reads."""

    compile: Compile
    conditions: list[tuple[tree.Expression, frozenset[int]]] = field(default_factory=list)

    def take(self, scope: JoinScope, entries: frozenset[int]) -> list[Expr]:
        """Compile, remove and return the conditions that read only these items and can be pushed down."""
        compiled_conditions: list[Expr] = []
        remaining: list[tuple[tree.Expression, frozenset[int]]] = []
        for condition, reads in self.conditions:
            compiled = self.compile(condition, scope) if reads and reads <= entries else None
            if compiled is not None and can_push_down(compiled):
                compiled_conditions.append(compiled)
            else:
                remaining.append((condition, reads))
        self.conditions = remaining
        return compiled_conditions


LateralJoin = Callable[[JoinScope], JoinScope]
"""Joins a LATERAL item to the scope of the items before it."""


def bind_join(
    parts: Sequence[JoinScope],
    where: Sequence[tree.Expression],
    compile_in: Compile,
    laterals: Sequence[LateralJoin] = (),
) -> JoinScope:
    """Join all items and apply all conditions; LATERAL items come last, in the order of the text."""
    pending = _Pending(compile_in, [(c, frozenset(v.entry for v in walk.variables(c))) for c in where])
    if len(parts) > 1 or laterals:
        parts = [part.filter(pending.take(part, part.entries)) for part in parts]
    current, *rest = parts or [empty_from()]
    while rest:
        part = next((p for p in rest if _is_connected(current.entries, p.entries, pending)), rest[0])
        rest.remove(part)
        product = _cross_product(current, part)
        equi, residual = split_condition(pending.take(product, product.entries), len(fields(current.node)))
        current = replace(product, node=Join(current.node, part.node, equi, residual))
    for join_lateral in laterals:
        current = join_lateral(current)
        current = current.filter(pending.take(current, current.entries))
    return current.filter([compile_in(condition, current) for condition, _ in pending.conditions])


def _is_connected(joined: frozenset[int], own: frozenset[int], pending: _Pending) -> bool:
    """Whether a pending condition has the form of an equality between the joined items and these."""
    for condition, reads in pending.conditions:
        if isinstance(condition, tree.FuncExpr) and len(condition.args) == 2 and reads <= joined | own:
            first, second = (frozenset(v.entry for v in walk.variables(arg)) for arg in condition.args)
            for ours, theirs in ((first, second), (second, first)):
                if ours and ours <= joined and theirs and theirs <= own:
                    return True
    return False


def _cross_product(left: JoinScope, right: JoinScope) -> JoinScope:
    """Build the cross product. Conditions are compiled over it, because only then it is known which are key pairs."""
    width = len(fields(left.node))
    results = left.subquery_results | {n: shift(result, width) for n, result in right.subquery_results.items()}
    return JoinScope(
        Join(left.node, right.node, (), None), left.append_ordinals(right), left.entries | right.entries, results
    )


def split_condition(conditions: Sequence[Expr], width: int) -> tuple[tuple[tuple[Expr, Expr], ...], Expr | None]:
    """Split the conditions of a join into key pairs and the conjunction of the others."""
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
    """Bind LEFT, RIGHT or FULL JOIN; a right join becomes a left join with other ordinals."""
    if kind is query_tree.OuterJoinType.RIGHT:
        left, right = right, left
    full = kind is query_tree.OuterJoinType.FULL
    product = _cross_product(left, right)
    own: list[tree.Expression] = []
    both: list[Expr] = []
    for condition in on:
        entries = {v.entry for v in walk.variables(condition)}
        # A row that a condition on its own side excludes matches no row, so it is filtered before the join. PostgreSQL
        # evaluates the condition there too, so it may raise an error there.
        if not full and entries and entries <= right.entries:
            own.append(condition)
            continue
        compiled = compile_in(condition, product)
        if not can_push_down(compiled):
            hint = "compute the expression in a subquery in FROM"
            construct = "an outer join on a condition that may raise an error"
            raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=walk.place_of(condition))
        both.append(compiled)
    right = right.filter([compile_in(condition, right) for condition in own])
    equi, residual = split_condition(both, len(fields(left.node)))
    return replace(product, node=OuterJoin(left.node, right.node, equi, residual, full))


def _key_pair(condition: Expr, width: int) -> tuple[Expr, Expr] | None:
    if not isinstance(condition, Call):
        return None
    sides = _hashable_sides(condition)
    if sides is None:
        return None
    reads = [set(columns_read(side)) for side in sides]
    for one, other in ((0, 1), (1, 0)):
        if reads[one] and reads[other] and max(reads[one]) < width <= min(reads[other]):
            return sides[one], shift(sides[other], -width)
    return None


def _hashable_sides(condition: Call) -> tuple[Expr, ...] | None:
    """Return two sides of one hashable physical type that are equal where the condition is true; None if impossible.

    Where equal values may have different representations, the sides are their comparison keys.
    """
    entry = ENTRIES[condition.signature]
    if not entry.hash_equal and not entry.key_equal:
        return None
    try:
        sides = unify_for_equality(condition.args)
    except UnsuitableArguments:
        return None
    if entry.hashes(sides):
        return sides
    keys = tuple(key for key in map(comparison_key, sides) if key is not None)
    return keys if len(keys) == len(sides) else None


def conjunction(parts: Sequence[Expr]) -> Expr:
    """Combine the conditions with AND, in this order."""
    if len(parts) == 1:
        return parts[0]
    return BoolOp(Logic.AND, tuple(parts), parts[0].type)


def empty_from() -> JoinScope:
    """Return the scope of an empty FROM: one row without columns."""
    return JoinScope(Values(((),), ()), {}, frozenset())
