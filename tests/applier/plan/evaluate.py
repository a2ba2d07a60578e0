"""The meaning of plan nodes, as plainly as Spark can say it: no weights, no state. The oracle-side of plan tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from applier.expressions.emit import emit
from applier.plan.expr import AggregateCall, AggregateKind
from applier.plan.nodes import Aggregate, Filter, Join, Node, OuterJoin, Project, Scan, SemiJoin, UnionAll, fields

Tables = Mapping[Scan, DataFrame]


def evaluate(node: Node, tables: Tables) -> DataFrame:
    """The node's rows as c0..cn-1."""
    match node:
        case Scan():
            return tables[node]
        case Filter():
            return evaluate(node.input, tables).where(emit(node.predicate))
        case Project():
            return evaluate(node.input, tables).select(*_named([emit(e) for e in node.exprs]))
        case Join():
            return _join(node, tables, "inner")
        case OuterJoin():
            return _join(node, tables, "full" if node.full else "left")
        case SemiJoin():
            return _join(node, tables, "anti" if node.anti else "semi")
        case UnionAll():
            return reduce(DataFrame.unionAll, (evaluate(branch, tables) for branch in node.branches))
        case Aggregate():
            below = evaluate(node.input, tables)
            keyed = below.select(*_named([emit(k) for k in node.keys]), *_arguments(node))
            calls = [_call(c, i) for i, c in enumerate(node.calls)] or [F.count(F.lit(1))]
            grouped = keyed.groupBy(*(f"c{i}" for i in range(len(node.keys)))).agg(*calls)
            width = len(node.keys) + len(node.calls)
            return grouped.toDF(*(f"c{i}" for i in range(len(grouped.columns)))).select(
                *(f"c{i}" for i in range(width))
            )
        case _:
            assert_never(node)


def _join(node: Join | OuterJoin | SemiJoin, tables: Tables, kind: str) -> DataFrame:
    width = len(fields(node.left))
    left, right = evaluate(node.left, tables), evaluate(node.right, tables)
    right = right.select(*(F.col(f"c{i}").alias(f"c{width + i}") for i in range(len(fields(node.right)))))
    condition = F.lit(True)
    for ours, theirs in node.equi:
        condition = condition & (emit(ours) == emit(theirs, lambda i: f"c{width + i}"))
    if node.residual is not None:
        condition = condition & emit(node.residual)
    return left.join(right, condition, kind)


def _named(columns: list[Column]) -> list[Column]:
    return [column.alias(f"c{i}") for i, column in enumerate(columns)]


def _arguments(node: Aggregate) -> list[Column]:
    return [emit(c.arg).alias(f"a{i}") for i, c in enumerate(node.calls) if c.arg is not None]


def _call(call: AggregateCall, index: int) -> Column:
    match call.kind:
        case AggregateKind.COUNT_ROWS:
            return F.count(F.lit(1))
        case AggregateKind.COUNT:
            return F.count(f"a{index}")
        case AggregateKind.SUM:
            return F.sum(F.col(f"a{index}").cast(call.type.spark)).cast(call.type.spark)
        case _:
            assert_never(call.kind)
