"""Messages in any order -> change rows up to a complete frontier, in stamp order. Pure: no Kafka, no Spark.

A batch of messages may end anywhere: in the middle of a commit, at different positions per topic. The inbox holds rows
back until a progress record, and all offsets that it names, have arrived: then nothing before its frontier is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from applier.errors import StreamLost
from applier.trace.align import LSN
from applier.trace.stamped_rows import Chunk, Pending, Run, StampedRow
from shared_schema.change_row import Op
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import TableId

TopicPartition = tuple[str, int]

COPY_AGAIN = "copy the tables again: stop pg-trickle-cdc, run `pg-trickle-cdc drop-slot`, start it, start the applier"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Rows of one partition that were deleted before they were read. The T row of a capture, at `until`, is the first
    row that counts."""

    at: TopicPartition
    table: TableId
    first: int
    """The first offset that exists."""
    until: Lsn


@dataclass
class _Marks:
    """The offsets at which the rows of each commit begin in one partition, so that a restart can begin there."""

    lsns: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, lsn: int, offset: int) -> None:
        if not self.lsns or lsn > self.lsns[-1]:
            self.lsns.append(lsn)
            self.offsets.append(offset)


class Inbox:
    """Holds the rows that have arrived and are not yet part of a trace."""

    def __init__(self, frontier: Lsn = ORIGIN, positions: Offsets | None = None) -> None:
        self.frontier = frontier
        """Everything before it has arrived."""
        self.captures: dict[TableId, Capture] = {}
        self._next: dict[TopicPartition, int] = {
            (topic, partition): offset
            for topic, partitions in (positions or {}).items()
            for partition, offset in partitions.items()
        }
        self._start = frontier
        self._waiting: deque[Progress] = deque()
        self._pending: dict[TableId, Pending] = defaultdict(Pending)
        self._marks: dict[TopicPartition, _Marks] = defaultdict(_Marks)
        self._record_partitions: set[TopicPartition] = set()
        self.gaps: dict[TableId, Lsn] = {}
        """Relations of which rows were deleted before they were read: nothing is known of them between the frontier at
        that time and this position, which is that of a capture."""
        self._awaited: set[TopicPartition] = set()
        """Partitions in which the T row of that capture has not arrived yet."""

    def skip(self, skipped: Skipped) -> None:
        """Note that rows of a partition are lost; it is read from its first offset, and counts from its capture on."""
        self._next[skipped.at] = max(self._next.get(skipped.at, 0), skipped.first)
        self.gaps[skipped.table] = max(self.gaps.get(skipped.table, ORIGIN), skipped.until)
        self._awaited.add(skipped.at)

    def add_row(self, at: TopicPartition, offset: int, stamped: StampedRow) -> None:
        """Add a change row. One before the start is already in its trace and is dropped; a repeated one counts once."""
        self.mark_read(at, offset)
        stamp = stamped.row.stamp
        self._marks[at].add(stamp.lsn.value, offset)
        table = stamped.schema.table
        if stamp.lsn >= max(self._start, self.gaps.get(table, ORIGIN)):
            self._pending[table].add(stamped)
            if stamped.row.op is Op.TRUNCATE and stamp.lsn == self.gaps.get(table):
                self._awaited.discard(at)

    def add_chunk(self, at: TopicPartition, offsets: np.ndarray, chunk: Chunk) -> None:
        """Add many rows of one partition, in its order; `offsets` are theirs."""
        self.mark_read(at, int(offsets[-1]))
        lsns = chunk.rows[LSN].to_numpy()
        highest = np.maximum.accumulate(lsns)
        for place in [0, *(np.flatnonzero(highest[1:] > highest[:-1]) + 1)]:
            self._marks[at].add(int(lsns[place]), int(offsets[place]))
        table = chunk.schema.table
        self._pending[table].add_chunk(chunk, max(self._start, self.gaps.get(table, ORIGIN)))

    def add_record(self, at: TopicPartition, offset: int, record: Progress | Capture) -> None:
        """Add a progress or capture record."""
        self.mark_read(at, offset)
        self._record_partitions.add(at)
        match record:
            case Progress():
                self._waiting.append(record)
            case Capture():
                self.captures[record.table] = record

    def mark_read(self, at: TopicPartition, offset: int) -> None:
        """Note that a message with this offset has arrived."""
        self._next[at] = max(self._next.get(at, 0), offset + 1)

    def advance(self) -> Lsn:
        """Apply every progress record whose offsets have all arrived; return the new frontier."""
        while self._waiting and self._is_complete(self._waiting[0]):
            frontier = self._waiting.popleft().frontier
            if any(self.frontier < frontier <= until for until in self.gaps.values()):
                continue
            if self._awaited:
                topics = ", ".join(sorted({topic for topic, _ in self._awaited}))
                raise StreamLost(f"a copy on {topics} was deleted before all of it was read", hint=COPY_AGAIN)
            self.frontier = max(self.frontier, frontier)
        return self.frontier

    def _is_complete(self, progress: Progress) -> bool:
        return progress.frontier <= self._start or all(
            self._next.get((topic, partition), 0) >= end
            for topic, partitions in progress.end_offsets.items()
            for partition, end in partitions.items()
        )

    def take(self) -> dict[TableId, list[Run]]:
        """Remove and return the rows before the frontier, per relation, in stamp order."""
        runs_by_table = {table: pending.take(self.frontier) for table, pending in self._pending.items()}
        self._start = max(self._start, self.frontier)
        return {table: runs for table, runs in runs_by_table.items() if runs}

    def positions(self) -> Offsets:
        """Return per partition the offset to read next."""
        offsets: Offsets = defaultdict(dict)
        for (topic, partition), offset in self._next.items():
            offsets[topic][partition] = offset
        return dict(offsets)

    def restart_offsets(self, frontier: Lsn) -> Offsets:
        """Return per partition the offset from which everything at or after `frontier` can be read again.

        Not for progress records: a restart reads that small, compacted topic from its beginning, because a capture
        record in it may be older than the frontier.
        """
        offsets: Offsets = defaultdict(dict)
        for at, position in self._next.items():
            if at in self._record_partitions:
                continue
            marks = self._marks[at]
            place = bisect_left(marks.lsns, frontier.value)
            offsets[at[0]][at[1]] = marks.offsets[place] if place < len(marks.offsets) else position
            # Earlier marks are never needed again: checkpoints only move forward.
            del marks.lsns[:place], marks.offsets[:place]
        return dict(offsets)
