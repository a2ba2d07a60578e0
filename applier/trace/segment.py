"""One part of a trace's base in Spark's memory, and its views."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property

from pyspark.sql import DataFrame

from applier.spark.collect import bytes_held
from applier.spark.views import create_view, drop_view
from applier.trace.volume import ROW_BYTES
from applier.zset import WEIGHT, column_names


class Segment:
    """A part of a base that never changes. Columns that it lacks and the trace has are NULL, and not known.

    Its rows are in Spark's memory, or a function brings them there when they are first read: what nobody reads costs
    neither time at a start nor memory.
    """

    def __init__(self, held: DataFrame | Callable[[], DataFrame], rows: int) -> None:
        self.rows = rows
        self.released = False
        self._held = held
        self._lock = threading.Lock()
        self._views: dict[int, str] = {}

    @property
    def is_loaded(self) -> bool:
        """Whether the rows are in Spark's memory."""
        return isinstance(self._held, DataFrame)

    @property
    def frame(self) -> DataFrame:
        """The rows in Spark's memory; who asks first waits until they are there."""
        with self._lock:
            if not isinstance(self._held, DataFrame):
                self._held = self._held()
            return self._held

    @cached_property
    def volume(self) -> int:
        """The number of rows, where a large row counts as several. It is asked of Spark, so only when it is needed."""
        return max(self.rows, bytes_held(self.frame) // ROW_BYTES)

    def view(self, types: Sequence[str]) -> str:
        """Return the name of a view of the rows, with as many columns as there are Spark types."""
        if (width := len(types)) not in self._views:
            present = self.frame.columns
            columns = [
                name if name in present else f"CAST(NULL AS {kind}) AS {name}"
                for name, kind in zip(column_names(width), types, strict=True)
            ]
            self._views[width] = create_view(self.frame.selectExpr(*columns, WEIGHT))
        return self._views[width]

    def release(self) -> None:
        """Release the memory, once nothing reads the segment any more."""
        with self._lock:
            self.released = True
            held = self._held
        if isinstance(held, DataFrame):
            for view in self._views.values():
                drop_view(held.sparkSession, view)
            held.unpersist()
