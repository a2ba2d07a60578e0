"""What the relay asks of the place where change rows go. It does not know whether that is Kafka or PostgreSQL.

One transaction of the sink is open from the first row until `publish`, which makes rows, captures and progress visible
together or not at all. Nothing blocks for more than about a second without calling the `idle` it was opened with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cdc_consumer.change_rows.generate import EncodedRow, EncodedUpdate
from cdc_consumer.change_rows.split import TableReader
from cdc_consumer.pgoutput.messages import Begin
from shared_schema.change_row import ChangeRow
from shared_schema.control import ControlRecord
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableId, TableSchema


@dataclass(frozen=True)
class StoredState:
    """The last committed progress of a slot and the tables captured under it.

    Captures without a progress record are void: whatever wrote them never got as far as publishing a frontier.
    """

    progress: Progress | None = None
    captures: dict[TableId, Capture] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()
    """Keys of every record of the slot, void ones too."""


Write = Callable[[bytes | None, bytes], None]
"""Takes an encoded row: key and value."""


class RowEncoder(Protocol):
    """Row messages of one relation in one transaction -> what `RowWriter.write` takes."""

    def inserts(self, frames: list[bytes], first: int, at: int, ordinal: int) -> list[EncodedRow]:
        """INSERTs of the relation that follow each other from frame `first` on, messages beginning `at` -> their rows.

        As many as it likes to take at once; none says nothing about the first.
        """

    def encode(self, frame: bytes, at: int, ordinal: int) -> EncodedRow | EncodedUpdate:
        """The row message that begins at `at` -> key and value of each row; an odd row raises one of ODD."""


class RowCopier(Protocol):
    """Lines of a table's COPY -> what `RowWriter.write` takes."""

    def encode(self, line: bytes, seq: int) -> EncodedRow:
        """A line with its end, and its number among the snapshot's rows."""


class RowWriter(Protocol):
    """The way of one schema version's rows into the open transaction."""

    @property
    def write(self) -> Write:
        """Add an encoded row, opening a transaction if needed; an attribute because it is called for every row."""

    def write_all(self, rows: list[EncodedRow]) -> None:
        """Add several."""

    def redirect(self, write: Write) -> RowWriter:
        """The same rows, encoded the same way, but given to `write`; they may come to `write_all` here later."""

    def encoder(self, reader: TableReader, begin: Begin) -> RowEncoder:
        """For the rows of one transaction."""

    def copier(self, at: Lsn, now_us: int) -> RowCopier:
        """For rows of a snapshot, stamped `at`."""

    def append(self, row: ChangeRow) -> None:
        """Add a row that no encoder took."""

    def empty(self, row: ChangeRow) -> None:
        """Add the T row before a new copy, where every reader of what is here meets it."""

    def used(self) -> bool:
        """Whether rows were ever written here; asked before the first row goes there."""


class Sink(Protocol):
    """Where one slot's change rows go."""

    def row_writer(self, schema: TableSchema) -> RowWriter:
        """The place of a schema version, made if missing; its schema is known to readers when this returns."""

    @property
    def transaction_limit_s(self) -> float | None:
        """How long one transaction may last, None when that does not matter."""

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever published here, so that no reader believes to know a table already."""

    def remember(self, progress: Progress) -> None:
        """Take over what the last progress record says of the sink: every later one names all partitions."""

    def control(self, record: ControlRecord) -> None:
        """Add a control record to the open transaction."""

    def schema(self, fingerprint: str) -> TableSchema | None:
        """A schema version an earlier instance wrote with, None when it is not to be found."""

    def publish(self, progress: Callable[[Offsets], Progress] | None, captures: tuple[Capture, ...] = ()) -> None:
        """End the transaction with its captures and its progress; returns when it is durable.

        Without progress its rows count for readers only once a later transaction has some.
        """

    def erase(self, keys: list[bytes]) -> None:
        """Forget progress and captures by their keys."""

    def abort(self) -> None:
        """Undo what the open transaction holds."""

    def poll(self) -> None:
        """Take in what the sink reports by itself."""

    def close(self) -> None:
        """Give up what is open and let go of the connection."""
