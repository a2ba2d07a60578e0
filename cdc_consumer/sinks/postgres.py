"""Writes change rows to buffer tables in PostgreSQL (modes `sidecar`, `remote`): rows and progress in one transaction.

Rows are collected per table and sent by COPY. The session holds an advisory lock for the slot: the holder is the only
writer, and a session that loses its connection also loses the lock.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

import psycopg
from psycopg import sql

from cdc_consumer.change_rows.buffer_rows import (
    BOOKKEEPING,
    BufferCopier,
    BufferEncoder,
    Layout,
    RowForm,
    TextReader,
    buffer_column,
    restamp_row,
)
from cdc_consumer.change_rows.generate import EncodedRow
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks import buffer_schema
from cdc_consumer.sinks.buffer_schema import SCHEMA, Connection, buffer_table
from cdc_consumer.sinks.sink import Delivered, RowWriter, SlotRecord, StoredState, Tombstone, Write
from cdc_consumer.wal.catalog import connect
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema import control
from shared_schema.avro import codec, parse_table_schema
from shared_schema.change_row import ChangeRow, Stamp
from shared_schema.control import ControlRecord
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Checkpoint, Progress, decode_progress
from shared_schema.table_schema import TableId, TableSchema

log = logging.getLogger(__name__)

COPY_BYTES = 1024 * 1024
"""Bytes of rows that are collected for one table before they are sent."""

HELD_BYTES = 16 * 1024 * 1024
"""The same for all tables together."""

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"

LOCK_WAIT_S = 0.5
"""This instance has the slot, so the instance that holds the lock has lost the slot. The session of a killed instance
ends immediately; the session of an instance that hangs is terminated after this time. Waiting longer would only delay
the takeover."""


def prepare_buffers(settings: ConsumerSettings) -> None:
    """Create the tables that do not depend on a source table."""
    with _typed_errors(), connect(settings.buffer_url) as connection:
        buffer_schema.create_buffers(connection)


def read_buffer_state(settings: ConsumerSettings) -> StoredState:
    """Return the committed progress and captures of the slot."""
    with _typed_errors(), connect(settings.buffer_url) as connection:
        if not buffer_schema.buffers_exist(connection):
            return StoredState()
        query = "SELECT key, record::text FROM pgtrickle_changes.progress WHERE slot = %s"
        records = {
            str(key).encode(): decode_progress(str(r).encode())
            for key, r in connection.execute(query, (settings.slot,))
        }
    progress = next((r for r in records.values() if isinstance(r, Progress)), None)
    captures = {r.table: r for r in records.values() if isinstance(r, Capture)}
    return StoredState(progress, captures if progress else {}, tuple(records))


def are_buffers_empty(settings: ConsumerSettings) -> bool:
    """Return whether no table ever had a buffer table."""
    with _typed_errors(), connect(settings.buffer_url) as connection:
        row = connection.execute("SELECT NOT EXISTS (SELECT FROM pgtrickle_changes.versions)").fetchone()
    return row is not None and bool(row[0])


def read_buffer_schema(settings: ConsumerSettings, fingerprint: str) -> TableSchema | None:
    """Return a schema version that an earlier instance used; None if it cannot be found."""
    with _typed_errors(), connect(settings.buffer_url) as connection:
        found = connection.execute("SELECT avro_schema FROM pgtrickle_changes.versions").fetchall()
    schemas = (parse_table_schema(avro) for (avro,) in found)
    return next((schema for schema in schemas if codec(schema).id.hex() == fingerprint), None)


def probe_buffers(settings: ConsumerSettings) -> None:
    """Test whether the database of the buffer tables answers; raises if it does not."""
    connect(settings.buffer_url).close()


class BufferRowWriter:
    """Writes the rows of one schema version to a buffer table."""

    def __init__(self, sink: BufferSink, layout: Layout) -> None:
        self.write: Write = self._collect
        self._sink = sink
        self._layout = layout
        self._form = RowForm(layout)
        self._text: list[bytes] = []
        self._binary: list[bytes] = []
        self._bytes = 0
        columns = [name for name, _ in BOOKKEEPING] + [buffer_column(column) for column in layout.schema.columns]
        place = sql.Identifier(SCHEMA, buffer_table(layout.schema.relid))
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        self._copy = sql.SQL("COPY {} ({}) FROM STDIN").format(place, listed)

    def redirect(self, write: Write) -> BufferRowWriter:
        """Return a writer that makes COPY rows for the buffer table but passes them to `write`."""
        other = BufferRowWriter(self._sink, self._layout)
        other.write = write
        return other

    def _collect(self, key: bytes | None, value: bytes) -> None:
        """Collect a COPY row; rows are sent once there are enough."""
        (self._text if key is None else self._binary).append(value)
        self._bytes += len(value)
        self._sink.hold(self, len(value), full=self._bytes >= COPY_BYTES)

    def write_all(self, rows: list[EncodedRow]) -> None:
        """Write several COPY rows."""
        for key, value in rows:
            self.write(key, value)

    def write_as(self, other: RowWriter, write: Write) -> Write:
        """Return `write`: a buffer table does not depend on the name of its source."""
        return write

    def restamp(self, row: EncodedRow, stamp: Stamp) -> EncodedRow:
        """Return a COPY row with another stamp."""
        return restamp_row(row, stamp)

    def encoder(self, reader: TableReader, begin: Begin) -> BufferEncoder:
        """Return the encoder for one transaction: it passes PostgreSQL's text on."""
        return BufferEncoder(self._form, TextReader(reader.relation, reader.schema), begin)

    def copier(self, at: Lsn, now_us: int) -> BufferCopier:
        """Return the encoder for copied lines."""
        return BufferCopier(self._form, len(self._layout.types), at, now_us)

    def append(self, row: ChangeRow) -> None:
        """Write a T row; the encoder handles all other rows."""
        self.write(*self._form.row(row))

    def append_truncate(self, row: ChangeRow) -> None:
        """Write the T row like any other row: a table has a single order."""
        self.append(row)

    def is_used(self) -> bool:
        """Return whether the buffer table ever held a row, also one that was consumed and deleted."""
        return self._sink.is_used(self._layout.schema)

    def send(self, connection: Connection) -> int:
        """Send the collected rows by COPY -> their size."""
        with connection.cursor() as cursor:
            if self._binary:
                with cursor.copy(self._copy + sql.SQL(" (FORMAT binary)")) as copy:
                    copy.write(b"".join([_SIGNATURE, *self._binary, _TRAILER]))
            if self._text:
                with cursor.copy(self._copy) as copy:
                    copy.write(b"".join(self._text))
        return self.drop()

    def drop(self) -> int:
        """Drop the collected rows -> their size."""
        size, self._bytes = self._bytes, 0
        self._text.clear()
        self._binary.clear()
        return size


class BufferSink:
    """Writes the change rows of one slot to buffer tables."""

    def __init__(self, settings: ConsumerSettings, idle: Callable[[], None]) -> None:
        self._slot = settings.slot
        self._idle = idle
        self._held: dict[BufferRowWriter, None] = {}
        self._held_bytes = 0
        self._controls: list[tuple[str, str, int, str, str]] = []
        with _typed_errors():
            self._connection = connect(settings.buffer_url)
            # What is acknowledged as published must survive a crash, whatever the server's default setting is.
            self._connection.execute("SET synchronous_commit = on")
            self._take_lock()

    def prepare(self, tables: Sequence[TableId]) -> None:
        """Do nothing: buffer tables are made from schemas, one by one."""

    def row_writer(self, schema: TableSchema) -> BufferRowWriter:
        """Return the writer for a schema version; create or alter its buffer table if needed."""
        with _typed_errors():
            if not self._held and self._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                # The transaction is not left open: in sidecar mode it is in the source database, and the consistent
                # point of the next capture waits for every open transaction there.
                with self._connection.transaction():
                    return BufferRowWriter(self, buffer_schema.fit_buffer_table(self._connection, schema))
            # The collected rows must be sent first: they were encoded for the table as it is now.
            self._begin()
            self._send_all()
            return BufferRowWriter(self, buffer_schema.fit_buffer_table(self._connection, schema))

    @property
    def transaction_limit_s(self) -> float | None:
        """None: PostgreSQL does not limit the duration of a transaction."""
        return None

    def control(self, record: ControlRecord) -> None:
        """Add a control record, which is sent with the rows.

        Until then no transaction is open for it: before the first frontier nothing ends one, and the consistent point
        of the first capture would wait for it, where both databases are on one server.
        """
        content = json.loads(control.encode_control(self._slot, record))
        text = json.dumps(content)
        self._controls.append((self._slot, str(record.stamp.lsn), record.stamp.seq, content["kind"], text))
        self._held_bytes += len(text)
        if self._held_bytes >= HELD_BYTES:
            with _typed_errors():
                self._begin()
                self._send_all()

    def hold(self, row_writer: BufferRowWriter, size: int, *, full: bool) -> None:
        """Note that a row was added to the writer; send all collected rows if there are enough."""
        self._held[row_writer] = None
        self._held_bytes += size
        if full or self._held_bytes >= HELD_BYTES:
            with _typed_errors():
                self._begin()
                self._send_all()
            self._idle()

    def is_used(self, schema: TableSchema) -> bool:
        """Return whether a capture record or a row shows that the buffer table was used before."""
        table = sql.Identifier(SCHEMA, buffer_table(schema.relid))
        known = "SELECT EXISTS (SELECT FROM pgtrickle_changes.progress WHERE (record ->> 'relid')::oid = %s)"
        with _typed_errors():
            captured = self._connection.execute(known, (schema.relid,)).fetchone()
            row = self._connection.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table)).fetchone()
        return any(found is not None and found[0] for found in (captured, row))

    def flush(self) -> Delivered:
        """Return nothing: tables have no offsets."""
        return Delivered()

    def commit(self, records: Sequence[SlotRecord]) -> None:
        """Commit the rows together with their records."""
        with _typed_errors():
            self._begin()
            self._send_all()
            for record in records:
                self._store(record)
            self._connection.execute("COMMIT")

    def abort(self) -> None:
        """Roll back; if the connection is lost, the server has done so already."""
        for row_writer in self._held:
            row_writer.drop()
        self._held.clear()
        self._controls.clear()
        self._held_bytes = 0
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            return

    def poll(self) -> None:
        """Do nothing: PostgreSQL sends no reports."""

    def close(self) -> None:
        """Close the session, which releases the lock."""
        self.abort()
        self._connection.close()

    def _store(self, record: SlotRecord) -> None:
        key = record.key.decode()
        match record:
            case Tombstone():
                self._connection.execute("DELETE FROM pgtrickle_changes.progress WHERE key = %s", (key,))
            case Capture() | Progress() | Checkpoint():
                self._connection.execute(
                    "INSERT INTO pgtrickle_changes.progress VALUES (%s, %s, %s::jsonb) "
                    "ON CONFLICT (key) DO UPDATE SET record = EXCLUDED.record",
                    (key, self._slot, record.encode().decode()),
                )
            case other:
                assert_never(other)

    def _begin(self) -> None:
        if self._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            self._connection.execute("BEGIN")

    def _send_all(self) -> None:
        for row_writer in self._held:
            row_writer.send(self._connection)
        for values in self._controls:
            self._connection.execute("INSERT INTO pgtrickle_changes.control VALUES (%s, %s, %s, %s, %s::jsonb)", values)
        self._controls.clear()
        self._held.clear()
        self._held_bytes = 0

    def _take_lock(self) -> None:
        key = json.dumps(["pg-trickle-cdc", self._slot])
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            row = self._connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (key,)).fetchone()
            if row is not None and row[0]:
                return
            if time.monotonic() >= deadline:
                log.warning("terminating the session of the previous instance", extra={"slot": self._slot})
                self._connection.execute(_END_HOLDER, (key,))
                deadline = time.monotonic() + LOCK_WAIT_S
            self._idle()
            time.sleep(0.1)


_END_HOLDER = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l, LATERAL (SELECT hashtextextended(%s, 0) AS key) k
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::int8 << 32 | l.objid::int8) = k.key
"""


@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
