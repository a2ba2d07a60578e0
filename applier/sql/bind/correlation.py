"""A subquery -> the columns of outer queries that it reads, and in which of its clauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.sql.bind.conjuncts import conjuncts
from applier.sql.bind.levels import Levels, OuterSelect
from applier.sql.bound.columns import OuterCol
from applier.sql.bound.nodes import Correlation
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown


def correlation_of(query: query_tree.Query, outer: Levels) -> Correlation:
    """Return what the query and the queries inside it read of outer queries."""
    if not outer:
        return Correlation()
    reads = tuple(dict.fromkeys(read for var in outer_variables(query) for read in _read_outer_columns(var, outer)))
    if not reads:
        return Correlation()
    where = conjuncts(query.where)
    own = [c for c in where if has_outer_variable(c)]
    plain = tuple(c for c in where if not has_outer_variable(c))
    rest = replace(query, where=tree.BoolExpr(tree.BoolOperator.AND, plain) if plain else None)
    simple = not any(any(walk.subqueries(c)) for c in own)
    targets = [t.expression for t in query.targets if has_outer_variable(t.expression)]
    only_in_where = simple and not reads_outside(rest)
    simple_targets = simple and not any(any(walk.subqueries(t)) for t in targets)
    return Correlation(
        reads,
        only_in_where=only_in_where,
        in_targets=bool(targets),
        only_in_where_or_targets=only_in_where or (simple_targets and not reads_outside(replace(rest, targets=()))),
    )


def _read_outer_columns(var: tree.Var, outer: Levels) -> list[OuterCol]:
    """Return the outer column of a variable, as the query directly inside the last level sees it; each of a row."""
    select = _select_of(var, outer)
    parts = walk.variables(expand_outer_rows(var, outer))
    return [select.read_outer(replace(part, levels_up=0))[0] for part in parts]


def expand_outer_rows(expression: tree.Expression, outer: Levels) -> tree.Expression:
    """Replace whole rows of FROM items of outer queries by their columns."""
    if not any(var.levels_up and not var.number for var in walk.variables(expression)):
        return expression
    if not isinstance(expression, tree.Var):
        return walk.rebuild(expression, lambda part: expand_outer_rows(part, outer))
    select, levels_up = _select_of(expression, outer), expression.levels_up

    def lift(part: tree.Expression) -> tree.Expression:
        return replace(part, levels_up=levels_up) if isinstance(part, tree.Var) else walk.rebuild(part, lift)

    return lift(select.flatten(replace(expression, levels_up=0)))


def _select_of(var: tree.Var, outer: Levels) -> OuterSelect:
    select = outer[-var.levels_up].select if 1 <= var.levels_up <= len(outer) else None
    if select is None:
        raise unknown("a column of an outer query that has none")
    return select


def outer_variables(query: query_tree.Query, depth: int = 1) -> Iterator[tree.Var]:
    """Yield the columns of outer queries that the query and its subqueries read, as the query itself sees them."""
    for expression in query_tree.expressions(query):
        for var in walk.variables(expression):
            if var.levels_up >= depth:
                yield replace(var, levels_up=var.levels_up - depth + 1) if depth > 1 else var
    for inner in query_tree.inner_queries(query):
        yield from outer_variables(inner, depth + 1)


def reads_outside(query: query_tree.Query) -> bool:
    """Whether the query, or a query inside it, reads an outer query."""
    return next(outer_variables(query), None) is not None


def has_outer_variable(expression: tree.Expression) -> bool:
    """Whether the expression itself reads a column of an outer query."""
    return any(var.levels_up for var in walk.variables(expression))
