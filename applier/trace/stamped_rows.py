"""Change rows of one relation in any order, single or in Arrow chunks -> the same rows once, in stamp order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.trace.align import LSN, SEQ
from shared_schema.change_row import ChangeRow, Stamp
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class StampedRow:
    """A change row and the schema version with which it was written."""

    row: ChangeRow
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Chunk:
    """Change rows with complete images, written with one schema version: its columns c0…, then weight and stamp."""

    rows: pa.Table
    schema: TableSchema

    def __len__(self) -> int:
        return int(self.rows.num_rows)


Run: TypeAlias = list[StampedRow] | Chunk
"""Rows of one relation in stamp order."""

_Place = tuple[int, int]


class Pending:
    """The rows of one relation that are not in its trace yet."""

    def __init__(self) -> None:
        self._rows: dict[Stamp, StampedRow] = {}
        self._chunks: dict[TableSchema, list[pa.Table]] = {}

    def add(self, stamped: StampedRow) -> None:
        """Add a row; a repeated one counts once."""
        self._rows.setdefault(stamped.row.stamp, stamped)

    def add_chunk(self, chunk: Chunk, since: Lsn) -> None:
        """Add many rows in any order; those before `since` are in the trace already, and are dropped."""
        rows = chunk.rows
        if rows.num_rows and pc.min(rows[LSN]).as_py() < since.value:
            # Only then: the result is a copy in memory.
            rows = rows.filter(pc.greater_equal(rows[LSN], since.value))
        if rows.num_rows:
            self._chunks.setdefault(chunk.schema, []).append(rows)

    def take(self, frontier: Lsn) -> list[Run]:
        """Remove and return the rows before the frontier."""
        stamps = sorted(stamp for stamp in self._rows if stamp.lsn < frontier)
        runs: list[Run] = [[self._rows.pop(stamp) for stamp in stamps]]
        for schema, tables in list(self._chunks.items()):
            if min(pc.min(table[LSN]).as_py() for table in tables) >= frontier.value:
                continue
            whole = _sort_by_stamp(tables)
            count = int(np.searchsorted(_to_numpy(whole, LSN), frontier.value))
            runs.append(Chunk(whole.slice(0, count), schema))
            self._chunks[schema] = [whole.slice(count)]
            if count == whole.num_rows:
                del self._chunks[schema]
        return interleave(runs)


def interleave(runs: Sequence[Run]) -> list[Run]:
    """Return the same rows, each once, in runs of which every one ends before the next begins."""
    out: list[Run] = []
    left = [run for run in runs if len(run)]
    while left:
        left.sort(key=first_stamp)
        head, others = left[0], left[1:]
        if not others:
            return [*out, head]
        limit = first_stamp(others[0])
        if first_stamp(head) == limit:
            others[0] = _slice_run(others[0], 1, len(others[0]))
            left = [head, *(run for run in others if len(run))]
            continue
        end = _count_before(head, limit)
        out.append(_slice_run(head, 0, end))
        left = [*([_slice_run(head, end, len(head))] if end < len(head) else []), *others]
    return out


def first_stamp(run: Run) -> _Place:
    """Return LSN and sequence number of the first row."""
    match run:
        case Chunk():
            return run.rows[LSN][0].as_py(), run.rows[SEQ][0].as_py()
        case list():
            return run[0].row.stamp.lsn.value, run[0].row.stamp.seq
        case _:
            assert_never(run)


def _count_before(run: Run, place: _Place) -> int:
    match run:
        case Chunk():
            lsns, seqs = _to_numpy(run.rows, LSN), _to_numpy(run.rows, SEQ)
            first, last = (int(np.searchsorted(lsns, place[0], side=side)) for side in ("left", "right"))
            return first + int(np.searchsorted(seqs[first:last], place[1]))
        case list():
            return sum((one.row.stamp.lsn.value, one.row.stamp.seq) < place for one in run)
        case _:
            assert_never(run)


def _slice_run(run: Run, begin: int, end: int) -> Run:
    match run:
        case Chunk():
            return replace(run, rows=run.rows.slice(begin, end - begin))
        case list():
            return run[begin:end]
        case _:
            assert_never(run)


def _sort_by_stamp(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one table in stamp order, each stamp once."""
    rows = pa.concat_tables(tables)
    if not np.all(_is_later(rows)):
        rows = rows.sort_by([(LSN, "ascending"), (SEQ, "ascending")])
        rows = rows.filter(pa.array(_is_later(rows)))
    return rows


def _is_later(rows: pa.Table) -> np.ndarray:
    """Return for each row whether its stamp is later than that of the previous row."""
    lsns, seqs = _to_numpy(rows, LSN), _to_numpy(rows, SEQ)
    is_later = (lsns[1:] > lsns[:-1]) | ((lsns[1:] == lsns[:-1]) & (seqs[1:] > seqs[:-1]))
    return np.concatenate([np.ones(min(1, len(lsns)), bool), is_later])


def _to_numpy(rows: pa.Table, column: str) -> np.ndarray:
    numbers: np.ndarray = rows[column].to_numpy()
    return numbers
