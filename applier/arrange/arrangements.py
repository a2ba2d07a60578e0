"""What stream tables read of a relation again and again, kept ready: the columns they need of the rows they filter.

f(base) for a rule f that looks at each row alone. A base only grows by segments, so f is applied to each segment once;
what came since is as small as the change, and f is applied to it in every window. What is asked for by the values of a
column is kept on the driver instead of in Spark, where the few rows that are met are found without a look at the rest.
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
from applier.spark.views import create_view, drop_view
from applier.trace.segment import Segment

log = logging.getLogger(__name__)

MIN_ARRANGED_ROWS = 50_000
"""A smaller segment is read as it is: it is in memory anyway."""

MIN_INDEXED_ROWS = 300_000
"""Fewer rows are read faster than some of them are found and handed over."""

UNUSED_S = 600.0
"""What nobody read for so long makes room for others."""

REPLACED_S = 60.0
"""The same where the rows are also on the driver. Not at once: somebody may have written a query over its name."""


@dataclass
class Arrangement:
    """The rows of one text."""

    segment: Segment
    frame: DataFrame
    view: str
    rows: int
    size: int
    used: float


@dataclass
class _Indexed:
    segment: Segment
    index: ArrangementIndex
    used: float


_Kept = TypeVar("_Kept", Arrangement, _Indexed)


class Arrangements:
    """Of all traces; together no larger than the budget, unless somebody reads them right now."""

    def __init__(self, spark: SparkSession, budget_mb: int) -> None:
        self._spark = spark
        self.budget = budget_mb << 20
        self._kept: dict[str, Arrangement] = {}
        self._indexes: dict[str, _Indexed] = {}
        self._refused: set[str] = set()
        self._not_indexed: set[str] = set()
        self._lock = threading.Lock()

    def of(self, segment: Segment, text: str) -> Arrangement | None:
        """The rows of a text that reads one segment; None where it is better read as it is."""
        return self._read(segment, text, self._arranged)

    def index(self, segment: Segment, text: str) -> ArrangementIndex | None:
        """The same rows on the driver; None where they are better met in Spark."""
        found = self._read(segment, text, self._indexed)
        return None if found is None else found.index

    def rows(self, segment: Segment, text: str) -> int:
        """How many rows the text has, at most."""
        with self._lock:
            if (found := self._indexes.get(text)) is not None:
                return found.index.rows
        ready = self.of(segment, text)
        return segment.rows if ready is None else ready.rows

    def tidy(self) -> None:
        """Forget what is of segments that are gone, and what is on the driver and no longer read in Spark."""
        now = time.monotonic()
        with self._lock:
            for text, one in list(self._kept.items()):
                if one.segment.released or (text in self._indexes and now - one.used > REPLACED_S):
                    self._drop(text)
            for text in [text for text, one in self._indexes.items() if one.segment.released]:
                self._drop_index(text)

    def _read(self, segment: Segment, text: str, find: Callable[[Segment, str], _Kept | None]) -> _Kept | None:
        if segment.rows < MIN_ARRANGED_ROWS or not self.budget:
            return None
        with self._lock:
            if (found := find(segment, text)) is not None:
                found.used = time.monotonic()
            return found

    def _arranged(self, segment: Segment, text: str) -> Arrangement | None:
        if text in self._kept or text in self._refused:
            return self._kept.get(text)
        return self._make(segment, text)

    def _indexed(self, segment: Segment, text: str) -> _Indexed | None:
        if text in self._indexes or text in self._not_indexed:
            return self._indexes.get(text)
        return self._make_index(segment, text)

    def _make(self, segment: Segment, text: str) -> Arrangement | None:
        began = time.monotonic()
        frame = self._spark.sql(text).persist(StorageLevel.MEMORY_AND_DISK)
        rows = frame.count()
        size = _bytes_of(frame)
        self._make_room(size, began)
        extra = {"rows": rows, "of_rows": segment.rows, "mb": round(size / 2**20, 1)}
        if self._total() + size > self.budget:
            frame.unpersist()
            self._refused.add(text)
            log.warning(
                "not kept ready for want of memory: every refresh reads the whole relation",
                extra=extra | {"setting": "memory_budget_mb", "value": self.budget >> 20},
            )
            return None
        log.info("kept ready", extra=extra | {"seconds": round(time.monotonic() - began, 3)})
        made = self._kept[text] = Arrangement(segment, frame, create_view(frame), rows, size, began)
        metrics.ARRANGED_BYTES.set(self._total())
        return made

    def _make_index(self, segment: Segment, text: str) -> _Indexed | None:
        began = time.monotonic()
        arranged = self._arranged(segment, text)
        if arranged is None or arranged.rows < MIN_INDEXED_ROWS:
            self._not_indexed.add(text)
            return None
        # Long texts take as much as they do in Spark, which knows.
        size = max(arranged.size, estimate_bytes(arranged.rows, len(arranged.frame.columns)))
        self._make_room(size - arranged.size, began)
        if self._total() + size - arranged.size > self.budget:
            self._not_indexed.add(text)
            return None
        found = self._indexes[text] = _Indexed(
            segment, ArrangementIndex(arranged.frame.toArrow(), arranged.frame.schema), began
        )
        extra = {"rows": found.index.rows, "mb": round(found.index.size / 2**20, 1)}
        log.info("kept ready by value", extra=extra | {"seconds": round(time.monotonic() - began, 3)})
        return found

    def _make_room(self, size: int, now: float) -> None:
        """Give up what nobody read for long, the oldest first, until there is room."""
        unused = [(one.used, self._drop, text) for text, one in self._kept.items()]
        unused += [(one.used, self._drop_index, text) for text, one in self._indexes.items()]
        for used, drop, text in sorted(unused, key=lambda each: each[0]):
            if self._total() + size <= self.budget or now - used < UNUSED_S:
                return
            drop(text)

    def _total(self) -> int:
        kept = sum(one.size for one in self._kept.values())
        return kept + sum(one.index.size for one in self._indexes.values())

    def _drop_index(self, text: str) -> None:
        del self._indexes[text]
        self._changed()

    def _drop(self, text: str) -> None:
        gone = self._kept.pop(text)
        drop_view(self._spark, gone.view)
        gone.frame.unpersist()
        self._changed()

    def _changed(self) -> None:
        """There is room again, perhaps for what was refused."""
        self._refused.clear()
        self._not_indexed.clear()
        metrics.ARRANGED_BYTES.set(self._total())


def _bytes_of(frame: DataFrame) -> int:
    """In memory or on Spark's disk, as Spark counted it while it was computed."""
    plan = frame.select("*")._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
