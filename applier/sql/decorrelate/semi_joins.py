"""EXISTS and IN -> semi- and anti-joins.

A condition between an outer query and its subquery is written from inside the subquery: a column of the subquery is at
level 0, a column of the outer query at level 1.

NOT IN is true when every comparison is false. That excludes an outer row with an equal match, every outer row if the
subquery returns a NULL, and an outer row that is NULL itself if the subquery returns any row. These are three
anti-joins, two of them only where a NULL is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import BOOL, Coalesce, Const, Expr, IsNull, nullable, shift
from applier.plan.nodes import Filter, Node, SemiJoin, fields
from applier.sql.bind.joins import JoinScope, can_push_down, conjunction, split_condition
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.tree import RESULT
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import Scope


@dataclass(frozen=True, slots=True)
class SubqueryTest:
    """EXISTS or IN: the rows of the subquery, the conditions that a match must satisfy, the comparison of IN."""

    rows: JoinScope
    conditions: tuple[tree.Expression, ...]
    test: tuple[tree.Expression, ...]
    negated: bool
    at: int | None

    def outer_columns(self) -> Iterator[tree.Var]:
        """Yield the columns of the outer query that the conditions read, as that query names them."""
        for condition in (*self.conditions, *self.test):
            for var in walk.variables(condition):
                if var.levels_up == 1:
                    yield replace(var, levels_up=0)


def to_sublink(condition: query_tree.MatchCondition) -> tree.Expression:
    """Convert the condition to an ordinary expression with a SubLink."""
    kind = tree.SubLinkType.EXISTS if condition.test is None else tree.SubLinkType.ANY
    number = query_tree.next_subquery_number()
    blank = tree.SubLink(number, kind, condition.query, None, (), 0, condition.at)
    subquery = query_tree.replace_subquery(blank, condition.query, condition.test)
    return tree.BoolExpr(tree.BoolOperator.NOT, (subquery,)) if condition.negated else subquery


def move_into_subquery(expression: tree.Expression, result: Callable[[tree.Var], tree.Expression]) -> tree.Expression:
    """Rewrite the test of IN from inside the subquery; `result` resolves the columns of the subquery's result."""
    if isinstance(expression, tree.Var):
        return result(expression) if _is_result(expression) else replace(expression, levels_up=expression.levels_up + 1)
    return walk.rebuild(expression, lambda part: move_into_subquery(part, result))


def _is_result(var: tree.Var) -> bool:
    return var.entry == RESULT and var.levels_up == 0


def resolve_outer_columns(
    expression: tree.Expression, resolve: Callable[[tree.Var], tree.Expression]
) -> tree.Expression:
    """Replace each column of the outer query by the expression that `resolve` returns for it."""
    if isinstance(expression, tree.Var):
        if expression.levels_up != 1:
            return expression
        return move_into_subquery(resolve(replace(expression, levels_up=0)), lambda var: var)
    return walk.rebuild(expression, lambda part: resolve_outer_columns(part, resolve))


def has_outer_column(expression: tree.Expression) -> bool:
    """Whether the expression reads a column of an outer query."""
    return any(var.levels_up for var in walk.variables(expression))


def inner_columns(expressions: Sequence[tree.Expression]) -> list[tree.Var]:
    """Return the columns of the subquery itself in expressions that are written from inside it."""
    return [var for expression in expressions for var in walk.variables(expression) if var.levels_up == 0]


def bind_semi_join(
    scope: JoinScope, subquery: SubqueryTest, compile_with: Callable[[tree.Expression, Scope], Expr]
) -> JoinScope:
    """Keep the rows of the scope for which EXISTS or IN, or NOT of it, is true."""
    width = len(fields(scope.node))

    def resolve(expression: tree.Expression) -> Expr | None:
        if not isinstance(expression, tree.Var):
            return None
        if expression.levels_up == 1:
            return scope.column(replace(expression, levels_up=0))
        if expression.levels_up:
            hint = "join the tables instead"
            raise Refused(Reason.CONSTRUCT, "a reference to an outer query", hint=hint, token=expression.at)
        column = subquery.rows.column(expression)
        return None if column is None else shift(column, width)

    conditions = [_check_pushable(compile_with(c, resolve), subquery) for c in subquery.conditions]
    test = [_check_pushable(compile_with(c, resolve), subquery) for c in subquery.test]
    right = subquery.rows.node
    if not subquery.negated or not test:
        return replace(scope, node=_join(scope.node, right, [*conditions, *test], anti=subquery.negated))
    return replace(scope, node=_not_in(scope.node, right, conditions, test))


def _check_pushable(condition: Expr, subquery: SubqueryTest) -> Expr:
    if can_push_down(condition):
        return condition
    hint = "compute the expression in a subquery in FROM"
    construct = "a subquery whose condition on the outer query may raise an error"
    raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=subquery.at)


def _join(left: Node, right: Node, conditions: Sequence[Expr], *, anti: bool) -> SemiJoin:
    equi, residual = split_condition(conditions, len(fields(left)))
    return SemiJoin(left, right, equi, residual, anti)


def _not_in(left: Node, right: Node, conditions: Sequence[Expr], test: Sequence[Expr]) -> Node:
    equi, rest = split_condition(test, len(fields(left)))
    if len(equi) != 1 or rest is not None:
        # Several columns, or no equality to hash: a comparison that is not false excludes the row.
        not_false = Coalesce((conjunction(test), Const(True, BOOL)), BOOL)
        return _join(left, right, [*conditions, not_false], anti=True)
    ours, theirs = equi[0]
    node = _join(left, right, [*conditions, *test], anti=True)
    if nullable(theirs):
        node = _join(node, Filter(right, IsNull(theirs, False, BOOL)), conditions, anti=True)
    if nullable(ours):
        node = _join(node, right, [*conditions, IsNull(ours, False, BOOL)], anti=True)
    return node
