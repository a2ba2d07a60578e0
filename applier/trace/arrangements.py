"""What stream tables read of a relation again and again, kept ready: the columns they need of the rows they filter.

f(base) for a rule f that looks at each row alone. A base only grows by segments, so f is applied to each segment once;
what came since is as small as the change, and f is applied to it in every window.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from applier import metrics
from applier.trace.segment import Segment
from applier.trace.views import create_view, drop_view

log = logging.getLogger(__name__)

WORTH_ROWS = 50_000
"""A smaller segment is read as it is: it is in memory anyway."""

UNUSED_S = 600.0
"""What nobody read for so long makes room for others."""


@dataclass
class Arrangement:
    """The rows of one text."""

    segment: Segment
    frame: DataFrame
    view: str
    rows: int
    size: int
    used: float


class Arrangements:
    """Of all traces; together no larger than the budget, unless somebody reads them right now."""

    def __init__(self, spark: SparkSession, budget_mb: int) -> None:
        self._spark = spark
        self.budget = budget_mb << 20
        self._kept: dict[str, Arrangement] = {}
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def of(self, segment: Segment, text: str) -> Arrangement | None:
        """The rows of a text that reads one segment; None where it is better read as it is."""
        if segment.rows < WORTH_ROWS or not self.budget:
            return None
        with self._lock:
            found = self._kept.get(text)
            if found is None and text not in self._refused:
                found = self._make(segment, text)
            if found is not None:
                found.used = time.monotonic()
            return found

    def tidy(self) -> None:
        """Forget what is of segments that are gone."""
        with self._lock:
            for text in [text for text, one in self._kept.items() if one.segment.released]:
                self._drop(text)

    def _make(self, segment: Segment, text: str) -> Arrangement | None:
        began = time.monotonic()
        frame = self._spark.sql(text).persist(StorageLevel.MEMORY_AND_DISK)
        rows = frame.count()
        size = _bytes_of(frame)
        for old in sorted(self._kept, key=lambda old: self._kept[old].used):
            if self._total() + size <= self.budget or began - self._kept[old].used < UNUSED_S:
                break
            self._drop(old)
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

    def _total(self) -> int:
        return sum(one.size for one in self._kept.values())

    def _drop(self, text: str) -> None:
        gone = self._kept.pop(text)
        drop_view(self._spark, gone.view)
        gone.frame.unpersist()
        # There is room again, perhaps for what was refused.
        self._refused.clear()
        metrics.ARRANGED_BYTES.set(self._total())


def _bytes_of(frame: DataFrame) -> int:
    """In memory or on Spark's disk, as Spark counted it while it was computed."""
    plan = frame.select("*")._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
