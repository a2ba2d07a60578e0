"""Measures the write rate of each table and finds those for which receiving should not wait for publishing."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from cdc_consumer.metrics import Metrics
from shared_schema.table_schema import TableId

log = logging.getLogger(__name__)

COOL_AFTER_S = 60.0
"""A source written in bursts stays hot between them."""

MEASURE_EVERY_S = 1.0
"""Rates are averages over this time."""


class HotSources:
    """The rates of all tables; `any_hot` says whether at least one of them uses the ring.

    With the choice `auto` those with more than `hot_rows_per_s`.
    """

    def __init__(self, choice: tuple[str, ...], hot_rows_per_s: int, metrics: Metrics) -> None:
        self._choice = choice
        self._hot_rows_per_s = hot_rows_per_s
        self._metrics = metrics
        self._measured_at = time.monotonic()
        self._seen: dict[TableId, int] = {}
        self._hot_until: dict[TableId, float] = {}
        self.any_hot = False

    def measure(self, written: Mapping[TableId, int]) -> None:
        """Measure the rates if MEASURE_EVERY_S has passed; `written` has the change rows of each table so far.

        Must not be called during a wait for the sink: no rows are counted then, so the result would not be a rate.
        """
        now = time.monotonic()
        passed_s = now - self._measured_at
        if passed_s < MEASURE_EVERY_S:
            return
        self._measured_at = now
        for table, rows in written.items():
            rate = (rows - self._seen.get(table, 0)) / passed_s
            self._seen[table] = rows
            self._metrics.show_rate(table, rate)
            if self._is_hot(table, rate):
                if table not in self._hot_until:
                    log.info("source is hot", extra={"table": str(table), "rows_per_s": round(rate)})
                self._hot_until[table] = now + COOL_AFTER_S
        for table in [t for t, until in self._hot_until.items() if until < now]:
            del self._hot_until[table]
        self.any_hot = bool(self._hot_until)
        self._metrics.hot_sources.set(len(self._hot_until))

    def _is_hot(self, table: TableId, rate: float) -> bool:
        match self._choice:
            case ("off",):
                return False
            case ("auto",):
                return rate > self._hot_rows_per_s
            case listed:
                return str(table) in listed
