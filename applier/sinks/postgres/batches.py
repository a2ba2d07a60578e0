"""A delta cut into batches, and how one of them gets into the table: straight (a fill), by key, or by counting copies.

Deletions come before updates, updates before insertions, across all batches: a unique constraint of the user's meets a
value only after the row that had it is gone.
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
    """Some rows, and the same as COPY takes them."""

    rows: pa.Table
    text: bytes
    first: bool = True
    """Of its transaction: no batch lies in the session's table yet."""


class ApplyMethod(Protocol):
    """One way into the table."""

    def arrange(self, rows: pa.Table) -> pa.Table:
        """A net delta -> the rows as they are to be written, in their order."""

    def prepare(self, cursor: Cursor) -> None:
        """Once per transaction, before the first batch."""

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """One batch; return how many rows came and how many left."""


def cut_batches(rows: pa.Table, size: int) -> Iterator[Batch]:
    """Batches of at most `size` rows."""
    for start in range(0, rows.num_rows, size):
        some = rows.slice(start, size)
        yield Batch(some, copy_text.encode_csv(some), first=not start)


def _copy(cursor: Cursor, statement: sql.Composed, text: bytes) -> None:
    with cursor.copy(statement) as copy:
        copy.write(text)


@dataclass(frozen=True)
class Fill:
    """Straight into the empty table."""

    table: StreamTable

    def arrange(self, rows: pa.Table) -> pa.Table:
        """Each row as often as it is there."""
        return copies_of(rows, len(self.table.columns))

    def prepare(self, cursor: Cursor) -> None:
        """Nothing."""

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY."""
        _copy(cursor, merge_sql.copy_target(self.table), batch.text)
        return batch.rows.num_rows, 0


@dataclass(frozen=True)
class ByKey:
    """At most one action per key."""

    table: StreamTable
    key: tuple[int, ...]
    statements: list[sql.Composed]

    def arrange(self, rows: pa.Table) -> pa.Table:
        """With their actions."""
        acts = row_actions(rows, self.key)
        return acts.append_column("n", pa.nulls(acts.num_rows, pa.int64()))

    def prepare(self, cursor: Cursor) -> None:
        """The session's own table for batches."""
        cursor.execute(merge_sql.create_batch_table(self.table))

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY + MERGE."""
        _merge(cursor, self.table, batch, self.statements, batch.rows.num_rows)
        acts = batch.rows[ACT]
        came, left = (pc.sum(pc.not_equal(acts, act)).as_py() or 0 for act in (DELETE, INSERT))
        return came, left


@dataclass(frozen=True)
class ByCount:
    """Rows that may repeat: so many copies more, or less."""

    table: StreamTable
    statements: list[sql.Composed]

    def arrange(self, rows: pa.Table) -> pa.Table:
        """What leaves, then what comes."""
        weights = rows[WEIGHT]
        ordered = [rows.filter(pc.less(weights, 0)), rows.filter(pc.greater(weights, 0))]
        arranged = pa.concat_tables(ordered)
        values, counts = arranged.drop_columns([WEIGHT]), arranged[WEIGHT]
        return values.append_column(ACT, pa.nulls(arranged.num_rows, pa.string())).append_column("n", counts)

    def prepare(self, cursor: Cursor) -> None:
        """The session's own table for batches."""
        cursor.execute(merge_sql.create_batch_table(self.table))

    def write(self, cursor: Cursor, batch: Batch) -> tuple[int, int]:
        """COPY, then DELETE by pairing and INSERT."""
        counts = batch.rows["n"]
        came = pc.sum(counts.filter(pc.greater(counts, 0))).as_py() or 0
        left = -(pc.sum(counts.filter(pc.less(counts, 0))).as_py() or 0)
        _merge(cursor, self.table, batch, self.statements, came + left)
        return came, left


def _merge(cursor: Cursor, table: StreamTable, batch: Batch, statements: list[sql.Composed], expected: int) -> None:
    if not batch.first:
        # Not DELETE: the dead rows of a thousand batches would be read again by each.
        cursor.execute(sql.SQL("TRUNCATE {}").format(merge_sql.batch_table(table)))
    _copy(cursor, merge_sql.copy_batch(table), batch.text)
    affected = 0
    for statement in statements:
        cursor.execute(statement)
        affected += cursor.rowcount
    if affected != expected:
        raise target_diverged(table, expected, affected)


def target_diverged(table: StreamTable, expected: int, found: int) -> TargetDiverged:
    """What is said of a table that does not hold the rows it should."""
    return TargetDiverged(
        f"{table} did not hold the rows that should change: {expected} expected, {found} found",
        hint="it was written to by somebody else; drop it and create it again",
    )
