"""Rows that are kept on the driver and read by Spark: sent once, and after that only what was added."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.spark.views import create_view, drop_view

FEW_ROWS = 1_000
"""More than so many, and than a tenth of all, make all of them be sent anew."""


class UploadedRows:
    """A Z-set or shares, which add up: those of some window and those since then."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        self._spark = spark
        self._schema = schema
        self._view: str | None = None
        """All rows as of some window, where somebody asked for them."""
        self._since: list[pa.Table] = []
        self._since_view: str | None = None

    def select(self, rows: Callable[[], pa.Table]) -> str:
        """A SELECT of all rows, which are asked for when they were not sent yet."""
        if self._view is None:
            self._view = self._sent(rows())
        if self._since and self._since_view is None:
            self._since_view = self._sent(pa.concat_tables(self._since))
        views = [self._view, *([self._since_view] if self._since_view else [])]
        return " UNION ALL ".join(f"SELECT * FROM {view}" for view in views)

    def _sent(self, rows: pa.Table) -> str:
        return create_view(self._spark.createDataFrame(rows, self._schema))

    def added(self, rows: pa.Table, total: int) -> None:
        """These came to them, so that there are `total` now."""
        drop_view(self._spark, self._since_view)
        self._since_view = None
        if self._view is not None:
            self._since.append(rows)
            if sum(table.num_rows for table in self._since) > max(FEW_ROWS, total // 10):
                self.forget()

    def forget(self) -> None:
        """They are sent anew when somebody asks."""
        drop_view(self._spark, self._view)
        drop_view(self._spark, self._since_view)
        self._view = self._since_view = None
        self._since = []
