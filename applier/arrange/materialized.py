"""Rows that a window needs several times, computed once: named by the text whose rows they are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.plan.nodes import Field
from applier.spark.collect import collect, collect_at_most
from applier.spark.views import create_view, drop_view
from applier.zset import ddl, empty_zset, net

MOST_ROWS = 20_000
"""More than so many are not brought to the driver."""


class MaterializedRows:
    """Of one window; used by all stream tables that are refreshed through it, at the same time."""

    def __init__(self, spark: SparkSession, most_rows: int = MOST_ROWS) -> None:
        self._spark = spark
        self._most_rows = most_rows
        self._selects: dict[str, str | None] = {}
        """By text, a SELECT from the view that holds its rows; None for no rows."""
        self._views: list[str] = []

    def materialize_small(self, zset: str, columns: Sequence[Field]) -> str | None:
        """A Z-set as small as the change, by what is on the driver; None when it is empty."""
        if zset not in self._selects:
            self._keep(zset, self._on_driver(collect(self._spark.sql(zset)), columns))
        return self._selects[zset]

    def materialize_once(self, zset: str, columns: Sequence[Field]) -> str:
        """A Z-set of any size: what is large stays in Spark."""
        if zset not in self._selects:
            rows = collect_at_most(self._spark, zset, self._most_rows)
            held = self._spark.sql(zset).localCheckpoint() if rows is None else self._on_driver(rows, columns)
            self._keep(zset, held)
        return self._selects[zset] or empty_zset([column.type.spark for column in columns])

    def _on_driver(self, rows: pa.Table, columns: Sequence[Field]) -> DataFrame | None:
        rows = net(rows)
        schema = ddl([column.type.spark for column in columns])
        return self._spark.createDataFrame(rows, schema) if rows.num_rows else None

    def _keep(self, zset: str, frame: DataFrame | None) -> None:
        # Another stream table may have asked for the same meanwhile: then there are two views, and one is used.
        view = None if frame is None else create_view(frame)
        if view is not None:
            self._views.append(view)
        self._selects.setdefault(zset, None if view is None else f"SELECT * FROM {view}")

    def release(self) -> None:
        """Take the names back."""
        for view in self._views:
            drop_view(self._spark, view)
