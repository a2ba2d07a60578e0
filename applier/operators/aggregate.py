"""Δ(γ_k,f(A)) = γ'(K) − γ(K), where K = the groups ΔA touches.

With additive accumulators acc(g) = Σ w·f(row), the new value needs no second look at the data:

    acc'(g) = acc(g) + Σ_{r ∈ ΔA(g)} w·f(r)          emit −(g, result(acc)) if n > 0, +(g, result(acc')) if n' > 0

where n = Σ w counts the group's rows. Without keys the one group always exists. Reads the input's trace before the
window, restricted to K; keeps no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from applier.expressions.emit import emit
from applier.plan.expr import AggregateCall, AggregateKind
from applier.plan.nodes import Aggregate
from applier.zset import WEIGHT, column_name, weighted

_OLD, _NEW = "old", "new"
_IS_DELTA = "__is_delta"
_ROWS = "__rows"


@dataclass(frozen=True)
class _Accumulator:
    """One additive sum: its name and what each row adds to it (already multiplied by the row's weight)."""

    name: str
    addend: Column


def _accumulators(index: int, call: AggregateCall) -> list[_Accumulator]:
    weight = F.col(WEIGHT)
    match call.kind, call.arg:
        case AggregateKind.COUNT_ROWS, None:
            return []
        case (AggregateKind.COUNT, arg) if arg is not None:
            return [_Accumulator(f"n{index}", F.when(emit(arg).isNotNull(), weight).otherwise(F.lit(0)))]
        case (AggregateKind.SUM, arg) if arg is not None:
            value = emit(arg)
            return [
                _Accumulator(f"n{index}", F.when(value.isNotNull(), weight).otherwise(F.lit(0))),
                _Accumulator(f"s{index}", _weighted_value(value, call)),
            ]
        case _:
            raise AssertionError(f"{call.kind.value} with argument {call.arg}")


def _weighted_value(value: Column, call: AggregateCall) -> Column:
    if call.type.spark == "bigint":
        return value.cast("bigint") * F.col(WEIGHT)
    # Ten digits of weight: enough for any real multiplicity, and the product stays within 38 digits longer.
    return (value * F.col(WEIGHT).cast("decimal(10,0)")).cast(call.type.spark)


def _result(index: int, call: AggregateCall, side: str) -> Column:
    match call.kind:
        case AggregateKind.COUNT_ROWS:
            return F.col(f"{side}_{_ROWS}")
        case AggregateKind.COUNT:
            return F.col(f"{side}_n{index}")
        case AggregateKind.SUM:
            total = F.col(f"{side}_s{index}").cast(call.type.spark)
            return F.when(F.col(f"{side}_n{index}") != 0, total)
        case _:
            assert_never(call.kind)


def _sums(node: Aggregate, zset: DataFrame, sides: dict[str, Column]) -> DataFrame:
    """One row per group: every accumulator, once per side; a side's column says which input rows belong to it."""
    accumulators = [_Accumulator(_ROWS, F.col(WEIGHT))]
    accumulators += [a for i, call in enumerate(node.calls) for a in _accumulators(i, call)]
    sums = [
        F.coalesce(F.sum(F.when(belongs, a.addend)), F.lit(0)).alias(f"{side}_{a.name}")
        for side, belongs in sides.items()
        for a in accumulators
    ]
    keys = [emit(e).alias(column_name(i)) for i, e in enumerate(node.keys)]
    return zset.groupBy(*keys).agg(*sums)


def _rows(node: Aggregate, side: str) -> list[Column]:
    keys = [F.col(column_name(i)) for i in range(len(node.keys))]
    return keys + [_result(i, call, side) for i, call in enumerate(node.calls)]


def _exists(node: Aggregate, side: str) -> Column:
    return F.col(f"{side}_{_ROWS}") > 0 if node.keys else F.lit(True)


def snapshot_aggregate(node: Aggregate, zset: DataFrame) -> DataFrame:
    """γ of a whole Z-set."""
    sums = _sums(node, zset, {_NEW: F.lit(True)})
    return sums.where(_exists(node, _NEW)).select(*weighted(_rows(node, _NEW), F.lit(1).cast("bigint")))


def _touched(node: Aggregate, before: DataFrame, delta: DataFrame, *, small: bool) -> DataFrame:
    """Rows of A in the groups ΔA touches. NULL is a group like any other, hence the null-safe comparison."""
    if not node.keys:
        return before
    names = [f"__k{i}" for i in range(len(node.keys))]
    touched = delta.select(*[emit(e).alias(n) for e, n in zip(node.keys, names, strict=True)])
    same = [emit(e).eqNullSafe(F.col(n)) for e, n in zip(node.keys, names, strict=True)]
    return before.join(F.broadcast(touched) if small else touched, reduce(Column.__and__, same), "left_semi")


def delta_aggregate(node: Aggregate, before: DataFrame, delta: DataFrame, *, small: bool) -> DataFrame:
    """γ(A + ΔA) − γ(A) on the groups ΔA touches."""
    restricted = _touched(node, before, delta, small=small)
    both = restricted.withColumn(_IS_DELTA, F.lit(False)).unionAll(delta.withColumn(_IS_DELTA, F.lit(True)))
    sums = _sums(node, both, {_OLD: ~F.col(_IS_DELTA), _NEW: F.lit(True)})
    minus = F.struct(*weighted(_rows(node, _OLD), F.lit(-1).cast("bigint")), _exists(node, _OLD).alias("there"))
    plus = F.struct(*weighted(_rows(node, _NEW), F.lit(1).cast("bigint")), _exists(node, _NEW).alias("there"))
    changed = ~F.struct(*_rows(node, _OLD), _exists(node, _OLD)).eqNullSafe(
        F.struct(*_rows(node, _NEW), _exists(node, _NEW))
    )
    # One struct per sign instead of a union: the groups are computed once.
    signed = sums.where(changed).select(F.explode(F.array(minus, plus)).alias("r")).where("r.there")
    width = len(node.keys) + len(node.calls)
    return signed.select(*[F.col(f"r.{column_name(i)}") for i in range(width)], F.col(f"r.{WEIGHT}"))
