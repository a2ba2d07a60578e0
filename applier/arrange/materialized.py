"""Z-sets that a refresh reads several times -> views of their rows, computed once per query text."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.plan.nodes import Field
from applier.spark.collect import collect, collect_at_most
from applier.spark.ddl import parse_schema
from applier.spark.views import create_view, drop_view
from applier.zset import ZSet, ddl, empty_zset, net

MAX_DRIVER_ROWS = 20_000
"""A Z-set with more rows stays in Spark instead of the driver."""


class MaterializedRows:
    """The materialized rows of one LSN range; shared by all stream tables that are refreshed over it in parallel."""

    def __init__(self, spark: SparkSession, max_driver_rows: int = MAX_DRIVER_ROWS) -> None:
        self._spark = spark
        self._max_driver_rows = max_driver_rows
        self._selects: dict[str, ZSet | None] = {}
        """By query text, a SELECT from the view that holds its rows; None for no rows."""
        self._views: list[str] = []

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        """Return a SELECT of a Z-set that is as small as the change, held on the driver; None when it is empty."""
        if zset.sql not in self._selects:
            self._register(zset, self._upload(collect(self._spark.sql(zset.sql)), columns))
        return self._selects[zset.sql]

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        """Return a SELECT of a Z-set of any size; a large one stays in Spark."""
        if zset.sql not in self._selects:
            rows = collect_at_most(self._spark, zset.sql, self._max_driver_rows)
            frame = self._spark.sql(zset.sql).localCheckpoint() if rows is None else self._upload(rows, columns)
            self._register(zset, frame)
        return self._selects[zset.sql] or empty_zset([column.type.spark for column in columns])

    def _upload(self, rows: pa.Table, columns: Sequence[Field]) -> DataFrame | None:
        rows = net(rows)
        schema = parse_schema(ddl([column.type.spark for column in columns]))
        return self._spark.createDataFrame(rows, schema) if rows.num_rows else None

    def _register(self, zset: ZSet, frame: DataFrame | None) -> None:
        # Another stream table may have computed the same meanwhile: then there are two views, and one is used.
        view = None if frame is None else create_view(frame)
        if view is not None:
            self._views.append(view)
        self._selects.setdefault(zset.sql, None if view is None else ZSet(f"SELECT * FROM {view}", zset.columns))

    def release(self) -> None:
        """Drop the views."""
        for view in self._views:
            drop_view(self._spark, view)
