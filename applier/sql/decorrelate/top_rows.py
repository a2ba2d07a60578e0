"""ORDER BY with LIMIT or OFFSET, and DISTINCT ON -> TopK. Pure.

PostgreSQL and this program must agree on which rows come first. An order without ties guarantees that. Where ties are
possible, DISTINCT ON is refused, because with many keys there is always a tie somewhere. LIMIT is accepted, because it
has one boundary, and a tie across it is an error when it occurs.
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.plan.expr import Expr
from applier.plan.keys import identifies_rows, is_order_decided
from applier.plan.nodes import Node, TopK
from applier.plan.sort import SortKey
from applier.sql.bound.nodes import TopRows
from applier.sql.decorrelate.grouping import map_order
from applier.sql.decorrelate.lowered import Lowered, bound_columns, project_columns, resolve_over
from applier.sql.refusal import Reason, Refused

_TIES_HINT = "add the primary key to ORDER BY, so that there are no ties"


def keep_top_rows(top: TopRows, below: Lowered, partition_by: Sequence[Expr] = ()) -> Lowered:
    """Keep the first rows per row of the domain and per combination of `partition_by`, expressions over the node.

    The columns of `partition_by` are the domain of the result where there is no other.
    """
    count, end = len(below.domain), top.width + len(below.domain)
    exprs = (*below.exprs[: top.width], *below.domain, *below.exprs[top.width :])
    node = project_columns(below.node, (*exprs, *partition_by))
    shown = bound_columns(node)
    targets = (*shown[: top.width], *shown[end : len(exprs)])
    added = shown[len(exprs) :]
    partition = (*added, *shown[top.width : end])
    order = map_order(top.order, lambda expr: resolve_over(expr, targets))
    if top.distinct_on is not None:
        keys = [resolve_over(key, targets) for key in top.distinct_on]
        node = _keep_first_of_keys(node, keys, order, partition)
    if top.limited:
        node = _limit(top, node, order, partition)
    return Lowered(node, targets[: top.width], shown[top.width : end] if count else added)


def _keep_first_of_keys(
    node: Node, keys: Sequence[Expr], order: Sequence[SortKey], partition: tuple[Expr, ...]
) -> Node:
    within = tuple(key for key in order if key.expr not in keys)
    top = TopK(node, tuple(dict.fromkeys([*partition, *keys])), within, 1, 0, ties=False)
    if not is_order_decided(top):
        raise Refused(Reason.ORDER, "DISTINCT ON in an order that may have ties", hint=_TIES_HINT)
    return top


def _limit(top: TopRows, node: Node, order: tuple[SortKey, ...], partition: tuple[Expr, ...]) -> Node:
    if top.limit is None and not top.offset:
        return node
    if not order and top.limit != 0 and not identifies_rows(node, partition):
        raise Refused(Reason.ORDER, "LIMIT or OFFSET without ORDER BY", hint=_TIES_HINT)
    limited = TopK(node, partition, order, top.limit, top.offset, top.ties)
    if partition and not is_order_decided(limited):
        raise Refused(
            Reason.ORDER,
            "LIMIT in a LATERAL or correlated subquery, in an order that may have ties",
            hint=_TIES_HINT,
        )
    return limited
