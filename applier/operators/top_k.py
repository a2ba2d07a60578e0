"""ORDER BY … LIMIT, for each partition -> the rows at the first places of the order.

    Δ(τ(A)) = τ(A'_K) − τ(A_K),   K = the partitions of ΔA

These are the first rows of each affected partition, before and after: see `support.partitions`. A row at place p (from
1) of its partition is selected when offset < p ≤ offset + limit. With ties it is also selected when its rank, the first
place of the rows that are equal to it in the order, is not beyond offset + limit. Reads the input's trace at the lower
end of the LSN range, restricted to K. Without partitions a buffer holds the first rows, see `state.top_k_buffer`.

Intuitively: when a row among the first ones leaves, the next row moves up into its place.

    A: (1) (2) (3)   LIMIT 2     result (1) (2)
    ΔA: −(1)  →  before {(1), (2)} after {(2), (3)}  →  delta −(1) +(3)
"""

from __future__ import annotations

from applier.functions.emit import spark_sql
from applier.operators.support.delta_plan import OrderedDelta, StatePart, StateRows
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.partitions import (
    SIDE,
    affected_rows,
    expand_weights,
    order_by_key,
    over_clause,
    plan_partitions_delta,
)
from applier.plan.keys import is_order_decided
from applier.plan.nodes import TopK, fields
from applier.zset import ZSet, column_names

TIE = "rows that are equal in ORDER BY are on both sides of the border of LIMIT or OFFSET"


def snapshot_top_k(node: TopK, zset: ZSet) -> ZSet:
    """Return τ of a whole Z-set."""
    return _select_places(node, expand_weights(fields(node), zset))


def plan_top_k_delta(node: TopK, inputs: InputPlans) -> OrderedDelta | None:
    """Plan τ(A'_K) − τ(A_K), from the buffer where there is one."""
    state = inputs.state_of(node)
    if state is None:
        return plan_partitions_delta(node, inputs)
    if not state.has_changed:
        return None
    return OrderedDelta(node, StateRows(node, StatePart.BEFORE), StateRows(node, StatePart.DELTA))


def render_top_k_delta(node: TopK, before: ZSet, delta: ZSet) -> ZSet:
    """Return τ(A'_K) − τ(A_K); rows that stay are in both and cancel out."""
    return _select_places(node, affected_rows(fields(node), before, delta))


def last_place(node: TopK) -> int:
    """Return the last place that is selected."""
    if node.limit is None:
        raise AssertionError("without LIMIT there is no last place")
    return node.offset + node.limit


def rows_up_to(node: TopK, zset: ZSet, places: int) -> ZSet:
    """Return the rows of a whole Z-set up to a place, and those that are equal to the last of them in the order."""
    ranked = f"SELECT *, rank() {over_clause([], [order_by_key(key) for key in node.order])} AS rank"
    rows = f"({ranked} FROM ({expand_weights(fields(node), zset)})) WHERE rank <= {places}"
    return ZSet.select_from(rows, zset.columns, SIDE)


def _select_places(node: TopK, rows: str) -> ZSet:
    names = column_names(len(fields(node)))
    keys, order = [spark_sql(key) for key in node.keys], [order_by_key(key) for key in node.order]
    # First by rank, because then Spark keeps only that many rows of each partition; then by exact place among those.
    last = None if node.limit is None else node.offset + node.limit
    ranked = f"SELECT *, rank() {over_clause(keys, order or ['1'])} AS rank FROM ({rows})"
    candidates = ranked if last is None else f"SELECT * FROM ({ranked}) WHERE rank <= {last}"
    among = [*order, *names] if not is_order_decided(node) or node.ties else order or names
    place = f"row_number() {over_clause(keys, among)} AS place"
    numbered = f"SELECT *, {place}{_tie_columns(node, keys)} FROM ({candidates})"
    conditions = [f"place > {node.offset}"] if node.offset else []
    if last is not None:
        conditions.append(("rank" if node.ties else "place") + f" <= {last}")
    if node.limit == 0:
        conditions = ["false"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if not is_order_decided(node):
        numbered = f"SELECT *, {_fail_on_tie(node, last)} AS ok FROM ({numbered})"
        where = (where + " AND ok") if where else " WHERE ok"
    return ZSet.select_from(f"({numbered}){where}", names, SIDE)


def _tie_columns(node: TopK, keys: list[str]) -> str:
    """Return columns that say how many rows are equal in the order, and whether they are different rows."""
    if is_order_decided(node):
        return ""
    equal = over_clause([*keys, *(spark_sql(key.expr) for key in node.order)], [])
    row = f"struct({', '.join(column_names(len(fields(node))))})"
    return f", count(*) {equal} AS equals, min({row}) {equal} <> max({row}) {equal} AS differ"


def _fail_on_tie(node: TopK, last: int | None) -> str:
    """Return a condition that raises an error where different rows that are equal in the order cross a border."""
    borders = [b for b in (node.offset, None if node.ties else last) if b]
    crossed = " OR ".join(f"(rank <= {b} AND rank + equals - 1 > {b})" for b in borders) or "false"
    return f"if(differ AND ({crossed}), CAST(raise_error('{TIE}') AS boolean), true)"
