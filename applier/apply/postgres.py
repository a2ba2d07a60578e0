"""The PostgreSQL sink: a window's net delta and the stream table's frontier in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import psycopg
from psycopg import errors, sql

from applier.apply import merge_sql
from applier.apply.net_delta import Action, keyed_changes, row_tuples
from applier.database import Database
from applier.errors import Infrastructure, TargetDiverged, TargetError
from applier.plan.nodes import fields
from applier.registry import Refresh, move_frontier, record_refresh
from applier.stream_table import StreamTable, TableDelta

log = logging.getLogger(__name__)

Cursor = psycopg.Cursor[tuple[object, ...]]


def _batches(rows: Sequence[Any] | Iterator[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


class PostgresSink:
    """Writes stream tables back into PostgreSQL."""

    def __init__(self, database: Database, pipeline_batch_size: int) -> None:
        self._database = database
        self._batch_size = pipeline_batch_size
        self._comparable: dict[int, frozenset[int]] = {}

    @property
    def _server(self) -> int:
        return self._database.connection.info.server_version

    def apply(self, table: StreamTable, delta: TableDelta, as_of: datetime, reason: str) -> None:
        """Apply the delta once: the frontier must stand at its window's beginning and then stands at its end."""
        started = datetime.now(UTC)
        try:
            with self._database.connection.transaction(), self._database.connection.cursor() as cursor:
                inserted, deleted = self._write(cursor, table, delta)
                move_frontier(cursor, table.id, delta.window.old, delta.window.new, as_of)
                if inserted or deleted or delta.is_fill:
                    action = "INITIAL" if delta.is_fill else "DIFFERENTIAL"
                    record_refresh(
                        cursor, Refresh(table.id, started, action, reason, inserted, deleted, delta.window.new)
                    )
        except (psycopg.OperationalError, errors.SerializationFailure, errors.DeadlockDetected) as error:
            raise Infrastructure(f"writing {table} failed: {_first_line(error)}") from error
        except psycopg.Error as error:
            raise TargetError(
                f"PostgreSQL refused the rows of {table}: {_first_line(error)}",
                hint=error.diag.message_hint or "correct the table or its constraints, then drop and create it again",
            ) from error

    def _write(self, cursor: Cursor, table: StreamTable, delta: TableDelta) -> tuple[int, int]:
        if delta.is_fill:
            return self._fill(cursor, table, delta), 0
        if not delta.rows.num_rows:
            return 0, 0
        cursor.execute(merge_sql.create_batch_table(table))
        return self._keyed(cursor, table, delta) if table.key is not None else self._keyless(cursor, table, delta)

    def _fill(self, cursor: Cursor, table: StreamTable, delta: TableDelta) -> int:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(merge_sql.target(table)))
        if cursor.fetchone() == (True,):
            raise TargetDiverged(f"{table} already holds rows", hint="a stream table must be empty before it is filled")
        written = 0
        with cursor.copy(merge_sql.copy_target(table)) as copy:
            for *values, weight in row_tuples(delta.rows):
                for _ in range(weight):
                    copy.write_row(values)
                written += weight
        if table.key:
            self._index(cursor, table, table.key)
        return written

    def _index(self, cursor: Cursor, table: StreamTable, key: tuple[int, ...]) -> None:
        try:
            with self._database.connection.transaction():
                cursor.execute(merge_sql.key_index(table, key, self._server))
        except errors.ProgramLimitExceeded:
            # Values too long for an index entry: MERGE still finds its rows, only by scanning.
            log.warning("stream table has no key index", extra={"table": str(table)})

    def _keyed(self, cursor: Cursor, table: StreamTable, delta: TableDelta) -> tuple[int, int]:
        key = table.key or ()
        changes = keyed_changes(delta.rows, key)
        not_null = frozenset(i for i, f in enumerate(fields(table.plan.root)) if not f.nullable)
        statements = merge_sql.keyed_statements(table, key, not_null, self._server)
        for batch in _batches(changes, self._batch_size):
            rows = [((c.new or c.old or ()), c.action.value, 0) for c in batch]
            self._run_batch(cursor, table, rows, statements, len(batch))
        inserted = sum(c.action is not Action.DELETE for c in changes)
        deleted = sum(c.action is not Action.INSERT for c in changes)
        return inserted, deleted

    def _keyless(self, cursor: Cursor, table: StreamTable, delta: TableDelta) -> tuple[int, int]:
        statements = merge_sql.keyless_statements(table, self._comparable_columns(cursor, table))
        inserted = deleted = 0
        for batch in _batches(row_tuples(delta.rows), self._batch_size):
            rows = [(tuple(values), "", weight) for *values, weight in batch]
            self._run_batch(cursor, table, rows, statements, sum(abs(n) for *_, n in rows))
            inserted += sum(n for *_, n in rows if n > 0)
            deleted -= sum(n for *_, n in rows if n < 0)
        return inserted, deleted

    @staticmethod
    def _run_batch(
        cursor: Cursor,
        table: StreamTable,
        rows: list[tuple[tuple[Any, ...], str, int]],
        statements: list[sql.Composed],
        expected: int,
    ) -> None:
        with cursor.copy(merge_sql.copy_batch(table)) as copy:
            for position, (values, act, n) in enumerate(rows):
                copy.write_row((*values, act, n, position))
        affected = 0
        for statement in statements:
            cursor.execute(statement)
            affected += cursor.rowcount
        if affected != expected:
            raise TargetDiverged(
                f"{table} did not hold the rows that should change: {expected} expected, {affected} found",
                hint="it was written to by somebody else; drop it and create it again",
            )
        cursor.execute(sql.SQL("DELETE FROM {}").format(merge_sql.batch_table(table)))

    def _comparable_columns(self, cursor: Cursor, table: StreamTable) -> frozenset[int]:
        if table.id not in self._comparable:
            cursor.execute(
                "SELECT t.oid FROM unnest(%s::oid[]) t(oid) JOIN pg_opclass o ON o.opcintype = t.oid OR o.opcintype ="
                " (SELECT CASE WHEN y.typtype = 'e' THEN 'anyenum'::regtype WHEN y.typelem <> 0 AND y.typlen = -1"
                " THEN 'anyarray'::regtype WHEN y.typtype = 'r' THEN 'anyrange'::regtype"
                " WHEN y.typname = 'varchar' THEN 'text'::regtype END::oid FROM pg_type y WHERE y.oid = t.oid)"
                " JOIN pg_am a ON a.oid = o.opcmethod AND a.amname = 'btree'",
                ([column.type.oid for column in table.columns],),
            )
            oids = {int(str(row[0])) for row in cursor.fetchall()}
            self._comparable[table.id] = frozenset(i for i, c in enumerate(table.columns) if c.type.oid in oids)
        return self._comparable[table.id]


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).splitlines()[0]
