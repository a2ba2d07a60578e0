"""ORDER BY with LIMIT or OFFSET, and DISTINCT ON -> TopK.

Which rows come first must be the same to PostgreSQL and to us. An order that tells all rows apart says so by itself.
Where it does not, DISTINCT ON is refused, because with many keys there is always a tie somewhere; LIMIT is taken,
because it has one border, and a tie across it is an error when it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from applier.plan.expr import Call, Const, Expr
from applier.plan.nodes import Node, TopK, identifies_rows
from applier.plan.sort import SortKey
from applier.sql.analyze.system_catalog import SystemCatalog
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.group_key import group_key
from applier.sql.bind.sort_key import sort_key
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler

_DECIDE = "add the primary key to ORDER BY, so that no two rows are equal in it"


def bind_limit(
    query: query_tree.Query,
    needed: Sequence[int],
    select: Callable[[Sequence[int]], BoundQuery],
    catalog: SystemCatalog,
    within: Sequence[Expr] = (),
) -> BoundQuery:
    """The query's rows that DISTINCT ON and LIMIT leave; `select` makes all of them, with the targets named.

    They are counted for each given row, and for each combination of `within`, expressions over what `select` makes,
    which follow the targets.
    """
    keys = query.distinct if query.distinct_on else ()
    references = [*(item.reference for item in keys), *(item.reference for item in query.order)]
    named = [_place(query, reference) for reference in references]
    places = list(dict.fromkeys([*needed, *named, *query.domain_targets]))
    built = select(places)
    node = project_columns(built.node, (*built.exprs, *within))
    shown = bound_columns(node)
    at = {place: shown[i] for i, place in enumerate(places)}
    after = shown[len(places) :]
    apart = (*after, *(at[place] for place in query.domain_targets))

    order = [
        sort_key(
            at[_place(query, item.reference)], query.targets[_place(query, item.reference)].expression, item, catalog
        )
        for item in query.order
    ]
    if query.distinct_on:
        node = _distinct_on(query, node, at, order, catalog, apart=apart)
    if query.limit is not None:
        node = _limited(query.limit, node, tuple(order), catalog, apart)
    return BoundQuery(node, (*(at[i] for i in needed), *after))


def limit_of(partners: query_tree.MatchCondition, catalog: SystemCatalog) -> query_tree.Query:
    """The subquery of EXISTS without a LIMIT that leaves it at least one row, for one is as good as many."""
    query = partners.query
    if partners.test is None and query.limit is not None and query.limit.offset is None:
        count = literal_number(query.limit.count, "LIMIT", catalog)
        if count is None or count > 0:
            return replace(query, limit=None)
    return query


def without_limit(query: query_tree.Query, catalog: SystemCatalog) -> tuple[query_tree.Query, int]:
    """The subquery of EXISTS without LIMIT and OFFSET, and how many rows it must have more than."""
    if query.limit is None:
        return query, 0
    count, offset = (
        literal_number(bound, clause, catalog)
        for bound, clause in ((query.limit.count, "LIMIT"), (query.limit.offset, "OFFSET"))
    )
    if count == 0 or query.distinct_on:
        raise Refused(Reason.CONSTRUCT, "LIMIT of such a subquery", hint="leave it out")
    return replace(query, limit=None, order=()), offset or 0


def _place(query: query_tree.Query, reference: int) -> int:
    found = [i for i, target in enumerate(query.targets) if target.group_reference == reference]
    if len(found) != 1:
        raise unknown("an ORDER BY or DISTINCT ON that names no target")
    return found[0]


def _distinct_on(
    query: query_tree.Query,
    node: Node,
    at: Mapping[int, Expr],
    order: Sequence[SortKey],
    catalog: SystemCatalog,
    *,
    apart: tuple[Expr, ...],
) -> Node:
    keys = []
    for item in query.distinct:
        place = _place(query, item.reference)
        keys.append(group_key(at[place], query.targets[place].expression, item, catalog).by)
    within = tuple(key for key in order if key.expr not in keys)
    top = TopK(node, tuple(dict.fromkeys([*apart, *keys])), within, 1, 0, ties=False)
    if not top.decided:
        raise Refused(Reason.ORDER, "DISTINCT ON in an order that leaves the first row open", hint=_DECIDE)
    return top


def _limited(
    limit: query_tree.Limit, node: Node, order: tuple[SortKey, ...], catalog: SystemCatalog, apart: tuple[Expr, ...]
) -> Node:
    count, offset = literal_number(limit.count, "LIMIT", catalog), literal_number(limit.offset, "OFFSET", catalog) or 0
    if count is None and not offset:
        return node
    if not order and count != 0 and not identifies_rows(node, apart):
        raise Refused(Reason.ORDER, "LIMIT or OFFSET without ORDER BY", hint=_DECIDE)
    top = TopK(node, apart, order, count, offset, limit.ties)
    if apart and not top.decided:
        raise Refused(Reason.ORDER, "LIMIT in LATERAL in an order that leaves the first rows open", hint=_DECIDE)
    return top


def literal_number(expression: tree.Expression | None, clause: str, catalog: SystemCatalog) -> int | None:
    """The number LIMIT or OFFSET is given; None where there is no bound."""
    if expression is None:
        return None
    compiled = ExpressionCompiler(catalog, lambda _: None).compile(expression)
    if isinstance(compiled, Call) and len(compiled.args) == 1:
        (compiled,) = compiled.args
    match compiled:
        case Const(value=None):
            return None
        case Const(value=int() as number) if number >= 0:
            return number
        case _:
            raise Refused(Reason.CONSTRUCT, f"{clause} of an expression", hint="write the number itself")
