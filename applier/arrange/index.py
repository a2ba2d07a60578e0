"""Holds the rows of an arrangement on the driver, with indexes: key values -> the rows with those keys.

The rows keep their order. For each column that is looked up, its values are held sorted, with the places of their rows.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from applier.arrange.compressed_columns import CompressedColumns
from applier.zset import column_name

MAX_LOOKUP_ROWS, MAX_LOOKUP_SHARE = 50_000, 0.02
"""The most rows that a lookup hands to Spark, as a number and as a fraction of all rows; for more, Spark reads the
arrangement. Handing one row to Spark takes about as long as reading fifty to a hundred that it holds."""

BYTES_PER_VALUE = 8
"""An estimate: texts that repeat take less, others more."""


def estimate_bytes(rows: int, columns: int) -> int:
    """Return about how much memory so many rows take, with one index."""
    return rows * BYTES_PER_VALUE * (columns + 1)


class ArrangementIndex:
    """Rows c0, c1 …, __w, and indexes over some of their integer columns."""

    def __init__(self, rows: pa.Table, schema: StructType) -> None:
        self.schema = schema
        """The schema of the rows in Spark."""
        self.rows = int(rows.num_rows)
        self._rows = CompressedColumns(rows)
        self._places: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The memory that the rows and their indexes take, in bytes."""
        return self._rows.nbytes + sum(values.nbytes + places.nbytes for values, places in self._places.values())

    def lookup(self, column: int, values: np.ndarray) -> pa.Table | None:
        """Return the rows whose column is one of the distinct values; None when there are too many. Not NULL."""
        sorted_values, places = self._sorted_values(column)
        first, end = np.searchsorted(sorted_values, values, "left"), np.searchsorted(sorted_values, values, "right")
        counts = end - first
        total = int(counts.sum())
        if total > min(MAX_LOOKUP_ROWS, MAX_LOOKUP_SHARE * self.rows):
            return None
        # For each value i the places first[i], first[i] + 1 … end[i] - 1, one value after the other.
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return self._rows.take(places[starts + np.arange(total)])

    def _sorted_values(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            if column not in self._places:
                values = self._rows.column(column)
                valid_places = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False)).astype(np.int32)
                valid_values = pc.drop_null(values).to_numpy()
                order = np.argsort(valid_values, kind="stable")
                self._places[column] = valid_values[order], valid_places[order]
            return self._places[column]


def distinct_values(rows: pa.Table, column: int) -> np.ndarray:
    """Return the distinct values of a column, without NULL."""
    return np.unique(pc.drop_null(rows[column_name(column)]).to_numpy())
