"""Reports the progress of a copy: a bar on a terminal, log lines otherwise, and always a gauge."""

from __future__ import annotations

import logging
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cdc_consumer.metrics import Metrics
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

LOG_EVERY_S = 5.0
"""Often enough to see that the copy is running, rare enough for a copy that takes hours."""


class CopyReport:
    """The progress of one table's copy."""

    def __init__(self, table: TableId, expected: int | None, pages: int, metrics: Metrics) -> None:
        self._table = str(table)
        self._expected = expected
        self._pages, self._pages_done = pages, 0
        self._began = self._logged_at = time.monotonic()
        self.rows = 0
        self._copied = metrics.captured_rows.labels(self._table)
        self._left = metrics.copy_rows_left.labels(self._table)
        self._bar = _bar() if sys.stderr.isatty() else None
        if self._bar is not None:
            self._task = self._bar.add_task(self._table, total=expected)
            self._bar.start()

    def advance(self, rows: int, pages: int) -> None:
        """Add rows that were written and pages that are finished."""
        self.rows += rows
        self._pages_done += pages
        self._copied.inc(rows)
        expected = self.expected
        self._left.set(max(0, expected - self.rows) if expected is not None else 0)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.rows, total=expected)
        elif time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.info("copying table", extra={"table": self._table, **self.figures()})

    @property
    def expected(self) -> int | None:
        """Estimated number of rows: from the statistics, or from the average of the finished pages."""
        if self._expected is not None:
            return max(self._expected, self.rows)
        return self.rows * self._pages // self._pages_done if self._pages_done else None

    def figures(self) -> dict[str, int | float]:
        """Return rows, rate and remaining time, for a log line."""
        seconds = time.monotonic() - self._began
        rate = self.rows / seconds if seconds > 0 else 0.0
        figures: dict[str, int | float] = {"rows": self.rows, "rows_per_s": round(rate)}
        if (expected := self.expected) is not None and rate:
            figures |= {"expected_rows": expected, "eta_s": round((expected - self.rows) / rate, 1)}
        return figures

    def end(self) -> float:
        """Remove the bar -> the duration of the copy in seconds."""
        self._left.set(0)
        if self._bar is not None:
            self._bar.stop()
        return round(time.monotonic() - self._began, 3)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
