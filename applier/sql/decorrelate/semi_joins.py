"""EXISTS and IN -> semi- and anti-joins.

A condition between a query and the subquery it asks is written from inside the subquery: a column of the subquery is at
level 0, one of the query around it at level 1.

NOT IN is true when every comparison is false. That rules out a row with an equal partner; any row as soon as there is a
NULL among the partners; and a row that is NULL itself as soon as there is any partner. Three anti-joins say just that,
and two of them only where a NULL is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from applier.plan.expr import BOOL, Coalesce, Const, Expr, IsNull, nullable, shift
from applier.plan.nodes import Filter, Node, SemiJoin, fields
from applier.sql.bind.joins import JoinScope, conjunction, is_placeable, split_condition
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.tree import RESULT
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import Scope


@dataclass(frozen=True, slots=True)
class SubqueryTest:
    """A subquery that is asked for partners: its rows, what a partner must fulfil, and the comparison of IN."""

    rows: JoinScope
    conditions: tuple[tree.Expression, ...]
    test: tuple[tree.Expression, ...]
    negated: bool
    at: int | None

    def outer_columns(self) -> Iterator[tree.Var]:
        """The columns of the query around it that it looks at, as that query names them."""
        for condition in (*self.conditions, *self.test):
            for var in walk.variables(condition):
                if var.levels_up == 1:
                    yield replace(var, levels_up=0)


def as_expression(partners: query_tree.MatchCondition) -> tree.Expression:
    """The condition as one that may stand anywhere."""
    kind = tree.SubLinkType.EXISTS if partners.test is None else tree.SubLinkType.ANY
    number = query_tree.next_subquery_number()
    blank = tree.SubLink(number, kind, partners.query, None, (), 0, partners.at)
    subquery = query_tree.replace_subquery(blank, partners.query, partners.test)
    return tree.BoolExpr(tree.BoolOperator.NOT, (subquery,)) if partners.negated else subquery


def into_subquery(expression: tree.Expression, result: Callable[[tree.Var], tree.Expression]) -> tree.Expression:
    """The test of IN, written from inside the subquery; `result` says what a column of the subquery's result is."""
    if isinstance(expression, tree.Var):
        return result(expression) if _is_result(expression) else replace(expression, levels_up=expression.levels_up + 1)
    return walk.rebuild(expression, lambda part: into_subquery(part, result))


def _is_result(var: tree.Var) -> bool:
    return var.entry == RESULT and var.levels_up == 0


def outer_part(expression: tree.Expression, change: Callable[[tree.Var], tree.Expression]) -> tree.Expression:
    """Columns of the query around it changed to what they stand for there."""
    if isinstance(expression, tree.Var):
        if expression.levels_up != 1:
            return expression
        return into_subquery(change(replace(expression, levels_up=0)), lambda var: var)
    return walk.rebuild(expression, lambda part: outer_part(part, change))


def correlated(expression: tree.Expression) -> bool:
    """Whether it looks at a query further out."""
    return any(var.levels_up for var in walk.variables(expression))


def own_columns(expressions: Sequence[tree.Expression]) -> list[tree.Var]:
    """The subquery's own columns in conditions written from inside it."""
    return [var for expression in expressions for var in walk.variables(expression) if var.levels_up == 0]


def bind_semi_join(
    frame: JoinScope, asked: SubqueryTest, compile_with: Callable[[tree.Expression, Scope], Expr]
) -> JoinScope:
    """The rows of the frame for which the answer is true."""
    width = len(fields(frame.node))

    def scope(expression: tree.Expression) -> Expr | None:
        if not isinstance(expression, tree.Var):
            return None
        if expression.levels_up == 1:
            return frame.column(replace(expression, levels_up=0))
        if expression.levels_up:
            hint = "join the tables instead"
            raise Refused(Reason.CONSTRUCT, "a reference to an outer query", hint=hint, token=expression.at)
        column = asked.rows.column(expression)
        return None if column is None else shift(column, width)

    conditions = [_total(compile_with(c, scope), asked) for c in asked.conditions]
    test = [_total(compile_with(c, scope), asked) for c in asked.test]
    right = asked.rows.node
    if not asked.negated or not test:
        return replace(frame, node=_join(frame.node, right, [*conditions, *test], anti=asked.negated))
    return replace(frame, node=_not_in(frame.node, right, conditions, test))


def _total(condition: Expr, asked: SubqueryTest) -> Expr:
    if is_placeable(condition):
        return condition
    hint = "compute the expression in a subquery of FROM"
    construct = "a subquery asked by a condition that may raise an error"
    raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=asked.at)


def _join(left: Node, right: Node, conditions: Sequence[Expr], *, anti: bool) -> SemiJoin:
    equi, residual = split_condition(conditions, len(fields(left)))
    return SemiJoin(left, right, equi, residual, anti)


def _not_in(left: Node, right: Node, conditions: Sequence[Expr], test: Sequence[Expr]) -> Node:
    equi, rest = split_condition(test, len(fields(left)))
    if len(equi) != 1 or rest is not None:
        # Several columns, or no equality to hash: a comparison that is not false rules the row out.
        not_false = Coalesce((conjunction(test), Const(True, BOOL)), BOOL)
        return _join(left, right, [*conditions, not_false], anti=True)
    ours, theirs = equi[0]
    node = _join(left, right, [*conditions, *test], anti=True)
    if nullable(theirs):
        node = _join(node, Filter(right, IsNull(theirs, False, BOOL)), conditions, anti=True)
    if nullable(ours):
        node = _join(node, right, [*conditions, IsNull(ours, False, BOOL)], anti=True)
    return node
