"""Holds arrangements: the columns and rows of relations that stream tables read again and again, in memory.

An arrangement is f(base) for a linear map f. A base grows only by segments, so f is applied to each segment once. The
rows after the base are as small as the change, and f is applied to them in every LSN range. Rows that are looked up by
the values of a column are held on the driver instead of in Spark: there an index finds the few matches without reading
the other rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from applier import metrics
from applier.arrange.index import ArrangementIndex, estimate_bytes
from applier.spark.collect import bytes_held
from applier.spark.views import create_view, drop_view
from applier.trace.segment import Segment

log = logging.getLogger(__name__)

MIN_ARRANGED_ROWS = 50_000
"""A smaller segment is not arranged but read directly: it is in memory anyway."""

MIN_INDEXED_ROWS = 300_000
"""For fewer rows a full read is faster than an index lookup that hands its result to Spark."""

UNUSED_S = 600.0
"""An arrangement that was not read for so long may be dropped to make room for others."""

REPLACED_S = 60.0
"""The same where the rows are also on the driver. Not at once: a query that names the view may be about to run."""


@dataclass
class Arrangement:
    """The rows of one query text over one segment, in Spark's memory."""

    segment: Segment
    frame: DataFrame
    view: str
    rows: int
    size: int
    used: float


@dataclass
class _IndexEntry:
    segment: Segment
    index: ArrangementIndex
    used: float


_Entry = TypeVar("_Entry", Arrangement, _IndexEntry)


class Arrangements:
    """The arrangements of all traces; together no larger than the budget, except for those that are being read."""

    def __init__(self, spark: SparkSession, budget_mb: int) -> None:
        self._spark = spark
        self.budget = budget_mb << 20
        self._arrangements: dict[str, Arrangement] = {}
        self._indexes: dict[str, _IndexEntry] = {}
        self._too_large: set[str] = set()
        self._not_indexed: set[str] = set()
        self._lock = threading.Lock()

    def of(self, segment: Segment, text: str) -> Arrangement | None:
        """Return the arrangement of a query text over one segment; None where the segment is better read directly."""
        return self._read(segment, text, self._find_arrangement)

    def index(self, segment: Segment, text: str) -> ArrangementIndex | None:
        """Return an index over the same rows on the driver; None where they are better joined in Spark."""
        entry = self._read(segment, text, self._find_index)
        return None if entry is None else entry.index

    def rows(self, segment: Segment, text: str) -> int:
        """Return how many rows the query text has, at most."""
        with self._lock:
            if (entry := self._indexes.get(text)) is not None:
                return entry.index.rows
        arrangement = self.of(segment, text)
        return segment.rows if arrangement is None else arrangement.rows

    def tidy(self) -> None:
        """Drop arrangements of released segments, and those that are on the driver and no longer read in Spark."""
        now = time.monotonic()
        with self._lock:
            for text, entry in list(self._arrangements.items()):
                if entry.segment.released or (text in self._indexes and now - entry.used > REPLACED_S):
                    self._drop(text)
            for text in [text for text, entry in self._indexes.items() if entry.segment.released]:
                self._drop_index(text)

    def _read(self, segment: Segment, text: str, find: Callable[[Segment, str], _Entry | None]) -> _Entry | None:
        if segment.rows < MIN_ARRANGED_ROWS or not self.budget:
            return None
        with self._lock:
            if (entry := find(segment, text)) is not None:
                entry.used = time.monotonic()
            return entry

    def _find_arrangement(self, segment: Segment, text: str) -> Arrangement | None:
        if text in self._arrangements or text in self._too_large:
            return self._arrangements.get(text)
        return self._make(segment, text)

    def _find_index(self, segment: Segment, text: str) -> _IndexEntry | None:
        if text in self._indexes or text in self._not_indexed:
            return self._indexes.get(text)
        return self._make_index(segment, text)

    def _make(self, segment: Segment, text: str) -> Arrangement | None:
        began = time.monotonic()
        frame = self._spark.sql(text).persist(StorageLevel.MEMORY_AND_DISK)
        rows = frame.count()
        size = bytes_held(frame)
        self._make_room(size, began)
        extra = {"rows": rows, "of_rows": segment.rows, "mb": round(size / 2**20, 1)}
        if self._total() + size > self.budget:
            frame.unpersist()
            self._too_large.add(text)
            log.warning(
                "not enough memory for an arrangement: every refresh reads the whole relation",
                extra=extra | {"setting": "memory_budget_mb", "value": self.budget >> 20},
            )
            return None
        log.info("arrangement made", extra=extra | {"seconds": round(time.monotonic() - began, 3)})
        arrangement = self._arrangements[text] = Arrangement(segment, frame, create_view(frame), rows, size, began)
        metrics.ARRANGED_BYTES.set(self._total())
        return arrangement

    def _make_index(self, segment: Segment, text: str) -> _IndexEntry | None:
        began = time.monotonic()
        arranged = self._find_arrangement(segment, text)
        if arranged is None or arranged.rows < MIN_INDEXED_ROWS:
            self._not_indexed.add(text)
            return None
        # Long texts take as much memory as in Spark, which has measured it.
        size = max(arranged.size, estimate_bytes(arranged.rows, len(arranged.frame.columns)))
        self._make_room(size - arranged.size, began)
        if self._total() + size - arranged.size > self.budget:
            self._not_indexed.add(text)
            return None
        entry = self._indexes[text] = _IndexEntry(
            segment, ArrangementIndex(arranged.frame.toArrow(), arranged.frame.schema), began
        )
        extra = {"rows": entry.index.rows, "mb": round(entry.index.size / 2**20, 1)}
        log.info("index made", extra=extra | {"seconds": round(time.monotonic() - began, 3)})
        return entry

    def _make_room(self, size: int, now: float) -> None:
        """Drop what was not read for long, the oldest first, until there is room."""
        unused = [(entry.used, self._drop, text) for text, entry in self._arrangements.items()]
        unused += [(entry.used, self._drop_index, text) for text, entry in self._indexes.items()]
        for used, drop, text in sorted(unused, key=lambda each: each[0]):
            if self._total() + size <= self.budget or now - used < UNUSED_S:
                return
            drop(text)

    def _total(self) -> int:
        arranged = sum(entry.size for entry in self._arrangements.values())
        return arranged + sum(entry.index.size for entry in self._indexes.values())

    def _drop_index(self, text: str) -> None:
        del self._indexes[text]
        self._on_room_freed()

    def _drop(self, text: str) -> None:
        dropped = self._arrangements.pop(text)
        drop_view(self._spark, dropped.view)
        dropped.frame.unpersist()
        self._on_room_freed()

    def _on_room_freed(self) -> None:
        """Update the metric, and let texts that did not fit try again: there is room now."""
        self._too_large.clear()
        self._not_indexed.clear()
        metrics.ARRANGED_BYTES.set(self._total())
