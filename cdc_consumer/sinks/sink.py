"""The interface of a sink, to which the relay writes change rows. The relay does not know if it is Kafka or PostgreSQL.

One transaction of the sink is open from the first row until `commit`, which makes rows, captures and progress visible
together or not at all. No call blocks for more than about a second without calling the `idle` function that the sink
was opened with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdc_consumer.change_rows.generate import EncodedRow, EncodedUpdate
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Begin
from shared_schema.change_row import ChangeRow, Stamp
from shared_schema.control import ControlRecord
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress, ProgressRecord
from shared_schema.table_schema import TableId, TableSchema


@dataclass(frozen=True)
class StoredState:
    """The last committed progress of a slot and its captured tables.

    Captures without a progress record are void: the instance that wrote them never published a frontier.
    """

    progress: Progress | None = None
    captures: dict[TableId, Capture] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()
    """Keys of all records of the slot, including void ones."""
    other_slot: str | None = None
    """Another slot, if the newest progress on the topics is that of another slot."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Deletes the stored record that has this key."""

    key: bytes

    def encode(self) -> None:
        """Return no value: that is what deletes a record of a compacted topic."""


SlotRecord = ProgressRecord | Tombstone
"""What is stored about a slot, beside the rows."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """How far the sink's own writes reach: the end offsets of partitions since the last call; empty for tables."""

    end_offsets: Offsets = field(default_factory=dict)
    control_end: int = 0
    """The end offset of the control topic; 0 if it was not written."""
    progress_end: int | None = None
    """An offset of the progress topic that the next records do not precede; None if the sink has no such topic."""


Write = Callable[[bytes | None, bytes], None]
"""A function that writes an encoded row: key and value."""


class RowEncoder(Protocol):
    """Encodes the row messages of one relation in one transaction for `RowWriter.write`."""

    def encode_inserts(self, frames: list[bytes], first: int, at: int, ordinal: int) -> list[EncodedRow]:
        """Encode consecutive INSERTs of the relation, from frame `first` on -> their rows.

        `at` is the offset of the message in each frame. The encoder decides how many INSERTs it handles. An empty
        result does not mean that the first one cannot be encoded: the caller then uses `encode`.
        """

    def encode(self, frame: bytes, at: int, ordinal: int) -> EncodedRow | EncodedUpdate:
        """Encode the row message at offset `at` -> key and value of each row.

        A row that it cannot encode raises one of SLOW_PATH.
        """


class RowCopier(Protocol):
    """Encodes the lines of a table's COPY for `RowWriter.write`."""

    def encode(self, line: bytes, seq: int) -> EncodedRow:
        """Encode a line (with its line end); `seq` is its number among the copied rows."""


class RowWriter(Protocol):
    """Writes the rows of one schema version into the open transaction."""

    @property
    def write(self) -> Write:
        """Add an encoded row; open a transaction if needed. An attribute, because it is called for every row."""

    def write_all(self, rows: list[EncodedRow]) -> None:
        """Add several encoded rows."""

    def redirect(self, write: Write) -> RowWriter:
        """Return a writer that encodes in the same way but passes the rows to `write`.

        These rows may be given to `write_all` of this writer later.
        """

    def write_as(self, other: RowWriter, write: Write) -> Write:
        """Return a function that passes encoded rows of this writer to `write` as those of another one.

        The other one is for the same columns under another name of the table.
        """

    def restamp(self, row: EncodedRow, stamp: Stamp) -> EncodedRow:
        """Return an encoded row with another stamp."""

    def encoder(self, reader: TableReader, begin: Begin) -> RowEncoder:
        """Return the encoder for the rows of one transaction."""

    def copier(self, at: Lsn, now_us: int) -> RowCopier:
        """Return the encoder for copied rows, which are stamped `at`."""

    def append(self, row: ChangeRow) -> None:
        """Add a row that the encoder cannot encode."""

    def append_truncate(self, row: ChangeRow) -> None:
        """Add the T row before a new copy, so that every reader of the existing rows sees it."""

    def is_used(self) -> bool:
        """Return whether rows were ever written here; called before the first row is written."""


class Sink(Protocol):
    """Stores the change rows of one slot."""

    @property
    def transaction_limit_s(self) -> float | None:
        """How long one transaction may last; None without a limit."""

    def prepare(self, tables: Sequence[TableId]) -> None:
        """Create what tables need, all at once, if that is faster than one by one; `row_writer` creates it too."""

    def row_writer(self, schema: TableSchema) -> RowWriter:
        """Return the writer for a schema version; create its topic or table if it is missing.

        Readers can find the schema when this returns.
        """

    def control(self, record: ControlRecord) -> None:
        """Add a control record to the open transaction."""

    def flush(self) -> Delivered:
        """Wait until everything that was written is delivered -> where it ends, for the progress record."""

    def commit(self, records: Sequence[SlotRecord]) -> None:
        """Flush, store the records and end the transaction; returns when it is durable.

        Without a progress record readers count its rows only after a later transaction that has one.
        """

    def abort(self) -> None:
        """Abort the open transaction."""

    def poll(self) -> None:
        """Process the reports that the sink has sent."""

    def close(self) -> None:
        """Abort the open transaction and close the connection."""
