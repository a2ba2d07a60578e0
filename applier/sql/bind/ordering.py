"""ORDER BY with LIMIT or OFFSET, and DISTINCT ON -> TopK.

PostgreSQL and this program must agree on which rows come first. An order without ties guarantees that. Where ties are
possible, DISTINCT ON is refused, because with many keys there is always a tie somewhere. LIMIT is accepted, because it
has one boundary, and a tie across it is an error when it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from applier.plan.expr import Call, Const, Expr
from applier.plan.keys import identifies_rows, is_order_decided
from applier.plan.nodes import Node, TopK
from applier.plan.sort import SortKey
from applier.sql.bind.bound import BoundQuery, bound_columns, project_columns
from applier.sql.bind.group_key import group_key
from applier.sql.bind.sort_key import sort_key
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.compile import ExpressionCompiler

_TIES_HINT = "add the primary key to ORDER BY, so that there are no ties"


def bind_limit(
    query: query_tree.Query,
    needed: Sequence[int],
    select: Callable[[Sequence[int]], BoundQuery],
    catalog: CatalogSnapshot,
    partition_by: Sequence[Expr] = (),
) -> BoundQuery:
    """Bind DISTINCT ON and LIMIT; `select` binds the query without them and returns the targets with these indexes.

    Rows are limited per row of the domain and per combination of `partition_by`, which are expressions over the node
    that `select` returns. The columns of `partition_by` follow the needed targets in the result.
    """
    keys = query.distinct if query.distinct_on else ()
    references = [*(item.reference for item in keys), *(item.reference for item in query.order)]
    referenced = [_target_index(query, reference) for reference in references]
    indexes = list(dict.fromkeys([*needed, *referenced, *query.domain_targets]))
    built = select(indexes)
    node = project_columns(built.node, (*built.exprs, *partition_by))
    shown = bound_columns(node)
    at = {index: shown[i] for i, index in enumerate(indexes)}
    partition_columns = shown[len(indexes) :]
    partition = (*partition_columns, *(at[index] for index in query.domain_targets))

    order = [
        sort_key(
            at[_target_index(query, item.reference)],
            query.targets[_target_index(query, item.reference)].expression,
            item,
            catalog,
        )
        for item in query.order
    ]
    if query.distinct_on:
        node = _apply_distinct_on(query, node, at, order, catalog, partition=partition)
    if query.limit is not None:
        node = _apply_limit(query.limit, node, tuple(order), catalog, partition)
    return BoundQuery(node, (*(at[i] for i in needed), *partition_columns))


def drop_exists_limit(condition: query_tree.MatchCondition, catalog: CatalogSnapshot) -> query_tree.Query:
    """Return the subquery of EXISTS without a LIMIT that allows at least one row: EXISTS needs only one."""
    query = condition.query
    if condition.test is None and query.limit is not None and query.limit.offset is None:
        count = literal_number(query.limit.count, "LIMIT", catalog)
        if count is None or count > 0:
            return replace(query, limit=None)
    return query


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


def _target_index(query: query_tree.Query, reference: int) -> int:
    found = [i for i, target in enumerate(query.targets) if target.group_reference == reference]
    if len(found) != 1:
        raise unknown("an ORDER BY or DISTINCT ON that names no target")
    return found[0]


def _apply_distinct_on(
    query: query_tree.Query,
    node: Node,
    at: Mapping[int, Expr],
    order: Sequence[SortKey],
    catalog: CatalogSnapshot,
    *,
    partition: tuple[Expr, ...],
) -> Node:
    keys = []
    for item in query.distinct:
        index = _target_index(query, item.reference)
        keys.append(group_key(at[index], query.targets[index].expression, item, catalog).by)
    within = tuple(key for key in order if key.expr not in keys)
    top = TopK(node, tuple(dict.fromkeys([*partition, *keys])), within, 1, 0, ties=False)
    if not is_order_decided(top):
        raise Refused(Reason.ORDER, "DISTINCT ON in an order that may have ties", hint=_TIES_HINT)
    return top


def _apply_limit(
    limit: query_tree.Limit,
    node: Node,
    order: tuple[SortKey, ...],
    catalog: CatalogSnapshot,
    partition: tuple[Expr, ...],
) -> Node:
    count, offset = literal_number(limit.count, "LIMIT", catalog), literal_number(limit.offset, "OFFSET", catalog) or 0
    if count is None and not offset:
        return node
    if not order and count != 0 and not identifies_rows(node, partition):
        raise Refused(Reason.ORDER, "LIMIT or OFFSET without ORDER BY", hint=_TIES_HINT)
    top = TopK(node, partition, order, count, offset, limit.ties)
    if partition and not is_order_decided(top):
        raise Refused(
            Reason.ORDER,
            "LIMIT in a LATERAL or correlated subquery, in an order that may have ties",
            hint=_TIES_HINT,
        )
    return top


def literal_number(expression: tree.Expression | None, clause: str, catalog: CatalogSnapshot) -> int | None:
    """Return the number of LIMIT or OFFSET; None when there is no bound."""
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
            raise Refused(Reason.CONSTRUCT, f"{clause} of an expression", hint="write a literal number")
