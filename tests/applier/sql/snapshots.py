"""Loads current PostgreSQL tables as inputs of a plan's snapshot rule, and returns the result of the rule as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from applier.arrange.fixpoint import fixpoint
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.nodes import Field, Recursion, Scan
from applier.spark.views import create_view
from applier.zset import WEIGHT, ZSet
from tests.applier.functions.frames import Row, collect, frame


class LoadedInputs:
    """Both ends of an LSN range without changes; `load` reads the columns of a scan."""

    small = True

    def __init__(self, spark: SparkSession, load: Callable[[Scan], list[Row]]) -> None:
        self._spark = spark
        self._load = load
        self._views: dict[Scan, str] = {}

    def delta(self, scan: Scan) -> ZSet | None:
        return None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        if scan not in self._views:
            rows = frame(self._spark, self._load(scan), [f.type.spark for f in scan.fields])
            self._views[scan] = create_view(rows.selectExpr("*", f"1L AS {WEIGHT}"))
        return linear_map(ZSet.of_view(self._views[scan], len(scan.fields)))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        return None

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        return ZSet.of_view(fixpoint(self._spark, node, base, step), len(base.columns))

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        return zset

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        return zset

    def state_of(self, node: StatefulNode) -> None:
        return None


def weighted(result: DataFrame) -> list[Row]:
    """Return the rows of a Z-set, each as often as its weight; a negative weight is an error."""
    rows: list[Row] = []
    weights: dict[str, tuple[Row, int]] = {}
    for *values, weight in collect(result):
        row: Any = tuple(values)
        weights[repr(row)] = row, weights.get(repr(row), (row, 0))[1] + weight
    for row, weight in weights.values():
        assert weight >= 0, f"{row} is there {weight} times"
        rows += [row] * weight
    return rows
