"""One delta on its way to its topic: what was sent of it, and with which stamps.

A long delta takes several Kafka transactions. After each of them the progress record has a `part`: rows with ordinals
below it are on the topic, and do not count before the frontier passes them. The same delta is continued there after a
failure of the broker; another process computes another delta and begins again with a TRUNCATE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta
from applier.sinks.kafka.change_rows import last_position
from applier.sinks.kafka.delta_rows import delta_change_rows
from shared_schema.change_row import ChangeRow
from shared_schema.lsn import LsnRange
from shared_schema.progress import CommitPart


@dataclass(frozen=True, slots=True)
class Numbering:
    """How the change rows of a delta are numbered; the same whenever it is continued."""

    lsn_range: LsnRange
    number: int
    """The number of the delta."""
    empty_first: bool
    """Whether it begins with a TRUNCATE: the topic holds earlier rows, which are none of this stream table's."""
    first_seq: int
    """The ordinal of its first row: rows of an attempt that was given up may have the same LSN."""


@dataclass(slots=True)
class Publication:
    """A delta that is being published; `sent` of its change rows are sent."""

    table: StreamTable
    delta: Delta
    numbering: Numbering
    sent: int = 0

    def rows(self) -> Iterator[ChangeRow]:
        """Yield the change rows that are not sent yet, in the same order whenever it is called."""
        numbering = self.numbering
        rows = delta_change_rows(
            self.table,
            self.delta,
            number=numbering.number,
            empty_first=numbering.empty_first,
            first_seq=numbering.first_seq,
        )
        return islice(rows, self.sent, None)

    @property
    def part(self) -> CommitPart:
        """What a progress record says of the rows that are sent."""
        return CommitPart(last_position(self.delta.lsn_range), self.numbering.first_seq + self.sent, ())
