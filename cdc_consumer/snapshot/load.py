"""Copies one exported table into the sink and returns its capture record.

Copied rows are stamped one byte before the point L at which the table joins the stream, where no commit record can
start. So they come after everything that the snapshot replaces and before every streamed row of the table (whose
commits start at L or later), they share a stamp with none of them, and a frontier of L includes them. If the table is
captured again, its T row has ordinal 0 and its rows follow.

L is the snapshot's consistent point, or later if the stream passed that point before it was known. Changes between the
two were kept. They get the stamp of the copy and follow its last row: together they are the table as of L.

A long copy is split over several transactions of the sink. Readers do not count its rows before the capture record. If
a copy does not finish, a T row and a complete copy at a later point follow.
"""

from __future__ import annotations

import logging
import time

from cdc_consumer.change_rows.copy_lines import NO_XID
from cdc_consumer.change_rows.split import truncate_leaf
from cdc_consumer.metrics import Metrics
from cdc_consumer.ring.spool import Spool
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.chunks import chunks_of, expected_rows, parts_of
from cdc_consumer.snapshot.copy import CopyReaders
from cdc_consumer.snapshot.export import Export, TableExport
from cdc_consumer.snapshot.report import CopyReport
from cdc_consumer.wal.feedback import Feedback
from cdc_consumer.wal.table_facts import find_left_out
from shared_schema import avro
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.progress import Capture

log = logging.getLogger(__name__)


LOAD_WAIT_S = 0.2
"""How long one wait for lines may last before the server gets a status update."""


class TableCopy:
    """Copies the rows of one table into the sink, step by step."""

    def __init__(
        self, settings: ConsumerSettings, sink: Sink, metrics: Metrics, export: Export, table: TableExport
    ) -> None:
        self._slot = settings.slot
        self._export = export
        self._table = table
        self._rows = 0
        self._first = 1
        """The ordinal of the first copied row."""
        # Also for an empty table: readers need its columns too.
        self.row_writer = sink.row_writer(table.schema)
        now_us = time.time_ns() // 1000
        if table.published.only:
            # An unfinished copy may have left rows of the leaf partitions.
            for seq, leaf in enumerate(table.leaves):
                stamp = Stamp(export.stamp, seq)
                gone = truncate_leaf(table.schema, leaf, stamp, NO_XID, now_us, snapshot=True)
                self.row_writer.append_truncate(gone)
            self._first = max(1, len(table.leaves))
        elif self.row_writer.is_used():
            # It may hold rows of an earlier table of this name, or of an unfinished copy.
            self.row_writer.append_truncate(
                ChangeRow(Op.TRUNCATE, Stamp(export.stamp, 0), NO_XID, now_us, None, snapshot=True)
            )
        self._encode = self.row_writer.copier(export.stamp, now_us).encode
        parts = parts_of(export.reader, table)
        chunks = chunks_of(table, parts, settings.copy_chunk_pages)
        readers = export.readers(min(len(chunks), settings.copy_connections), table)
        pages = sum(chunk.pages for chunk in chunks)
        self._report = CopyReport(table.schema.table, expected_rows(table, parts), pages, metrics)
        self._reading = CopyReaders(readers, chunks)

    @property
    def done(self) -> bool:
        """Whether every row was written to the sink, in its open transaction or an earlier one."""
        return self._reading.done

    def step(self, timeout_s: float) -> bool:
        """Write one batch of rows -> False if none arrived in time."""
        batch = self._reading.take(timeout_s)
        if batch is None:
            return False
        lines, pages = batch
        encode, first = self._encode, self._rows + self._first
        if lines:
            self.row_writer.write_all([encode(line, seq) for seq, line in enumerate(lines, first)])
            self._rows += len(lines)
        self._report.advance(len(lines), pages)
        return True

    def append(self, spool: Spool) -> None:
        """Write the changes that waited for the copy: those before its point with its stamp, others with their own."""
        at, stamp, restamp = self._export.at, self._export.stamp, self.row_writer.restamp
        seq = self._rows + self._first - 1
        for commit, rows in spool.drain():
            if commit < at:
                self.row_writer.write_all([restamp(row, Stamp(stamp, n)) for n, row in enumerate(rows, seq + 1)])
                seq += len(rows)
            else:
                self.row_writer.write_all(rows)

    def capture(self) -> Capture:
        """Return the capture record, which is to be published together with the last rows."""
        name = self._table.schema.table
        seconds = self._report.end()
        log.info(
            "table captured",
            extra={"table": str(name), "lsn": str(self._export.at), "rows": self._rows, "seconds": seconds},
        )
        return new_capture(self._slot, self._export, self._table, self._rows)

    def close(self) -> None:
        """Stop reading."""
        self._reading.close()
        self._report.end()


def new_capture(slot: str, export: Export, table: TableExport, rows: int = 0) -> Capture:
    """Return the capture record of an exported table."""
    return Capture(
        slot,
        table.schema.table,
        table.schema.relid,
        export.stamp,
        rows,
        table.published.membership,
        avro.codec(table.schema).id.hex(),
        leaves=dict.fromkeys(table.leaves, export.stamp) if table.published.partitioned else None,
        joined=table.published.joined,
        left_out=find_left_out(table.published, table.facts),
        facts=table.facts,
    )


class Loader:
    """Copies tables."""

    def __init__(self, settings: ConsumerSettings, sink: Sink, feedback: Feedback, metrics: Metrics) -> None:
        self._settings = settings
        self._sink = sink
        self._feedback = feedback
        self._metrics = metrics

    def prepare(self, export: Export) -> None:
        """Prepare the sink for the tables of an export, all at once."""
        self._sink.prepare([table.schema.table for table in export.tables])

    def begin(self, export: Export, table: TableExport) -> TableCopy:
        """Start a copy; the caller runs its steps."""
        return TableCopy(self._settings, self._sink, self._metrics, export, table)

    def load(self, export: Export, table: TableExport, spool: Spool) -> Capture:
        """Copy the whole table while the stream is stopped -> the capture, to be published with the last rows."""
        copy, committed_at = self.begin(export, table), time.monotonic()
        limit_s = self._sink.transaction_limit_s
        try:
            while not copy.done:
                self._feedback.while_waiting()
                copy.step(LOAD_WAIT_S)
                if limit_s is not None and time.monotonic() - committed_at >= limit_s:
                    self._sink.commit(())
                    committed_at = time.monotonic()
            copy.append(spool)
            return copy.capture()
        finally:
            copy.close()
