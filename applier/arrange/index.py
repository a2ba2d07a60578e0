"""Rows of a segment on the driver, found by the values of a column: what a small change meets, and nothing else.

The rows stay as they came; for each column that is asked for, its values are kept in order with the places they have.
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
"""Rows that are handed to Spark by themselves, at most, and as a share of all; where more are met it reads what it
holds. Handing a row over takes about as long as reading fifty to a hundred that are there."""

BYTES_PER_VALUE = 8
"""About: texts that are often the same take less, others more."""


def estimate_bytes(rows: int, columns: int) -> int:
    """About what so many rows take, with their places in one index."""
    return rows * BYTES_PER_VALUE * (columns + 1)


class ArrangementIndex:
    """Rows c0, c1 …, __w, and where each value of some integer columns is."""

    def __init__(self, rows: pa.Table, schema: StructType) -> None:
        self.schema = schema
        """The rows' in Spark."""
        self.rows = int(rows.num_rows)
        self._rows = CompressedColumns(rows)
        self._places: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes."""
        return self._rows.nbytes + sum(values.nbytes + at.nbytes for values, at in self._places.values())

    def lookup(self, column: int, values: np.ndarray) -> pa.Table | None:
        """The rows whose column is one of the values, which are distinct; None when they are too many. NULL is none."""
        ordered, at = self._ordered(column)
        first, behind = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
        counts = behind - first
        total = int(counts.sum())
        if total > min(MAX_LOOKUP_ROWS, MAX_LOOKUP_SHARE * self.rows):
            return None
        # first[i], first[i] + 1 … behind[i] - 1 for each value, one after the other.
        begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return self._rows.take(at[begins + np.arange(total)])

    def _ordered(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            if column not in self._places:
                values = self._rows.column(column)
                there = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False)).astype(np.int32)
                known = pc.drop_null(values).to_numpy()
                order = np.argsort(known, kind="stable")
                self._places[column] = known[order], there[order]
            return self._places[column]


def distinct_values(rows: pa.Table, column: int) -> np.ndarray:
    """The values of a column without NULL, each once."""
    return np.unique(pc.drop_null(rows[column_name(column)]).to_numpy())
