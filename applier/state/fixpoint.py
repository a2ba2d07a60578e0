"""The rows of a node, or the first of them: held on the driver, where a window asks for single ones."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.operators.support.inputs import Accumulators
from applier.plan.nodes import Recursion
from applier.spark.views import create_view
from applier.state.exact_sums import arrow_table
from applier.state.uploaded_rows import UploadedRows
from applier.zset import WEIGHT, Row, identity


class DriverRows:
    """Rows and how often they are there, as of some frontier."""

    def __init__(self, spark: SparkSession, schema: StructType, rows: pa.Table) -> None:
        self._spark = spark
        self._schema = schema
        self._arrow = rows.schema
        self._rows: dict[Row, tuple[Row, int]] = {}
        self._sent = UploadedRows(spark, schema)
        self.add(rows)

    @property
    def rows(self) -> int:
        """How many different ones."""
        return len(self._rows)

    def __contains__(self, name: Row) -> bool:
        return name in self._rows

    def before(self) -> str:
        """A SELECT of all of them."""
        return self._sent.select(lambda: self.table(self._rows.values()))

    def with_window(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """What a window adds to them; and the views to drop when it is over."""
        view = self.view(rows)
        return Accumulators(self.before, f"SELECT * FROM {view}"), [view]

    def add(self, rows: pa.Table) -> None:
        """Put what a window adds to them."""
        for row, weight in weighted_rows(rows):
            name = identity(row)
            count = self._rows.get(name, (row, 0))[1] + weight
            if count:
                self._rows[name] = row, count
            else:
                del self._rows[name]
        self._sent.added(rows, self.rows)

    def table(self, rows: Iterable[tuple[Row, int]]) -> pa.Table:
        """Rows with their weights, as Arrow."""
        return arrow_table([(*row, weight) for row, weight in rows], self._arrow)

    def view(self, rows: pa.Table) -> str:
        """A name for rows of this kind; whoever asked drops it."""
        return create_view(self._spark.createDataFrame(rows, self._schema))

    def release(self) -> None:
        """Give the memory back."""
        self._sent.forget()
        self._rows.clear()


def weighted_rows(rows: pa.Table) -> Iterable[tuple[Row, int]]:
    """Rows with their weights, one by one."""
    columns = [rows[name].to_pylist() for name in rows.column_names if name != WEIGHT]
    weights = rows[WEIGHT].to_pylist()
    return zip(zip(*columns, strict=True) if columns else [()] * len(weights), weights, strict=True)


MAX_DERIVED_ROWS = 200_000
"""Of more nothing is kept: some 100 MB."""


class FixpointState(DriverRows):
    """R, all that a recursion derived."""

    def __init__(self, spark: SparkSession, node: Recursion, schema: StructType, rows: pa.Table) -> None:
        super().__init__(spark, schema, rows)
        self.node = node
