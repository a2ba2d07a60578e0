"""Takes the row messages of the open transaction, encodes them and writes them to the sink.

Generated encoders handle ordinary rows. Rows that an encoder cannot handle take the slow, table-driven path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_consumer.change_rows.conversions import SLOW_PATH
from cdc_consumer.change_rows.split import Transaction
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin, LogicalMessage, Relation, RowMessage
from cdc_consumer.routes import Route, Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import RowEncoder, RowWriter, Sink
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.tree_news import TreeNews
from cdc_consumer.wal.frames import PAYLOAD_AT
from shared_schema.change_row import ChangeRow, Op
from shared_schema.control import ControlRecord, LogMessage
from shared_schema.progress import CommitPart
from shared_schema.table_schema import TableId

_RELID = slice(PAYLOAD_AT + 1, PAYLOAD_AT + 5)
_INSERT = ord("I")


@dataclass(slots=True)
class RelationWriter:
    """Writes the rows of one relation in the open transaction, and counts them until the counters are flushed."""

    route: Route
    row_writer: RowWriter
    write: Callable[[bytes | None, bytes], None]
    encoder: RowEncoder
    inserts: int = 0
    deletes: int = 0


class TransactionRows:
    """Numbers the rows of one transaction after the other, encodes them and writes them to the sink."""

    def __init__(
        self,
        routes: Routes,
        tables: CapturedTables,
        schema_versions: SchemaVersions,
        sink: Sink,
        *,
        metrics: Metrics,
        part: CommitPart | None,
    ) -> None:
        self._routes = routes
        self._tables = tables
        self._schema_versions = schema_versions
        self._sink = sink
        self._metrics = metrics
        self._writers: dict[bytes, RelationWriter] = {}
        self._written = 0
        self._written_by_table: dict[TableId, int] = {}
        self._part = part
        self._first_ordinal = 0
        """Rows with smaller ordinals are already written: an earlier instance cut the transaction there."""
        self._is_dropping = False
        self.transaction: Transaction | None = None
        """None between transactions, and inside a transaction whose rows the topics already hold."""

    def begin(self, begin: Begin) -> None:
        """Start a transaction: its rows follow."""
        self.transaction = Transaction(begin)
        part, self._part = self._part, None
        self._first_ordinal = part.rows if part is not None and part.lsn == begin.commit_lsn else 0
        self._schema_versions.begin()

    def drop(self) -> None:
        """Start a transaction whose rows the topics already hold: its rows are dropped."""
        self.end()
        self._is_dropping = True

    def end(self) -> None:
        """End the transaction: no rows follow until the next `begin`."""
        self._close_writers()
        self._tables.commit()
        self.transaction = None
        self._is_dropping = False

    def describe(self, relation: Relation) -> None:
        """Take over a description of a relation: its next rows may have another form."""
        self._routes.describe(relation)
        self._close_writers()

    def encode_frames(self, frames: list[bytes], first: int) -> int:
        """Write the row message in frame `first`, and further INSERTs behind it -> the number of frames that are done.

        0 means that no encoder can handle the message: the caller must decode it and pass it to `split`.
        """
        transaction, frame = self.transaction, frames[first]
        if transaction is None:
            self._check_dropping()
            return 1
        writer = self._writers.get(frame[_RELID]) or self._open_writer(frame[_RELID], transaction)
        if writer is None:
            return 0
        encode_inserts, ordinal = writer.encoder.encode_inserts, transaction.ordinal
        if frame[PAYLOAD_AT] == _INSERT and (rows := encode_inserts(frames, first, PAYLOAD_AT, ordinal)):
            writer.row_writer.write_all(rows)
            writer.inserts += len(rows)
            transaction.ordinal += len(rows)
            return len(rows)
        return self._encode_one(writer, frame, transaction)

    def _encode_one(self, writer: RelationWriter, frame: bytes, transaction: Transaction) -> int:
        try:
            rows = writer.encoder.encode(frame, PAYLOAD_AT, transaction.ordinal)
        except SLOW_PATH:
            return 0
        writer.write(rows[0], rows[1])
        if len(rows) == 4:
            writer.write(rows[2], rows[3])
            writer.inserts += 1
            writer.deletes += 1
            transaction.ordinal += 2
            return 1
        if frame[PAYLOAD_AT] == _INSERT:
            writer.inserts += 1
        else:
            writer.deletes += 1
        transaction.ordinal += 1
        return 1

    def split(self, message: RowMessage) -> None:
        """Write a decoded row message by the slow path."""
        transaction = self.transaction
        if transaction is None:
            self._check_dropping()
            return
        route = self._find_route(message.relid, transaction)
        if route is None or transaction.ordinal < self._first_ordinal:
            transaction.skip(message)
            return
        for row in transaction.split(message, route.reader):
            self._append(route, row)

    def truncate(self, relid: int) -> None:
        """Write the T row for a TRUNCATE of one relation, or of one leaf partition."""
        transaction = self.transaction
        if transaction is None:
            self._check_dropping()
            return
        route = self._find_route(relid, transaction)
        leaf = route is not None and route.reader.leaf is not None
        row = transaction.truncate_leaf(route.reader.schema, relid) if route and leaf else transaction.truncate()
        if route is not None and row.stamp.seq >= self._first_ordinal:
            self._append(route, row)

    def follow_leaves(self, news: TreeNews) -> None:
        """Take over the leaf partitions of partitioned tables after DDL of the open transaction."""
        transaction = self.transaction
        if transaction is None:
            return
        at = transaction.begin.commit_lsn
        for relid, leaves in sorted(news.roots.items()):
            for gone in self._tables.follow(relid, leaves, at, news.created, news.sight):
                writer, schema = self._routes.leaf_writer(gone, at)
                row = transaction.truncate_leaf(schema, gone.leaf)
                if row.stamp.seq >= self._first_ordinal:
                    writer.append(row)
                    self._count(schema.table, row.op, 1)
        self._routes.forget()
        self._close_writers()

    def add_message(self, message: LogicalMessage) -> None:
        """Write a logical message that stands between the rows of the open transaction."""
        if self.transaction is not None:
            stamp, xid = self.transaction.stamp(), self.transaction.begin.xid
            self._write_control(LogMessage(stamp, xid, True, message.prefix, message.content))

    @property
    def written_by_table(self) -> Mapping[TableId, int]:
        """Change rows of each table since the session began."""
        return self._written_by_table

    def take_count(self) -> int:
        """Return how many rows were written since the last call."""
        self._flush_counts()
        written, self._written = self._written, 0
        return written

    def _close_writers(self) -> None:
        self._flush_counts()
        self._writers.clear()

    def _check_dropping(self) -> None:
        if not self._is_dropping:
            raise MalformedMessage("a row change outside a transaction", offset=0)

    def _open_writer(self, relid: bytes, transaction: Transaction) -> RelationWriter | None:
        if transaction.ordinal < self._first_ordinal:
            return None
        route = self._find_route(int.from_bytes(relid, "big"), transaction)
        if route is None:
            return None
        encoder = route.row_writer.encoder(route.reader, transaction.begin)
        writer = self._writers[relid] = RelationWriter(route, route.row_writer, route.row_writer.write, encoder)
        return writer

    def _find_route(self, relid: int, transaction: Transaction) -> Route | None:
        """Return the route of a relation. Announces a new schema version before its first row."""
        route = self._routes.find(relid, transaction.begin.commit_lsn)
        if route is not None and self._schema_versions.is_changed(route.reader.schema):
            self._write_control(self._schema_versions.record_change(route.reader.schema, transaction.stamp()))
        return route

    def _write_control(self, record: ControlRecord) -> None:
        if record.stamp.seq >= self._first_ordinal:
            self._sink.control(record)
            self._written += 1

    def _append(self, route: Route, row: ChangeRow) -> None:
        route.row_writer.append(row)
        self._count(route.reader.schema.table, row.op, 1)

    def _flush_counts(self) -> None:
        """Add the counts of all writers to the metrics.

        Writers count rows themselves and this runs rarely, because one metrics call costs as much as encoding a small
        row.
        """
        for writer in self._writers.values():
            table = writer.route.reader.schema.table
            if writer.inserts:
                self._count(table, Op.INSERT, writer.inserts)
            if writer.deletes:
                self._count(table, Op.DELETE, writer.deletes)
            writer.inserts = writer.deletes = 0

    def _count(self, table: TableId, op: Op, rows: int) -> None:
        self._written += rows
        self._written_by_table[table] = self._written_by_table.get(table, 0) + rows
        self._metrics.count_rows(table, op, rows)
