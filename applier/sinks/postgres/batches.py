"""The net rows of a delta in; batches, written into the table by COPY, by key or by counting copies, out.

Deletions come before updates, updates before insertions, across all batches: a unique constraint of the user sees a
value again only after the row that had it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from applier.errors import TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.net_delta import ACT, DELETE, INSERT, row_actions
from applier.sinks.postgres import copy_text, merge_sql
from applier.zset import WEIGHT, copies_of

Cursor = psycopg.Cursor[tuple[object, ...]]


@dataclass(frozen=True)
class Batch:
    """Some rows, and their text for COPY."""

    rows: pa.Table
    text: bytes
    first: bool = True
    """Whether it is the first of its transaction: the batch table is still empty."""


class ApplyMethod(Protocol):
    """How batches are written into the table."""

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a net delta in the form and order in which they are written."""

    def prepare(self, cursor: Cursor) -> None:
        """Prepare the session, once per transaction, before the first batch."""

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """Write one batch; return how many rows were inserted and deleted."""


def cut_batches(rows: pa.Table, size: int) -> Iterator[Batch]:
    """Cut rows into batches of at most `size` rows."""
    for start in range(0, rows.num_rows, size):
        some = rows.slice(start, size)
        yield Batch(some, copy_text.encode_csv(some), first=not start)


def _copy(cursor: Cursor, statement: sql.Composed, text: bytes) -> None:
    with cursor.copy(statement) as copy:
        copy.write(text)


@dataclass(frozen=True)
class Fill:
    """COPY directly into the table: the delta only inserts."""

    table: StreamTable

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Repeat each row as often as its weight says."""
        return copies_of(rows, len(self.table.columns))

    def prepare(self, cursor: Cursor) -> None:
        """Nothing to prepare."""

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY the batch."""
        _copy(cursor, merge_sql.copy_target(self.table), batch.text)
        return batch.rows.num_rows, 0


@dataclass(frozen=True)
class ByKey:
    """MERGE by key: at most one action per key."""

    table: StreamTable
    key: tuple[int, ...]
    statements: list[sql.Composed]

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Return one row per key with its action."""
        actions = row_actions(rows, self.key)
        return actions.append_column("n", pa.nulls(actions.num_rows, pa.int64()))

    def prepare(self, cursor: Cursor) -> None:
        """Create the batch table of the session."""
        cursor.execute(merge_sql.create_batch_table(self.table))

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY the batch, then MERGE it."""
        _merge(cursor, self.table, batch, self.statements, batch.rows.num_rows)
        actions = batch.rows[ACT]
        inserted, deleted = (pc.sum(pc.not_equal(actions, action)).as_py() or 0 for action in (DELETE, INSERT))
        return inserted, deleted


@dataclass(frozen=True)
class ByCount:
    """Insert and delete copies by count: rows without a key may repeat."""

    table: StreamTable
    statements: list[sql.Composed]

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Return the deletions, then the insertions, each with its count."""
        weights = rows[WEIGHT]
        ordered = [rows.filter(pc.less(weights, 0)), rows.filter(pc.greater(weights, 0))]
        arranged = pa.concat_tables(ordered)
        values, counts = arranged.drop_columns([WEIGHT]), arranged[WEIGHT]
        return values.append_column(ACT, pa.nulls(arranged.num_rows, pa.string())).append_column("n", counts)

    def prepare(self, cursor: Cursor) -> None:
        """Create the batch table of the session."""
        cursor.execute(merge_sql.create_batch_table(self.table))

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY the batch, then DELETE as many copies as it says, then INSERT."""
        counts = batch.rows["n"]
        inserted = pc.sum(counts.filter(pc.greater(counts, 0))).as_py() or 0
        deleted = -(pc.sum(counts.filter(pc.less(counts, 0))).as_py() or 0)
        _merge(cursor, self.table, batch, self.statements, inserted + deleted)
        return inserted, deleted


def _merge(cursor: Cursor, table: StreamTable, batch: Batch, statements: list[sql.Composed], expected: int) -> None:
    if not batch.first:
        # Not DELETE: each batch would read the dead rows of all batches before it.
        cursor.execute(sql.SQL("TRUNCATE {}").format(merge_sql.batch_table(table)))
    _copy(cursor, merge_sql.copy_batch(table), batch.text)
    affected = 0
    for statement in statements:
        cursor.execute(statement)
        affected += cursor.rowcount
    if affected != expected:
        raise divergence_error(table, expected, affected)


def divergence_error(table: StreamTable, expected: int, found: int) -> TargetDiverged:
    """Return the error for a table that does not hold the rows it should."""
    return TargetDiverged(
        f"{table} did not hold the rows that should change: {expected} expected, {found} found",
        hint="another program wrote to it: SELECT pgtrickle.reinitialize_stream_table(name) puts its rows right",
    )
