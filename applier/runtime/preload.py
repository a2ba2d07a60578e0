"""The traces that stream tables read in; their rows in Spark's memory, out: after a start, beside the ticks.

A refresh that needs rows earlier brings them itself. Without this the first change of each stream table would wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.spark.session import stand_back
from applier.trace.trace import Trace
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

THREADS = 2
"""Most of the time for a small relation is Spark's planning, on one core."""

PRELOAD_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Preload:
    """Loads the bases of the traces of one applier, the small ones first, so that most are ready soon."""

    spark: SparkSession
    traces: Traces
    sources: Callable[[], Iterable[TableId]]
    """Returns what the stream tables in service read; known after the first tick."""
    has_ticked: Callable[[], bool]

    def run(self, stopping: threading.Event) -> None:
        """Wait for the first tick, then load; return early when `stopping` is set."""
        while not self.has_ticked():
            if stopping.wait(PRELOAD_LOOK_EVERY_S):
                return
        began = time.monotonic()
        wanted = [trace for table in set(self.sources()) if (trace := self.traces.get(table)) is not None]
        with ThreadPoolExecutor(THREADS, "preload", initializer=stand_back, initargs=(self.spark,)) as pool:
            loaded = list(pool.map(partial(_load, stopping), sorted(wanted, key=lambda trace: trace.base.rows)))
        extra = {"relations": sum(loaded), "seconds": round(time.monotonic() - began, 3)}
        log.info("rows of the sources are in memory", extra=extra)


def _load(stopping: threading.Event, trace: Trace) -> bool:
    """Load the base of a trace; return whether its rows are in memory now."""
    for segment in trace.base.segments:
        if stopping.is_set():
            return False
        try:
            _ = segment.frame
        except Exception as error:
            # Whoever reads it meets the same error, and it is reported for the stream table then.
            log.warning("rows were not loaded", extra={"table": str(trace.table), "error": type(error).__name__})
            return False
    return True
