"""Copying one exported table, inside the sink's open transaction."""

from __future__ import annotations

import logging
import time

from cdc_consumer.metrics import Metrics
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.copy import snapshot_rows
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.wal.feedback import Feedback
from shared_schema.change_row import Op
from shared_schema.progress import Capture

log = logging.getLogger(__name__)

COPY_CHECK_ROWS = 500
"""Copied rows between two looks at the clock."""


class Loader:
    """Copies tables while it keeps the replication connection alive."""

    def __init__(self, slot: str, sink: Sink, feedback: Feedback, metrics: Metrics) -> None:
        self._slot = slot
        self._sink = sink
        self._feedback = feedback
        self._metrics = metrics

    def load(self, export: Export, table: TableExport) -> Capture:
        """Produce the table's rows; the capture returned is to be published with them.

        A topic that was ever written to may hold rows of an earlier table or of an attempt that failed, so a T row
        empties it first.
        """
        started, name = time.monotonic(), table.schema.table
        # Also for an empty table: its readers need its columns too.
        outlet = self._sink.outlet(table.schema)
        again, now_us = outlet.used(), time.time_ns() // 1000
        copied = self._metrics.captured_rows.labels(str(name))
        rows = 0
        for row in snapshot_rows(export, table, again=again, now_us=now_us):
            outlet.append(row)
            if row.op is Op.INSERT:
                rows += 1
                copied.inc()
            if rows % COPY_CHECK_ROWS == 0:
                self._feedback.while_waiting()
        taken_s = round(time.monotonic() - started, 3)
        log.info("table captured", extra={"table": str(name), "lsn": str(export.at), "rows": rows, "seconds": taken_s})
        return Capture(self._slot, name, table.schema.relid, export.stamp, rows, table.published.membership)
