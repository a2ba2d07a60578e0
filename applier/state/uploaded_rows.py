"""Uploads rows that are held on the driver to Spark: all of them once, and after that only the ones that were added."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.spark.views import create_view, drop_view
from applier.zset import ZSet

FEW_ROWS = 1_000
"""After more added rows than this, and than a tenth of all, everything is uploaded again."""


class UploadedRows:
    """A Z-set or accumulators, which add up: all rows at one upload, and the rows since then."""

    def __init__(self, spark: SparkSession, schema: StructType, columns: Sequence[str]) -> None:
        self._spark = spark
        self._schema = schema
        self._columns = tuple(columns)
        self._view: str | None = None
        """All rows at the last full upload; None before the first one."""
        self._since: list[pa.Table] = []
        self._since_view: str | None = None

    def select(self, rows: Callable[[], pa.Table]) -> ZSet:
        """Return all rows; `rows` is called only when they must be uploaded."""
        if self._view is None:
            self._view = self._upload(rows())
        if self._since and self._since_view is None:
            self._since_view = self._upload(pa.concat_tables(self._since))
        views = [self._view, *([self._since_view] if self._since_view else [])]
        return ZSet(" UNION ALL ".join(f"SELECT * FROM {view}" for view in views), self._columns)

    def _upload(self, rows: pa.Table) -> str:
        return create_view(self._spark.createDataFrame(rows, self._schema))

    def append(self, rows: pa.Table, total: int) -> None:
        """Note that these rows were added, so that there are `total` now."""
        drop_view(self._spark, self._since_view)
        self._since_view = None
        if self._view is not None:
            self._since.append(rows)
            if sum(table.num_rows for table in self._since) > max(FEW_ROWS, total // 10):
                self.forget()

    def forget(self) -> None:
        """Drop the uploaded rows; the next `select` uploads them again."""
        drop_view(self._spark, self._view)
        drop_view(self._spark, self._since_view)
        self._view = self._since_view = None
        self._since = []
