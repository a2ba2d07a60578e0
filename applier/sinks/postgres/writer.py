"""A delta in; its rows in the stream table, by COPY or by MERGE, in the caller's transaction, out."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import psycopg
from psycopg import sql

from applier.errors import TargetDiverged
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.postgres import merge_sql
from applier.sinks.postgres.batches import ApplyMethod, ByCount, ByKey, Fill, cut_batches
from applier.sinks.postgres.merge_parts import merge_parts
from applier.sinks.postgres.prefetch import prefetch
from applier.sinks.postgres.rejected_row import find_rejected_row
from applier.sinks.postgres.transaction import Cursor, WriteSession
from applier.sinks.staging.staged_delta import StagedPart

Counts = tuple[int, int]
"""How many rows were inserted, and how many deleted."""


class TargetWriter:
    """Writes the rows of deltas; `batch_size` returns the rows per COPY + MERGE at present."""

    def __init__(self, session: WriteSession, batch_size: Callable[[], int]) -> None:
        self._session = session
        self.batch_size = batch_size
        self._types: dict[int, tuple[frozenset[int], frozenset[int]]] = {}

    def write(self, cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: ComputedDelta) -> Counts:
        """Write the delta in batches, or part by part where it is staged."""
        match delta:
            case StagedDelta():
                return self.merge_staged(cursor, table, delta)
            case MemoryDelta():
                return self._write_batches(cursor, table, method, delta)
            case _:
                assert_never(delta)

    def _write_batches(self, cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: MemoryDelta) -> Counts:
        if delta.is_fill and isinstance(method, Fill):
            self.check_empty(cursor, table)
        rows, size = method.arrange(delta.rows), self.batch_size()
        if rows.num_rows:
            method.prepare(cursor)
        batches = cut_batches(rows, size)
        inserted = deleted = 0
        for batch in prefetch(batches) if rows.num_rows > size else batches:
            more, less = method.write(cursor, batch)
            inserted, deleted = inserted + more, deleted + less
        return inserted, deleted

    def merge_staged(self, cursor: Cursor, table: StreamTable, delta: StagedDelta) -> Counts:
        """Merge a staged delta part by part."""
        if delta.is_fill:
            self.check_empty(cursor, table)
        url = self._session.database.url
        return merge_parts(cursor, table, delta, url, lambda part: self._phases(cursor, table, delta, part))

    def _phases(self, cursor: Cursor, table: StreamTable, delta: StagedDelta, part: StagedPart) -> merge_sql.Phases:
        if delta.is_fill:
            return merge_sql.fill_part(table, part.table)
        if table.key is None:
            return merge_sql.keyless_part(table, *self._comparable_columns(cursor, table), part.table)
        return merge_sql.keyed_part(table, table.key, table.not_null, part.table)

    def method_for(self, cursor: Cursor, table: StreamTable, delta: ComputedDelta) -> ApplyMethod:
        """Return COPY for a delta that only inserts, else MERGE."""
        only_inserts = delta.is_fill or (isinstance(delta, MemoryDelta) and delta.appended)
        return Fill(table) if only_inserts else self.merge_method(cursor, table)

    def merge_method(self, cursor: Cursor, table: StreamTable) -> ApplyMethod:
        """Return MERGE by key, or by counting copies where there is no key."""
        if table.key is None:
            return ByCount(table, merge_sql.keyless_statements(table, *self._comparable_columns(cursor, table)))
        statements = merge_sql.keyed_statements(table, table.key, table.not_null, self._session.server_version)
        return ByKey(table, table.key, statements)

    @staticmethod
    def check_empty(cursor: Cursor, table: StreamTable) -> None:
        """Raise TargetDiverged when the table holds rows before it is filled."""
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(merge_sql.target(table)))
        if cursor.fetchone() == (True,):
            raise TargetDiverged(f"{table} already holds rows", hint="a stream table must be empty before it is filled")

    def _comparable_columns(self, cursor: Cursor, table: StreamTable) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ordinals of the columns whose type has an equality, and of those whose type has a hash."""
        if table.id not in self._types:
            cursor.execute(merge_sql.COMPARABLE, ([column.type.oid for column in table.columns],))
            found = [(int(str(oid)), method) for oid, method in cursor.fetchall()]
            self._types[table.id] = tuple(  # type: ignore[assignment]
                frozenset(i for i, c in enumerate(table.columns) if (c.type.oid, method) in found)
                for method in ("btree", "hash")
            )
        return self._types[table.id]

    def find_rejected(self, table: StreamTable, delta: Callable[[Cursor], ComputedDelta]) -> str | None:
        """Write the delta once more, until the row is found that PostgreSQL rejects, and roll that back.

        `delta` returns the rows to write; it may find them again in the transaction.
        """
        connection = self._session.connection
        try:
            with connection.transaction(force_rollback=True), connection.cursor() as cursor:
                again = delta(cursor)
                method = self.method_for(cursor, table, again)
                return find_rejected_row(cursor, table, method, again, self.batch_size())
        except psycopg.Error:
            return None
