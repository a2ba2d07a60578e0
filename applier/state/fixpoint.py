"""Holds rows of a node on the driver, with their weights: the fixpoint of a recursion, or the first rows of a LIMIT."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.operators.support.inputs import Accumulators
from applier.plan.nodes import Recursion
from applier.spark.views import create_view
from applier.state.exact_sums import arrow_table, arrow_table_in_parts
from applier.state.exported import ExportedRows, Storable
from applier.state.uploaded_rows import UploadedRows
from applier.zset import WEIGHT, Row, ZSet, identity


class DriverRows(Storable):
    """Rows and their weights at one frontier."""

    def __init__(self, spark: SparkSession, schema: StructType, rows: pa.Table) -> None:
        self._spark = spark
        self._schema = schema
        self._arrow = rows.schema
        self._columns = tuple(name for name in rows.column_names if name != WEIGHT)
        self._rows: dict[Row, tuple[Row, int]] = {}
        self._uploaded = UploadedRows(spark, schema, self._columns)
        self.add(rows)

    @property
    def rows(self) -> int:
        """The number of distinct rows."""
        return len(self._rows)

    def __contains__(self, name: Row) -> bool:
        return name in self._rows

    def before(self) -> ZSet:
        """Return all rows."""
        return self._uploaded.select(lambda: self.table(self._rows.values()))

    def with_delta(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """Return the state with a delta, and the views to drop after the refresh."""
        view = self.view(rows)
        return Accumulators(self.before, ZSet(f"SELECT * FROM {view}", self._columns)), [view]

    def add(self, rows: pa.Table) -> None:
        """Add a delta to the rows."""
        self.version += 1
        for row, weight in weighted_rows(rows):
            name = identity(row)
            count = self._rows.get(name, (row, 0))[1] + weight
            if count:
                self._rows[name] = row, count
            else:
                del self._rows[name]
        self._uploaded.append(rows, self.rows)

    def table(self, rows: Iterable[tuple[Row, int]]) -> pa.Table:
        """Return rows with their weights as an Arrow table."""
        return arrow_table([(*row, weight) for row, weight in rows], self._arrow)

    def view(self, rows: pa.Table) -> str:
        """Create a view of rows with this schema; the caller drops it."""
        return create_view(self._spark.createDataFrame(rows, self._schema))

    def _export(self, kind: str, **extra: int) -> ExportedRows:
        rows, schema = list(self._rows.values()), self._arrow
        return ExportedRows(
            kind,
            self._schema,
            lambda: arrow_table_in_parts([(*row, weight) for row, weight in rows], schema),
            extra=extra,
        )

    def release(self) -> None:
        """Release the memory."""
        self._uploaded.forget()
        self._rows.clear()


def weighted_rows(rows: pa.Table) -> Iterable[tuple[Row, int]]:
    """Return the rows of a table with their weights, one by one."""
    columns = [rows[name].to_pylist() for name in rows.column_names if name != WEIGHT]
    weights = rows[WEIGHT].to_pylist()
    return zip(zip(*columns, strict=True) if columns else [()] * len(weights), weights, strict=True)


MAX_DERIVED_ROWS = 200_000
"""About 100 MB; a larger fixpoint is not kept."""


class FixpointState(DriverRows):
    """R, all rows that a recursion derived."""

    def __init__(self, spark: SparkSession, node: Recursion, schema: StructType, rows: pa.Table) -> None:
        super().__init__(spark, schema, rows)
        self.node = node

    def export(self) -> ExportedRows:
        """Return the rows as they are now, for a file."""
        return self._export("fixpoint")
