"""Δ(τ(A)) = τ(A'_K) − τ(A_K), K = the partitions of ΔA: the first rows of each, before and after; see `partitions`.

A row at place p (from 1) among those of its partition is taken when offset < p ≤ offset + limit; with ties also when
its rank, the first place of the rows equal to it in order, is not beyond offset + limit. Reads the input's trace
before the window, restricted to K; without partitions the first rows are kept, see `state.first_rows`.
"""

from __future__ import annotations

from collections.abc import Callable

from applier.functions.emit import spark_sql
from applier.operators.support.key_filter import KeyFilter
from applier.operators.support.partitions import SIDE, affected_rows, expand_weights, order_by_key, over_clause
from applier.plan.nodes import TopK, fields
from applier.zset import column_names, select

TIE = "rows that ORDER BY does not tell apart stand on both sides of the border of LIMIT or OFFSET"


def snapshot_top_k(node: TopK, zset: str) -> str:
    """τ of a whole Z-set."""
    return _taken(node, expand_weights(fields(node), zset))


def delta_top_k(node: TopK, before: Callable[[KeyFilter], str], delta: str, *, small: bool) -> str:
    """τ(A'_K) − τ(A_K); rows that stay are in both and cancel out."""
    return _taken(node, affected_rows(fields(node), node.keys, before, delta, small=small))


def last_place(node: TopK) -> int:
    """The last place that is taken."""
    if node.limit is None:
        raise AssertionError("no row is the last without LIMIT")
    return node.offset + node.limit


def rows_up_to(node: TopK, zset: str, places: int) -> str:
    """Every row of a whole Z-set up to some place, and those equal in order to the last."""
    ranked = f"SELECT *, rank() {over_clause([], [order_by_key(key) for key in node.order])} AS rank"
    rows = f"({ranked} FROM ({expand_weights(fields(node), zset)})) WHERE rank <= {places}"
    return select(list(column_names(len(fields(node)))), SIDE, rows)


def _taken(node: TopK, rows: str) -> str:
    names = column_names(len(fields(node)))
    keys, order = [spark_sql(key) for key in node.keys], [order_by_key(key) for key in node.order]
    # First by rank, for Spark keeps no more than that of each partition; then the exact places among those.
    last = None if node.limit is None else node.offset + node.limit
    ranked = f"SELECT *, rank() {over_clause(keys, order or ['1'])} AS rank FROM ({rows})"
    candidates = ranked if last is None else f"SELECT * FROM ({ranked}) WHERE rank <= {last}"
    among = [*order, *names] if not node.decided or node.ties else order or names
    place = f"row_number() {over_clause(keys, among)} AS place"
    numbered = f"SELECT *, {place}{_ambiguity(node, keys)} FROM ({candidates})"
    conditions = [f"place > {node.offset}"] if node.offset else []
    if last is not None:
        conditions.append(("rank" if node.ties else "place") + f" <= {last}")
    if node.limit == 0:
        conditions = ["false"]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if not node.decided:
        numbered = f"SELECT *, {_checked(node, last)} AS ok FROM ({numbered})"
        where = (where + " AND ok") if where else " WHERE ok"
    return select(list(names), SIDE, f"({numbered}){where}")


def _ambiguity(node: TopK, keys: list[str]) -> str:
    """Of the rows equal in order: how many there are, and whether they are different rows."""
    if node.decided:
        return ""
    equal = over_clause([*keys, *(spark_sql(key.expr) for key in node.order)], [])
    row = f"struct({', '.join(column_names(len(fields(node))))})"
    return f", count(*) {equal} AS equals, min({row}) {equal} <> max({row}) {equal} AS differ"


def _checked(node: TopK, last: int | None) -> str:
    borders = [b for b in (node.offset, None if node.ties else last) if b]
    crossed = " OR ".join(f"(rank <= {b} AND rank + equals - 1 > {b})" for b in borders) or "false"
    return f"if(differ AND ({crossed}), CAST(raise_error('{TIE}') AS boolean), true)"
