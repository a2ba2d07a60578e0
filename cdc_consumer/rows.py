"""The rows of the open transaction on their way to the sink: by generated encoders, odd ones table-driven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdc_consumer.change_rows.conversions import SLOW_PATH
from cdc_consumer.change_rows.split import Transaction
from cdc_consumer.errors import MalformedMessage
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin, LogicalMessage, RowMessage
from cdc_consumer.routes import Route, Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import RowEncoder, RowWriter, Sink
from cdc_consumer.wal.frames import PAYLOAD_AT
from shared_schema.change_row import ChangeRow, Op
from shared_schema.control import ControlRecord, LogMessage
from shared_schema.progress import CommitPart

_RELID = slice(PAYLOAD_AT + 1, PAYLOAD_AT + 5)
_INSERT = ord("I")


@dataclass(slots=True)
class RelationWriter:
    """One relation in the open transaction, and how many rows it has written since the last count."""

    route: Route
    row_writer: RowWriter
    write: Callable[[bytes | None, bytes], None]
    encoder: RowEncoder
    inserts: int = 0
    deletes: int = 0


class TransactionRows:
    """Numbers, encodes and hands on the rows of one transaction after the other."""

    def __init__(
        self, routes: Routes, schema_versions: SchemaVersions, sink: Sink, metrics: Metrics, part: CommitPart | None
    ) -> None:
        self._routes = routes
        self._schema_versions = schema_versions
        self._sink = sink
        self._metrics = metrics
        self._writers: dict[bytes, RelationWriter] = {}
        self._written = 0
        self._part = part
        self._done = 0
        """Ordinals below it are written already: the transaction was cut there."""
        self._dropping = False
        self.transaction: Transaction | None = None
        """None also inside a transaction whose rows are on the topics already."""

    def begin(self, begin: Begin) -> None:
        """Rows of this transaction follow."""
        self.transaction = Transaction(begin)
        part, self._part = self._part, None
        self._done = part.rows if part is not None and part.lsn == begin.commit_lsn else 0
        self._schema_versions.begin()

    def drop(self) -> None:
        """The rows of the transaction that begins are on the topics already."""
        self.end()
        self._dropping = True

    def end(self) -> None:
        """No rows until the next begin."""
        self.forget()
        self.transaction = None
        self._dropping = False

    def forget(self) -> None:
        """Relations may have changed."""
        self._count()
        self._writers.clear()

    def take(self, frames: list[bytes], first: int) -> int:
        """Frame `first` has a row message -> how many frames from there on were taken.

        0 when its message must be decoded and given to `split`.
        """
        transaction, frame = self.transaction, frames[first]
        if transaction is None:
            self._check_dropping()
            return 1
        writer = self._writers.get(frame[_RELID]) or self._open(frame[_RELID], transaction)
        if writer is None:
            return 0
        inserts, ordinal = writer.encoder.inserts, transaction.ordinal
        if frame[PAYLOAD_AT] == _INSERT and (rows := inserts(frames, first, PAYLOAD_AT, ordinal)):
            writer.row_writer.write_all(rows)
            writer.inserts += len(rows)
            transaction.ordinal += len(rows)
            return len(rows)
        return self._take_one(writer, frame, transaction)

    def _take_one(self, writer: RelationWriter, frame: bytes, transaction: Transaction) -> int:
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
        """A decoded row message."""
        transaction = self.transaction
        if transaction is None:
            self._check_dropping()
            return
        route = self._find(message.relid, transaction)
        if route is None or transaction.ordinal < self._done:
            transaction.skip(message)
            return
        for row in transaction.split(message, route.reader):
            self._append(route, row)

    def truncate(self, relid: int) -> None:
        """TRUNCATE of one relation."""
        if self.transaction is None:
            self._check_dropping()
            return
        route, row = self._find(relid, self.transaction), self.transaction.truncate()
        if route is not None and row.stamp.seq >= self._done:
            self._append(route, row)

    def message(self, message: LogicalMessage) -> None:
        """A message between the rows of the open transaction."""
        if self.transaction is not None:
            stamp, xid = self.transaction.stamp(), self.transaction.begin.xid
            self._control(LogMessage(stamp, xid, True, message.prefix, message.content))

    def written(self) -> int:
        """Rows written since the last call."""
        self._count()
        written, self._written = self._written, 0
        return written

    def _check_dropping(self) -> None:
        if not self._dropping:
            raise MalformedMessage("a change outside of a transaction", offset=0)

    def _open(self, relid: bytes, transaction: Transaction) -> RelationWriter | None:
        if transaction.ordinal < self._done:
            return None
        route = self._find(int.from_bytes(relid, "big"), transaction)
        if route is None:
            return None
        encoder = route.row_writer.encoder(route.reader, transaction.begin)
        writer = self._writers[relid] = RelationWriter(route, route.row_writer, route.row_writer.write, encoder)
        return writer

    def _find(self, relid: int, transaction: Transaction) -> Route | None:
        """The route of a relation; a new schema version is announced before its first row."""
        route = self._routes.find(relid, transaction.begin.commit_lsn)
        if route is not None and self._schema_versions.changed(route.reader.schema):
            self._control(self._schema_versions.change(route.reader.schema, transaction.stamp()))
        return route

    def _control(self, record: ControlRecord) -> None:
        if record.stamp.seq >= self._done:
            self._sink.control(record)
            self._written += 1

    def _append(self, route: Route, row: ChangeRow) -> None:
        route.row_writer.append(row)
        self._metrics.rows(route.reader.schema.table, row.op, 1)
        self._written += 1

    def _count(self) -> None:
        """Rows are counted in the lanes and told from time to time: telling costs as much as encoding a small row."""
        for writer in self._writers.values():
            table = writer.route.reader.schema.table
            if writer.inserts:
                self._metrics.rows(table, Op.INSERT, writer.inserts)
            if writer.deletes:
                self._metrics.rows(table, Op.DELETE, writer.deletes)
            self._written += writer.inserts + writer.deletes
            writer.inserts = writer.deletes = 0
