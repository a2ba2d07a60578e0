"""Δ(γ_k,f(A)) = γ'(K) − γ(K), where K = the groups ΔA touches.

With additive accumulators acc(g) = Σ w·f(row), the new value needs no second look at the data:

    acc'(g) = acc(g) + Σ_{r ∈ ΔA(g)} w·f(r)          emit −(g, result(acc)) if n > 0, +(g, result(acc')) if n' > 0

where n = Σ w counts the group's rows. Without keys the one group always exists. Reads the input's trace before the
window, restricted to K; keeps no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from applier.expressions.emit import spark_sql
from applier.plan.expr import AggregateCall, AggregateKind
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT, column_name, column_names, select

OLD, NEW = "o", "n"


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """One additive sum: its name, its Spark type, and what each row adds to it, weight multiplied in, never NULL."""

    name: str
    type: str
    addend: str


_ROWS = _Accumulator("rows", "bigint", WEIGHT)


def _accumulators(node: Aggregate) -> list[_Accumulator]:
    found = [_ROWS]
    for i, call in enumerate(node.calls):
        if call.arg is None:
            continue
        value = spark_sql(call.arg)
        found.append(_Accumulator(f"n{i}", "bigint", f"if({value} IS NULL, 0L, {WEIGHT})"))
        if call.kind is AggregateKind.SUM:
            added = f"coalesce({_weighted(value, call)}, CAST(0 AS {call.type.spark}))"
            found.append(_Accumulator(f"s{i}", call.type.spark, added))
    return found


def _weighted(value: str, call: AggregateCall) -> str:
    if call.type.spark == "bigint":
        return f"CAST({value} AS bigint) * {WEIGHT}"
    # Ten digits of weight: enough for any real multiplicity, and the product stays within 38 digits longer.
    return f"CAST({value} * CAST({WEIGHT} AS decimal(10,0)) AS {call.type.spark})"


def _results(node: Aggregate, side: str) -> list[str]:
    """The aggregate columns from one side's accumulators."""
    texts = []
    for i, call in enumerate(node.calls):
        match call.kind:
            case AggregateKind.COUNT_ROWS:
                texts.append(f"{side}_rows")
            case AggregateKind.COUNT:
                texts.append(f"{side}_n{i}")
            case AggregateKind.SUM:
                texts.append(f"if({side}_n{i} = 0, NULL, {side}_s{i})")
            case _:
                assert_never(call.kind)
    return texts


def _exists(node: Aggregate, side: str) -> str:
    return f"{side}_rows > 0" if node.keys else "true"


def _contributions(node: Aggregate, source: str, side: str) -> str:
    """Each input row's group, which side of the window it belongs to, and what it adds to every accumulator."""
    columns = [f"{spark_sql(key)} AS k{i}" for i, key in enumerate(node.keys)]
    columns.append(f"'{side}' AS side")
    columns += [f"{a.addend} AS a_{a.name}" for a in _accumulators(node)]
    return f"SELECT {', '.join(columns)} FROM {source}"


def _sums(node: Aggregate, contributions: str, sides: tuple[str, ...]) -> str:
    """One row per group: every accumulator once per side; what was there before counts on both."""
    keys = [f"k{i}" for i in range(len(node.keys))]
    sums = [
        f"CAST(coalesce(sum({_of_side(a, side)}), 0) AS {a.type}) AS {side}_{a.name}"
        for side in sides
        for a in _accumulators(node)
    ]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *sums])} FROM ({contributions}){grouping}"


def _of_side(accumulator: _Accumulator, side: str) -> str:
    if side == NEW:
        return f"a_{accumulator.name}"
    return f"if(side = '{OLD}', a_{accumulator.name}, CAST(0 AS {accumulator.type}))"


def snapshot_aggregate(node: Aggregate, zset: str) -> str:
    """γ of a whole Z-set."""
    sums = _sums(node, _contributions(node, f"({zset})", NEW), (NEW,))
    keys = [f"k{i}" for i in range(len(node.keys))]
    return select([*keys, *_results(node, NEW)], "1L", f"({sums}) WHERE {_exists(node, NEW)}")


def _touched(node: Aggregate, before: str, delta: str, *, small: bool) -> str:
    """FROM clause: rows of A in the groups ΔA touches. NULL is a group like any other, so comparison is null-safe."""
    if not node.keys:
        return f"({before})"
    names = [f"q{i}" for i in range(len(node.keys))]
    wanted = ", ".join(f"{spark_sql(key)} AS {name}" for key, name in zip(node.keys, names, strict=True))
    same = " AND ".join(f"{spark_sql(key)} <=> {name}" for key, name in zip(node.keys, names, strict=True))
    hint = "/*+ BROADCAST(q) */ " if small else ""
    return f"(SELECT {hint}b.* FROM ({before}) b LEFT SEMI JOIN (SELECT {wanted} FROM ({delta})) q ON {same})"


def delta_aggregate(node: Aggregate, before: str, delta: str, *, small: bool) -> str:
    """γ(A + ΔA) − γ(A) on the groups ΔA touches; what stays the same is left out."""
    contributions = (
        _contributions(node, _touched(node, before, delta, small=small), OLD)
        + " UNION ALL "
        + _contributions(node, f"({delta})", NEW)
    )
    sums = _sums(node, contributions, (OLD, NEW))
    changed = " OR ".join(f"{OLD}_{a.name} <> {NEW}_{a.name}" for a in _accumulators(node))
    first = len(node.keys)
    names = ["there", *(column_name(first + i) for i in range(len(node.calls))), WEIGHT]
    rows = [
        ", ".join([_exists(node, side), *_results(node, side), weight]) for side, weight in ((OLD, "-1L"), (NEW, "1L"))
    ]
    # Two rows per group out of one: the groups are computed once.
    columns = [f"k{i} AS {column_name(i)}" for i in range(first)]
    columns.append(f"stack(2, {rows[0]}, {rows[1]}) AS ({', '.join(names)})")
    signed = f"SELECT {', '.join(columns)} FROM ({sums}) WHERE {changed}"
    return select(column_names(first + len(node.calls)), WEIGHT, f"({signed}) WHERE there")
