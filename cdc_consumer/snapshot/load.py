"""Copying one exported table into the sink.

Copied rows are stamped one byte before the consistent point L, where no commit record can start: so they come after
everything the snapshot replaces, before every streamed row of the table (whose commits start at L or later), share a
stamp with none of them, and a frontier of L includes them. The T row of a table captured again has number 0, its rows
follow.

A copy that takes long is cut into several transactions of the sink. Readers do not count its rows before the capture
record, and one that dies is followed by a T row and a whole copy at a later point.
"""

from __future__ import annotations

import logging
import time

from cdc_consumer.change_rows.copied import NO_XID
from cdc_consumer.metrics import Metrics
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.chunks import chunks_of, expected_rows, parts_of
from cdc_consumer.snapshot.copy import read_chunks
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.snapshot.report import CopyReport
from cdc_consumer.wal.feedback import Feedback
from shared_schema import avro
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.progress import Capture

log = logging.getLogger(__name__)


class Loader:
    """Copies tables while it keeps the replication connection alive."""

    def __init__(self, settings: ConsumerSettings, sink: Sink, feedback: Feedback, metrics: Metrics) -> None:
        self._settings = settings
        self._sink = sink
        self._feedback = feedback
        self._metrics = metrics

    def load(self, export: Export, table: TableExport) -> Capture:
        """Produce the table's rows; the capture returned is to be published with the last of them.

        A place that was ever written to may hold rows of an earlier table or of an attempt that failed, so a T row
        empties it first.
        """
        name, stamp = table.schema.table, export.stamp
        # Also for an empty table: its readers need its columns too.
        outlet = self._sink.outlet(table.schema)
        now_us = time.time_ns() // 1000
        if outlet.used():
            outlet.empty(ChangeRow(Op.TRUNCATE, Stamp(stamp, 0), NO_XID, now_us, None, snapshot=True))
        encode, write = outlet.copier(stamp, now_us).encode, outlet.write
        parts = parts_of(export.reader, table)
        chunks = chunks_of(table, parts, self._settings.copy_chunk_pages)
        readers = export.readers(min(len(chunks), self._settings.copy_connections), table)
        report = CopyReport(name, expected_rows(table, parts), sum(c.pages for c in chunks), self._metrics)
        committed_at, seq = time.monotonic(), 0
        # Not for one captured before: its readers would see it half until this copy ends.
        cut_s = None if table.again else self._sink.transaction_limit_s
        try:
            for lines, pages in read_chunks(readers, chunks, self._feedback.while_waiting):
                for line in lines:
                    seq += 1
                    write(*encode(line, seq))
                report.advance(len(lines), pages)
                if cut_s is not None and time.monotonic() - committed_at >= cut_s:
                    self._sink.publish(None)
                    committed_at = time.monotonic()
        finally:
            seconds = report.end()
        log.info("table captured", extra={"table": str(name), "lsn": str(export.at), "rows": seq, "seconds": seconds})
        return Capture(
            self._settings.slot,
            name,
            table.schema.relid,
            stamp,
            seq,
            table.published.membership,
            avro.codec(table.schema).id.hex(),
        )
