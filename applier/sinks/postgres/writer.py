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
from applier.sinks.postgres.equality import equality_operators
from applier.sinks.postgres.merge_parts import can_merge_in_any_order, merge_parts
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
        self._types: dict[tuple[int, int], tuple[frozenset[int], frozenset[int]]] = {}
        self._keys: dict[int, tuple[object, merge_sql.Key]] = {}
        """How the rows of each table are found, and for which definition of the table."""

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
        # All rows of a key are in one part, unless equal keys look different.
        any_order = can_merge_in_any_order(cursor, table, delta) and (
            delta.is_fill or not table.key or not self.key_of(cursor, table, table.key).ambiguous
        )
        return merge_parts(
            cursor, table, delta, url, lambda part: self._phases(cursor, table, delta, part), any_order=any_order
        )

    def _phases(self, cursor: Cursor, table: StreamTable, delta: StagedDelta, part: StagedPart) -> merge_sql.Phases:
        if delta.is_fill:
            return merge_sql.fill_part(table, part.table)
        if table.key is None:
            equal = equality_operators(cursor, table)
            return merge_sql.keyless_part(table, *self._comparable_columns(cursor, table), part.table, equal)
        return merge_sql.keyed_part(table, self.key_of(cursor, table, table.key), part.table)

    def method_for(self, cursor: Cursor, table: StreamTable, delta: ComputedDelta) -> ApplyMethod:
        """Return COPY for a delta that only inserts, else MERGE."""
        only_inserts = delta.is_fill or (isinstance(delta, MemoryDelta) and delta.appended)
        return Fill(table) if only_inserts else self.merge_method(cursor, table)

    def merge_method(self, cursor: Cursor, table: StreamTable) -> ApplyMethod:
        """Return MERGE by key, or by counting copies where there is no key."""
        if table.key is None:
            comparable, equal = self._comparable_columns(cursor, table), equality_operators(cursor, table)
            return ByCount(table, merge_sql.keyless_statements(table, *comparable, equal))
        statements = merge_sql.keyed_statements(
            table, self.key_of(cursor, table, table.key), self._session.server_version
        )
        return ByKey(table, table.key, statements)

    def key_of(self, cursor: Cursor, table: StreamTable, ordinals: tuple[int, ...]) -> merge_sql.Key:
        """Return how the rows of the table are found; PostgreSQL is asked once per definition."""
        definition = table.relid, table.columns, ordinals, table.not_null
        if self._keys.get(table.id, (None, None))[0] != definition:
            cursor.execute(merge_sql.LOOK_DIFFERENT, (table.relid, sorted(merge_sql.LOOK_AS_THEY_ARE)))
            names = {str(name) for (name,) in cursor.fetchall()}
            ambiguous = frozenset(i for i in ordinals if table.columns[i].name in names)
            key = merge_sql.Key(ordinals, equality_operators(cursor, table), table.not_null, ambiguous)
            self._keys[table.id] = definition, key
        return self._keys[table.id][1]

    @staticmethod
    def check_empty(cursor: Cursor, table: StreamTable) -> None:
        """Raise TargetDiverged when the table holds rows before it is filled."""
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(merge_sql.target(table)))
        if cursor.fetchone() == (True,):
            raise TargetDiverged(f"{table} already holds rows", hint="a stream table must be empty before it is filled")

    def _comparable_columns(self, cursor: Cursor, table: StreamTable) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ordinals of the columns whose type has an equality, and of those whose type has a hash."""
        known = table.id, len(table.columns)
        if known not in self._types:
            cursor.execute(merge_sql.COMPARABLE, ([column.type.oid for column in table.columns],))
            found = [(int(str(oid)), method) for oid, method in cursor.fetchall()]
            self._types[known] = tuple(  # type: ignore[assignment]
                frozenset(i for i, c in enumerate(table.columns) if (c.type.oid, method) in found)
                for method in ("btree", "hash")
            )
        return self._types[known]

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
