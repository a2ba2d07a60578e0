"""Δ(γ_k,f(A)) = γ(A'_K) − γ(A_K), where K = the groups ΔA touches and A' = A + ΔA.

Everything is computed from *shares* (see `calls`), which add up: σ(A') = σ(A) + σ(ΔA). So the old half comes either
from the rows of A in the groups K, or from σ(A) kept since the last window, and the new half needs σ(ΔA) only:

    γ(g) = answer(Σ shares of g);   emit −(g, γ) if n > 0, +(g, γ') if n' > 0, where n = Σ w counts the group's rows

Without keys the one group always exists.
"""

from __future__ import annotations

from collections.abc import Callable

from applier.functions.emit import spark_sql
from applier.operators.support.accumulators import (
    COUNT,
    call_result,
    is_additive,
    key_names,
    row_accumulators,
    sum_accumulators,
    sum_column,
    sum_types,
    value_names,
)
from applier.operators.support.inputs import AffectedGroups
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT, column_name, column_names, select

OLD, NEW = ENDS = "o", "n"
"""Names of a window's ends, and prefixes of what belongs to them."""


def group_accumulators(node: Aggregate, zset: str) -> str:
    """σ of a Z-set, one share per group (and set of values where those count): what is worth keeping of it."""
    sums = " OR ".join(f"{name} <> 0" for name in sum_types(node))
    return f"SELECT * FROM ({sum_accumulators(node, row_accumulators(node, zset))}) WHERE {sums}"


def snapshot_aggregate(node: Aggregate, zset: str) -> str:
    """γ of a whole Z-set."""
    return results_of(node, row_accumulators(node, zset))


def results_of(node: Aggregate, rows: str) -> str:
    """γ of the Z-set that these shares are of."""
    groups = _groups(node, _at(node, rows, {NEW: True}), (NEW,))
    results = [f"{NEW}_r{i}" for i in range(len(node.calls))]
    return select([*key_names(node), *results], "1L", f"({groups}) WHERE {NEW}_there")


def delta_aggregate(node: Aggregate, before: Callable[[KeyFilter], str], delta: str, *, small: bool) -> str:
    """γ(A + ΔA) − γ(A) on the groups ΔA touches, from A itself.   Reads the input's trace, keeps no state."""
    keys = [spark_sql(key) for key in node.keys]
    touched = before(KeyFilter.of(node.keys, keys, delta, null_safe=True, small=small))
    return _difference(node, row_accumulators(node, touched), row_accumulators(node, delta))


def delta_from_accumulators(node: Aggregate, before: str, delta: str, *, small: bool) -> str:
    """The same from the shares of A and of ΔA.   State: σ(A)."""
    keys = key_names(node)
    touched = KeyFilter.of(node.keys, keys, delta, null_safe=True, small=small).apply(before, keys)
    return _difference(node, touched, delta)


def delta_from_sums(node: Aggregate, touched: AffectedGroups) -> str:
    """The same from what the touched groups are made of at both ends, named o_… and n_….   State: σ(A), or extremes."""
    groups = _results(node, touched.rows, (OLD, NEW), (WEIGHT,) if touched.signed else ())
    return _signed_changes(node, groups) if touched.signed else _changes(node, groups)


def group_rows(node: Aggregate, zset: str) -> str:
    """What the results of every group of a whole Z-set are made of, named n_…"""
    return _summed(node, _at(node, row_accumulators(node, zset), {NEW: True}), (NEW,))


def signed_group_rows(node: Aggregate, delta: str) -> str:
    """The same of the rows that come, and named o_… of those that leave, for calls that need the values."""
    columns = ", ".join([*key_names(node), *value_names(node)])
    return _summed(
        node,
        f"SELECT {columns}, -{COUNT} AS {OLD}_{COUNT}, {COUNT} AS {NEW}_{COUNT} FROM ({row_accumulators(node, delta)})",
        (OLD, NEW),
    )


def _at(node: Aggregate, rows: str, there: dict[str, bool]) -> str:
    """Shares with their sums at each end of a window: nothing where they are not there."""
    sums = [
        f"{name if present else f'CAST(0 AS {spark})'} AS {side}_{name}"
        for side, present in there.items()
        for name, spark in sum_types(node).items()
    ]
    return f"SELECT {', '.join([*key_names(node), *value_names(node), *sums])} FROM ({rows})"


def _groups(node: Aggregate, rows: str, sides: tuple[str, ...]) -> str:
    """One row per group: for each end of the window whether the group is there, and every result."""
    return _results(node, _summed(node, rows, sides), sides)


def _summed(node: Aggregate, rows: str, sides: tuple[str, ...]) -> str:
    """One row per group: for each end of the window what every result is made of."""
    keys, values = key_names(node), value_names(node)
    sums = {f"{side}_{name}": spark for side in sides for name, spark in sum_types(node).items()}
    totals = [f"{sum_column(name, spark)} AS {name}" for name, spark in sums.items()]
    if not is_additive(node):
        grouping = f" GROUP BY {', '.join([*keys, *values])}" if keys or values else ""
        rows = f"SELECT {', '.join([*keys, *values, *totals])} FROM ({rows}){grouping}"
    answers = {(side, i): call_result(node, i, side) for side in sides for i in range(len(node.calls))}
    totals += [f"{text} AS {name}" for part in answers.values() for name, text in part.aggregated.items()]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *totals])} FROM ({rows}){grouping}"


def _results(node: Aggregate, summed: str, sides: tuple[str, ...], also: tuple[str, ...] = ()) -> str:
    answers = {(side, i): call_result(node, i, side) for side in sides for i in range(len(node.calls))}
    results = [f"{_exists(node, side)} AS {side}_there" for side in sides]
    results += [f"{part.result} AS {side}_r{i}" for (side, i), part in answers.items()]
    return f"SELECT {', '.join([*key_names(node), *results, *also])} FROM ({summed})"


def _exists(node: Aggregate, side: str) -> str:
    return f"{side}_{COUNT} > 0" if node.keys else "true"


def _difference(node: Aggregate, before: str, delta: str) -> str:
    """What changes for the groups of these shares."""
    rows = f"{_at(node, before, {OLD: True, NEW: True})} UNION ALL {_at(node, delta, {OLD: False, NEW: True})}"
    return _changes(node, _groups(node, rows, (OLD, NEW)))


def _changes(node: Aggregate, groups: str) -> str:
    """Groups with both their answers -> the old one leaves, the new one comes; what stays the same is left out."""
    first, count = len(node.keys), len(node.calls)
    names = ["there", *(column_name(first + i) for i in range(count)), WEIGHT]
    signed = [
        ", ".join([*(f"{side}_{name}" for name in _answers(node)), weight])
        for side, weight in ((OLD, "-1L"), (NEW, "1L"))
    ]
    # Two rows per group out of one: the groups are computed once.
    columns = [f"k{i} AS {column_name(i)}" for i in range(first)]
    columns.append(f"stack(2, {signed[0]}, {signed[1]}) AS ({', '.join(names)})")
    pairs = f"SELECT {', '.join(columns)} FROM ({groups}) WHERE {_changed(node)}"
    return select(column_names(first + count), WEIGHT, f"({pairs}) WHERE there")


def _signed_changes(node: Aggregate, groups: str) -> str:
    """The same of groups that are there twice: one row out of one, which Spark computes while it plans."""
    there, *results = (f"if({WEIGHT} < 0, {OLD}_{name}, {NEW}_{name})" for name in _answers(node))
    return select([*key_names(node), *results], WEIGHT, f"({groups}) WHERE {_changed(node)} AND {there}")


def _changed(node: Aggregate) -> str:
    """Whether the answers at both ends of a window differ."""
    return f"NOT ({' AND '.join(f'{OLD}_{name} <=> {NEW}_{name}' for name in _answers(node))})"


def _answers(node: Aggregate) -> list[str]:
    return ["there", *(f"r{i}" for i in range(len(node.calls)))]
