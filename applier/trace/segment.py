"""One part of a trace's base in Spark's memory, and its views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame

from applier.spark.collect import bytes_held
from applier.spark.views import create_view, drop_view
from applier.trace.volume import ROW_BYTES
from applier.zset import WEIGHT, column_names


class Segment:
    """A part of a base that never changes. Columns that it lacks and the trace has are NULL, and not known."""

    def __init__(self, frame: DataFrame, rows: int) -> None:
        self.frame = frame
        self.rows = rows
        self.released = False
        self._views: dict[int, str] = {}

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
        self.released = True
        for view in self._views.values():
            drop_view(self.frame.sparkSession, view)
        self.frame.unpersist()
