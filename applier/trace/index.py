"""Rows of a segment on the driver, found by the values of a column: what a small change meets, and nothing else.

The rows stay as they came; for each column that is asked for, its values are kept in order with the places they have.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from applier.zset import column_name

MOST_MET = 50_000
"""Rows that are handed to Spark by themselves; where more are met it reads what it holds."""

WIDTHS = {"smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "boolean": 1, "date": 4, "timestamp": 8}
TEXT_WIDTH, DECIMAL_WIDTH = 40, 16


def bytes_per_row(types: Sequence[str]) -> int:
    """About how many a row of these Spark types takes, and its place in one index."""
    return 16 + sum(
        DECIMAL_WIDTH if kind.startswith("decimal") else WIDTHS.get(kind.removesuffix("_ntz"), TEXT_WIDTH)
        for kind in types
    )


class Index:
    """Rows c0, c1 …, __w, and where each value of some integer columns is."""

    def __init__(self, rows: pa.Table, schema: StructType) -> None:
        self.schema = schema
        """The rows' in Spark."""
        # One piece per column: rows are taken from anywhere.
        self._rows = rows.combine_chunks()
        self._places: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(self._rows.num_rows)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self._rows.nbytes) + sum(values.nbytes + at.nbytes for values, at in self._places.values())

    def met(self, column: int, values: np.ndarray) -> pa.Table | None:
        """The rows whose column is one of the values, which are distinct; None when they are too many. NULL is none."""
        ordered, at = self._ordered(column)
        first, behind = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
        counts = behind - first
        total = int(counts.sum())
        if total > MOST_MET:
            return None
        # first[i], first[i] + 1 … behind[i] - 1 for each value, one after the other.
        begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return self._rows.take(pa.array(at[begins + np.arange(total)]))

    def _ordered(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            if column not in self._places:
                values = self._rows[column_name(column)]
                there = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False))
                known = pc.drop_null(values).to_numpy()
                order = np.argsort(known, kind="stable")
                self._places[column] = known[order], there[order]
            return self._places[column]


def distinct(rows: pa.Table, column: int) -> np.ndarray:
    """The values of a column without NULL, each once."""
    return np.unique(pc.drop_null(rows[column_name(column)]).to_numpy())
