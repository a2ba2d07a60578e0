"""Messages in any order -> change rows up to a complete frontier, in stamp order. Pure: no Kafka, no Spark.

A batch of messages may end anywhere: in the middle of a commit, at different positions per topic. The inbox holds rows
back until a progress record, and all offsets that it names, have arrived: then nothing before its frontier is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from applier.ingest.source_times import SourceTimes
from applier.trace.align import LSN
from applier.trace.stamped_rows import Chunk, Pending, Run, StampedRow
from shared_schema.change_row import Op
from shared_schema.checkpoints import CheckpointParts
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Capture, Checkpoint, ComparedRange, Offsets, Progress, ProgressRecord
from shared_schema.table_schema import TableId

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Rows of one partition that were deleted before they were read. The T row of a capture, at `until`, is the first
    row that counts."""

    at: TopicPartition
    table: TableId
    first: int
    """The first offset that exists."""
    until: Lsn


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows of one partition were deleted before they were read, and no capture replaces them."""

    at: TopicPartition
    table: TableId
    first: int
    """The first offset that exists."""
    problem: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row of a relation could not be decoded, or was deleted; its commit is at `since` or later."""

    table: TableId
    since: Lsn
    problem: str


@dataclass
class _Marks:
    """The offsets at which the rows of each commit begin in one partition, so that a restart can begin there.

    Both lists ascend: at or after an LSN there is no row before its offset.
    """

    lsns: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, lsn: int, offset: int) -> None:
        """Note a row. The rows of a micro-batch need not come in the order of their offsets."""
        place = len(self.lsns)
        if not self.lsns or lsn > self.lsns[-1]:
            self.lsns.append(lsn)
            self.offsets.append(offset)
        elif offset >= self.offsets[-1]:
            return
        else:
            place = bisect_left(self.lsns, lsn)
            if self.lsns[place] != lsn:
                self.lsns.insert(place, lsn)
                self.offsets.insert(place, min(offset, self.offsets[place]))
        for earlier in range(place, -1, -1):
            if self.offsets[earlier] < offset:
                return
            self.offsets[earlier] = offset


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A progress record and the checkpoint that it continues: both must be read before its frontier counts."""

    progress: Progress
    parts: tuple[Checkpoint, ...]


class Inbox:
    """Holds the rows that have arrived and are not yet part of a trace."""

    def __init__(
        self,
        frontier: Lsn = ORIGIN,
        positions: Offsets | None = None,
        times: SourceTimes | None = None,
        *,
        sources_elsewhere: bool = False,
    ) -> None:
        self._sources_elsewhere = sources_elsewhere
        """Whether only the writer of the topics sees the catalog of the sources: then frontiers wait for its word."""
        self._compared: dict[Lsn, ComparedRange] = {}
        """The frontiers that the writer compared: for each beginning the longest range, as far as it is still ahead."""
        self._last_compared: ComparedRange | None = None
        self._compared_server: tuple[str, int, Lsn] | None = None
        """The server, its timeline and the slot to which the positions of these ranges belong."""
        self.times = times or SourceTimes()
        """The times of the sources' server at the frontiers that were reached."""
        self.frontier = frontier
        """Everything before it has arrived."""
        self.captures: dict[TableId, Capture] = {}
        self.progress: Progress | None = None
        """The record of the frontier: which server and slot the topics were written from."""
        self._next: dict[TopicPartition, int] = {
            (topic, partition): offset
            for topic, partitions in (positions or {}).items()
            for partition, offset in partitions.items()
        }
        self._start = frontier
        self._waiting: deque[_Waiting] = deque()
        self._checkpoint = CheckpointParts()
        self._parts: tuple[Checkpoint, ...] = ()
        """The parts of the checkpoint to which the last progress record referred."""
        self._pending: dict[TableId, Pending] = defaultdict(Pending)
        self._marks: dict[TopicPartition, _Marks] = defaultdict(_Marks)
        self._record_partitions: set[TopicPartition] = set()
        self.gaps: dict[TableId, Lsn] = {}
        """Relations of which rows were deleted before they were read: nothing is known of them between the frontier at
        that time and this position, which is that of a capture."""
        self._unreadable: dict[TableId, Unreadable] = {}
        self._bytes = 0
        self._awaited: dict[TopicPartition, TableId] = {}
        """Partitions in which the T row of that capture has not arrived yet."""

    def count_bytes(self, size: int) -> None:
        """Note the size of messages that are added."""
        self._bytes += size

    def has_room(self, most: int) -> bool:
        """Whether to add more. Not while rows of more than `most` bytes came and some of them can be taken.

        The rows of an unfinished commit do not count: only with more of them it ends.
        """
        return self._bytes <= most or self.advance() <= self._start

    def add_unreadable(self, at: TopicPartition, offset: int, table: TableId, problem: str) -> None:
        """Note a message that cannot be decoded: of its relation nothing is known from its commit on.

        That commit is not before the frontier, nor before any row that precedes the message in its partition.
        """
        self.mark_read(at, offset)
        known = self._unreadable.get(table)
        if known is not None and known.since <= self.frontier:
            return
        marks = self._marks[at]
        # Both ascend.
        place = bisect_left(marks.offsets, offset)
        since = max(self.frontier, Lsn(marks.lsns[place - 1] if place else 0))
        if known is None or since < known.since:
            self._unreadable[table] = Unreadable(table, since, problem)

    def unreadable(self) -> list[Unreadable]:
        """Return the relations of which a message could not be decoded."""
        return list(self._unreadable.values())

    def forget_unreadable(self, noted: Unreadable) -> None:
        """Forget one that its trace knows."""
        if self._unreadable.get(noted.table) == noted:
            del self._unreadable[noted.table]

    def skip(self, skipped: Skipped) -> None:
        """Note that rows of a partition are lost; it is read from its first offset, and counts from its capture on."""
        self._next[skipped.at] = max(self._next.get(skipped.at, 0), skipped.first)
        self.gaps[skipped.table] = max(self.gaps.get(skipped.table, ORIGIN), skipped.until)
        self._awaited[skipped.at] = skipped.table

    def lose(self, lost: Lost) -> None:
        """Note that rows of a partition are lost: of its relation nothing is known from the frontier on."""
        self._next[lost.at] = max(self._next.get(lost.at, 0), lost.first)
        self._unreadable[lost.table] = Unreadable(lost.table, self.frontier, lost.problem)

    def add_row(self, at: TopicPartition, offset: int, stamped: StampedRow) -> None:
        """Add a change row. One before the start is already in its trace and is dropped; a repeated one counts once."""
        self.mark_read(at, offset)
        stamp = stamped.row.stamp
        self._marks[at].add(stamp.lsn.value, offset)
        table = stamped.schema.table
        if stamp.lsn >= max(self._start, self.gaps.get(table, ORIGIN)):
            self._pending[table].add(stamped)
            is_truncate = stamped.row.op is Op.TRUNCATE and stamped.row.values is None
            if is_truncate and stamp.lsn == self.gaps.get(table):
                self._awaited.pop(at, None)

    def add_chunk(self, at: TopicPartition, offsets: np.ndarray, chunk: Chunk) -> None:
        """Add many rows of one partition, in its order; `offsets` are theirs."""
        self.mark_read(at, int(offsets[-1]))
        lsns = chunk.rows[LSN].to_numpy()
        highest = np.maximum.accumulate(lsns)
        for place in [0, *(np.flatnonzero(highest[1:] > highest[:-1]) + 1)]:
            self._marks[at].add(int(lsns[place]), int(offsets[place]))
        table = chunk.schema.table
        self._pending[table].add_chunk(chunk, max(self._start, self.gaps.get(table, ORIGIN)))

    def add_record(self, at: TopicPartition, offset: int, record: ProgressRecord) -> None:
        """Add a record of the progress topic.

        A progress record whose checkpoint compaction has removed is dropped: the topic has a newer one.
        """
        self.mark_read(at, offset)
        self._record_partitions.add(at)
        if isinstance(record, Progress):
            self._note_compared(record)
        match record:
            case Progress(checkpoint=None):
                self._waiting.append(_Waiting(record, ()))
            case Progress(checkpoint=place):
                if place is not None and (parts := self._checkpoint.find(place)) is not None:
                    self._waiting.append(_Waiting(record, parts))
            case Capture():
                self.captures[record.table] = record
            case Checkpoint():
                self._checkpoint.add(record)
                self.captures |= {capture.table: capture for capture in record.captures}
            case _:
                assert_never(record)

    def mark_read(self, at: TopicPartition, offset: int) -> None:
        """Note that a message with this offset has arrived."""
        self._next[at] = max(self._next.get(at, 0), offset + 1)

    def advance(self) -> Lsn:
        """Apply every progress record whose offsets have all arrived; return the new frontier."""
        while self._waiting and self._is_complete(self._waiting[0]):
            if self._waits_for_comparison(self._waiting[0].progress):
                break
            progress = self._waiting.popleft().progress
            frontier = progress.frontier
            if not self._is_compared(progress) or any(
                self.frontier < frontier <= until for until in self.gaps.values()
            ):
                continue
            self._give_up_captures()
            if frontier >= self.frontier:
                self.progress = progress
            self.frontier = max(self.frontier, frontier)
            self.times.add(progress)
        if len(self._compared) > 1:
            self._compared = {since: r for since, r in self._compared.items() if r.until > self.frontier}
        return self.frontier

    def _give_up_captures(self) -> None:
        """Note the captures whose beginning has not arrived, although everything up to them was read."""
        for (topic, _), table in self._awaited.items():
            problem = f"a copy on topic {topic} was deleted before all of it was read"
            self._unreadable[table] = Unreadable(table, self.gaps[table], problem)
        self._awaited.clear()

    def _note_compared(self, record: Progress) -> None:
        if (server := _history_of(record)) != self._compared_server:
            # Positions of another history mean something else.
            self._compared.clear()
        self._compared_server, self._last_compared = server, record.compared
        if record.compared is not None:
            self._compared[record.compared.since] = record.compared

    def _is_compared(self, progress: Progress) -> bool:
        """Whether a frontier may be shown. Of one whose writer does not compare nobody can say more."""
        if not self._sources_elsewhere or progress.compared is None or progress.frontier <= self._start:
            return True
        is_present = _history_of(progress) == self._compared_server
        return is_present and any(compared.includes(progress.frontier) for compared in self._compared.values())

    def _waits_for_comparison(self, progress: Progress) -> bool:
        """Whether a later record may still say that a frontier may be shown: not when another slot, another history or
        a writer that does not compare came after it. Then a frontier of theirs is the next that counts."""
        last = self._last_compared
        if last is None or _history_of(progress) != self._compared_server:
            return False
        return progress.frontier > last.until and not self._is_compared(progress)

    def _is_complete(self, waiting: _Waiting) -> bool:
        if waiting.progress.frontier <= self._start:
            return True
        if not self._has_read(waiting.progress.end_offsets):
            return False
        if self._parts is not waiting.parts and all(self._has_read(part.end_offsets) for part in waiting.parts):
            # What was read once stays read, so later records of the same checkpoint need not look at it again.
            self._parts = waiting.parts
        return self._parts is waiting.parts

    def _has_read(self, ends: Offsets) -> bool:
        return all(
            self._next.get((topic, partition), 0) >= end
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        )

    def take(self, until: Lsn) -> dict[TableId, list[Run]]:
        """Remove and return the rows before `until`, which the frontier has reached, per relation, in stamp order."""
        runs_by_table = {table: pending.take(until) for table, pending in self._pending.items()}
        self._start = max(self._start, until)
        self._bytes = 0
        return {table: runs for table, runs in runs_by_table.items() if runs}

    def positions(self) -> Offsets:
        """Return per partition the offset to read next."""
        offsets: Offsets = defaultdict(dict)
        for (topic, partition), offset in self._next.items():
            offsets[topic][partition] = offset
        return dict(offsets)

    def restart_offsets(self, frontier: Lsn) -> Offsets:
        """Return per partition the offset from which everything at or after `frontier` can be read again.

        Not for progress records: a restart reads them from a checkpoint on, because a capture record may be older than
        the frontier.
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


def _history_of(progress: Progress) -> tuple[str, int, Lsn]:
    return progress.system_id, progress.timeline, progress.slot_lsn
