"""WITH RECURSIVE -> a bound recursion.

A recursive WITH query is a UNION of a base and a step. The step reads the query itself, and reads there the rows of the
last round, the work table. Base and step must have columns of the same physical types. When the step makes a numeric
wider, the recursion is bound again with the wider type. A numeric that grows in every round has no physical type.
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.plan.expr import Col, Expr, ValueType, nullable
from applier.plan.nodes import Field
from applier.sql.bind.compared_columns import check_columns
from applier.sql.bind.correlation import correlation_of
from applier.sql.bind.levels import Binder, BoundWorkTable, Level, Levels
from applier.sql.bind.search_cycle import add_search_cycle
from applier.sql.bind.unify_columns import unify_columns
from applier.sql.bound.nodes import Alias, BoundQuery, CastQuery, RecursionItem, result_columns
from applier.sql.pg_tree import query_tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused

_MAX_WIDENINGS = 3
_HINT = "write base UNION [ALL] step, where only the step reads the recursive query itself"
_Branch = int | query_tree.SetOperation


def bind_recursion(
    binder: Binder, name: str, holders: Levels, reads: tuple[int, ...], alias: Alias
) -> tuple[RecursionItem, tuple[Field, ...]]:
    """Bind a recursive WITH query at a reference to it; return it with its columns."""
    correlation = correlation_of(holders[-1].query.ctes[name], holders)
    query, search_cycle = holders[-1].query.ctes[name], holders[-1].query.search_cycles.get(name)
    if search_cycle is not None:
        query = add_search_cycle(query, search_cycle, name, binder.catalog)
    union, levels = query.union, (*holders, Level(query, None))
    if union is None or union.kind is not query_tree.SetOperationType.UNION or query.limit is not None or query.order:
        raise Refused(Reason.CONSTRUCT, "WITH RECURSIVE in this form", hint=_HINT)
    match union.branches:
        case (first, second):
            branches = (first, second)
        case _:
            raise unknown("WITH RECURSIVE with several branches")
    number, key = binder.next_number(), (id(holders[-1].query), name)
    base, step = _bind_fixpoint(binder, key, number, (union, branches), levels)
    item = RecursionItem(number, base, step, not union.keeps_duplicates, reads, correlation, alias)
    pairs = zip(base.casts, step.casts, strict=True)
    return item, tuple(Field(a.type, nullable(a) or nullable(b)) for a, b in pairs)


def _bind_fixpoint(
    binder: Binder,
    key: tuple[int, str],
    number: int,
    operation: tuple[query_tree.SetOperation, tuple[_Branch, _Branch]],
    levels: Levels,
) -> tuple[CastQuery, CastQuery]:
    union, branches = operation
    all_columns = range(len(union.columns))
    pg = [binder.catalog.pg_type(column.type, column.typmod) for column in union.columns]
    base = binder.bind_branch(branches[0], all_columns, levels)
    types = _types(unify_columns([result_columns(base)], pg)[0])
    for _ in range(_MAX_WIDENINGS):
        work_table = BoundWorkTable(number, tuple(Field(t, True) for t in types))
        step = _bind_step(binder, key, work_table, levels, branches[1])
        first, second = unify_columns([result_columns(base), result_columns(step)], pg)
        found = _types(first)
        if found == types:
            if not union.keeps_duplicates:
                columns = [Col(i, expr.type, nullable(expr)) for i, expr in enumerate(first)]
                check_columns(union, columns, binder.catalog)
            return CastQuery(base, first), CastQuery(step, second)
        types = found
    construct = "WITH RECURSIVE with a numeric column that gets more digits in every round"
    raise Refused(Reason.TYPE, construct, hint="cast the column to one numeric(p,s) in both branches")


def _bind_step(
    binder: Binder, key: tuple[int, str], work_table: BoundWorkTable, levels: Levels, branch: _Branch
) -> BoundQuery:
    binder.work_tables[key] = work_table
    try:
        return binder.bind_branch(branch, range(len(work_table.fields)), levels)
    finally:
        del binder.work_tables[key]


def _types(exprs: Sequence[Expr]) -> list[ValueType]:
    return [expr.type for expr in exprs]
