"""LIMIT and OFFSET of the analysed tree -> numbers."""

from __future__ import annotations

from dataclasses import replace

from applier.plan.expr import Call, Const
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import compile_expression


def drop_exists_limit(condition: query_tree.MatchCondition, catalog: CatalogSnapshot) -> query_tree.MatchCondition:
    """Return EXISTS without a LIMIT that allows at least one row: EXISTS needs only one."""
    query = condition.query
    if condition.test is None and query.limit is not None and query.limit.offset is None:
        count = literal_number(query.limit.count, "LIMIT", catalog)
        if count is None or count > 0:
            return replace(condition, query=replace(query, limit=None))
    return condition


def replace_limit_by_count(query: query_tree.Query, catalog: CatalogSnapshot) -> tuple[query_tree.Query, int]:
    """Return the subquery of EXISTS without LIMIT and OFFSET, and the number of rows that it must exceed."""
    if query.limit is None:
        return query, 0
    count, offset = (
        literal_number(bound, clause, catalog)
        for bound, clause in ((query.limit.count, "LIMIT"), (query.limit.offset, "OFFSET"))
    )
    if count == 0 or query.distinct_on:
        raise Refused(
            Reason.CONSTRUCT, "LIMIT of 0, or together with DISTINCT ON, in a correlated EXISTS", hint="leave LIMIT out"
        )
    return replace(query, limit=None, order=()), offset or 0


def literal_number(expression: tree.Expression | None, clause: str, catalog: CatalogSnapshot) -> int | None:
    """Return the number of LIMIT or OFFSET; None when there is no bound."""
    if expression is None:
        return None
    compiled = compile_expression(expression, {}, catalog)
    if isinstance(compiled, Call) and len(compiled.args) == 1:
        (compiled,) = compiled.args
    match compiled:
        case Const(value=None):
            return None
        case Const(value=int() as number) if number >= 0:
            return number
        case _:
            raise Refused(Reason.CONSTRUCT, f"{clause} of an expression", hint="write a literal number")
