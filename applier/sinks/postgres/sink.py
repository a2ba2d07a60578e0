"""The PostgreSQL sink: a delta or a full result in; its rows and the new frontier, in one transaction, out.

Progressive stream tables are the exception: each batch is a transaction, and until the last one the catalog says that
the rows belong to no frontier. A crash in between is repaired by comparing the table with its full result (`replace`),
which does not need to know how many batches were committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from applier.catalog.alterations import PendingAlterations
from applier.catalog.database import Connection, Database
from applier.catalog.frontiers import Frontiers, move_frontier
from applier.catalog.history import HistoryRow, RefreshExecution, record_refresh
from applier.errors import GroupCommitRefused, Infrastructure, TargetDiverged, TargetLocked
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import DeltaRows, MemoryDelta
from applier.sinks.outbox import OutboxDelta, acknowledge, enqueue, pending_deltas
from applier.sinks.postgres import merge_sql, pg_errors
from applier.sinks.postgres.batches import ApplyMethod, ByCount, ByKey, Fill, cut_batches
from applier.sinks.postgres.full_diff import FullResult, diff_with_target, target_rows
from applier.sinks.postgres.gather import DriverLimit, collect_delta
from applier.sinks.postgres.merge_parts import merge_parts
from applier.sinks.postgres.prefetch import prefetch
from applier.sinks.postgres.rejected_row import find_rejected_row
from applier.sinks.staging.staged_delta import Delta, StagedDelta, StagedPart
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.session_pins import PATH_OF_THE_ROLE

log = logging.getLogger(__name__)

Cursor = psycopg.Cursor[tuple[object, ...]]

RANDOM_PAGE_COST = 1.1
"""A batch finds its rows by the index of the key. With the default of 4 PostgreSQL reads the whole table instead, for
every batch of some ten thousand rows, which takes twice the time."""

GROUP_COMMIT_ROWS = 50_000
"""Most rows of one stream table in a group commit: the others in the group wait for it."""

DRIVER_ROWS = 200_000
"""Most rows of a difference that are collected on the driver."""


def prepare_write_session(lock_timeout_ms: int) -> Callable[[Connection], None]:
    """Return a function that prepares a connection for writes: marks it as the applier's, and limits lock waits.

    Triggers of users run in it, and types from extensions are compared: their names are looked up as in other sessions
    of the role, but after PostgreSQL's own.
    """

    def prepare(connection: Connection) -> None:
        connection.execute(
            "SELECT set_config('pg_trickle.applier', 'on', false), set_config('lock_timeout', %s, false),"
            " set_config('random_page_cost', least(current_setting('random_page_cost')::float8, %s)::text, false), "
            + PATH_OF_THE_ROLE,
            (str(lock_timeout_ms), RANDOM_PAGE_COST),
        )

    return prepare


class PostgresSink:
    """Writes stream tables into PostgreSQL. Tests may pass a `server_version` other than the server's own."""

    def __init__(
        self,
        database: Database,
        pipeline_batch_size: int,
        server_version: int | None = None,
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        self._database = database
        self.batch_size = pipeline_batch_size
        self._driver_limit = DriverLimit(driver_rows, database.url)
        self._server_version = server_version
        self._in_group_commit = False
        self._types: dict[int, tuple[frozenset[int], frozenset[int]]] = {}

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    @property
    def _server(self) -> int:
        return self._server_version or self._connection.info.server_version

    def apply(self, table: StreamTable, delta: Delta, as_of: datetime, execution: RefreshExecution) -> None:
        """Apply the delta once: moves the frontier from the lower to the upper end of its range."""
        started = time.monotonic()
        with self._translate_errors(table, lambda _: delta):
            is_large = isinstance(delta, StagedDelta) or delta.count > self.batch_size
            early_counts = delta.applied if isinstance(delta, StagedDelta) else None
            if early_counts is None and is_large and self._is_progressive(table):
                early_counts = self._write_progressively(table, delta)
            with self._connection.transaction(), self._connection.cursor() as cursor:
                counts = early_counts or self._write(cursor, table, self._choose_method(cursor, table, delta), delta)
                refresh = HistoryRow(table.id, execution, *counts, _elapsed_ms(started), delta.lsn_range)
                self._finish(cursor, table, delta, as_of, refresh, was_partial=is_large)

    def apply_parts_early(self, table: StreamTable, delta: StagedDelta) -> None:
        """Apply the parts of a progressive stream table as they arrive; `apply` moves the frontier later."""
        with self._translate_errors(table, lambda _: delta):
            if self._is_progressive(table):
                delta.applied = self._write_progressively(table, delta)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def can_group_commit(self, table: StreamTable, rows: Delta | FullResult) -> bool:
        """Whether it may be part of a group commit: it is short, and not progressive when it needs several batches."""
        if isinstance(rows, FullResult):
            return rows.change is None and isinstance(rows.rows, pa.Table) and rows.rows.num_rows <= GROUP_COMMIT_ROWS
        if isinstance(rows, StagedDelta) or rows.is_fill or rows.count > GROUP_COMMIT_ROWS:
            return False
        return rows.count <= self.batch_size or not self._is_progressive(table)

    @contextmanager
    def group_commit(self) -> Iterator[None]:
        """Run the block in one transaction for several stream tables, each of which may fail alone; waits for locks
        only shortly.

        Raises GroupCommitRefused when nothing was written.
        """
        connection = self._connection
        self._in_group_commit = True
        try:
            with connection.transaction():
                # Shorter than deadlock_timeout: a session that drops several of them locks them in another order.
                connection.execute("SET LOCAL lock_timeout = '300ms'")
                yield
        except psycopg.Error as error:
            if pg_errors.is_transient(error):
                raise Infrastructure(f"writing stream tables failed: {str(error).splitlines()[0]}") from error
            raise GroupCommitRefused(str(error).splitlines()[0]) from error
        except TargetLocked as error:
            raise GroupCommitRefused(error.problem) from error
        finally:
            self._in_group_commit = False

    def advance(self, ids: list[int], lsn_range: LsnRange, as_of: datetime) -> None:
        """Move the frontiers of stream tables without changes in the range."""
        Frontiers(self._database).advance_unchanged(ids, lsn_range.lower, lsn_range.upper, as_of)

    def replace(
        self,
        table: StreamTable,
        rows: FullResult | Delta,
        as_of: datetime,
        execution: RefreshExecution,
        *,
        also_enqueue: Sequence[DeltaRows] = (),
        acknowledged: Lsn | None = None,
    ) -> Delta:
        """Make the table hold a full result, writing only rows that differ; return the difference.

        `rows` may be the difference itself, when it was found before. With `acknowledged`, the frontier that every
        other sink has reached, the difference goes to the outbox until they have it, together with `also_enqueue`:
        earlier deltas that they still need and that cannot be computed again.
        """
        started = time.monotonic()

        def find_difference(cursor: Cursor) -> Delta:
            if not isinstance(rows, FullResult):
                return rows
            difference = diff_with_target(cursor, table, rows)
            return collect_delta(cursor, table, difference, rows.lsn_range, self._driver_limit)

        with (
            self._translate_errors(table, find_difference),
            self._connection.transaction(),
            self._connection.cursor() as cursor,
        ):
            delta = find_difference(cursor)
            counts = self._write(cursor, table, self._merge_method(cursor, table), delta)
            if acknowledged is not None:
                acknowledge(cursor, table.id, acknowledged)
                for pending in (*also_enqueue, delta):
                    enqueue(cursor, table, pending)
            refresh = HistoryRow(table.id, execution, *counts, _elapsed_ms(started), rows.lsn_range)
            self._finish(cursor, table, delta, as_of, refresh, was_partial=True)
        return delta

    def adopt_query(self, pgt_id: int, query: str) -> AbstractContextManager[None]:
        """Return a transaction in which the stream table has its new query, if that is this one."""
        return PendingAlterations(self._database).adopt_query(pgt_id, query)

    @contextmanager
    def replace_key(self, old: StreamTable, new: StreamTable) -> Iterator[None]:
        """Drop the key index of the old query before the block, and create that of the new query after it."""
        with self._connection.cursor() as cursor:
            if old.key:
                cursor.execute(merge_sql.KEY_INDEX, (old.relid, [old.columns[i].name for i in old.key]))
                for (index,) in cursor.fetchall()[:1]:
                    cursor.execute(f"DROP INDEX {index}".encode())
            yield
            if new.key:
                self._create_index(cursor, new, new.key)

    def pending_deltas(self, table: StreamTable, since: Lsn) -> list[MemoryDelta | OutboxDelta]:
        """Return the deltas of the outbox for sinks at frontier `since`, oldest first."""
        with self._connection.cursor() as cursor:
            return pending_deltas(cursor, table.id, since, self._database.url)

    def target_rows(self, table: StreamTable, lsn_range: LsnRange, schema: pa.Schema | None = None) -> Delta:
        """Return all rows of the stream table, each once with its count, as the delta over the range."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            return collect_delta(cursor, table, target_rows(cursor, table, schema), lsn_range, self._driver_limit)

    def _finish(
        self,
        cursor: Cursor,
        table: StreamTable,
        delta: DeltaRows,
        as_of: datetime,
        refresh: HistoryRow,
        *,
        was_partial: bool,
    ) -> None:
        """Write what belongs to the rows: the index of a new table, the frontier and the row of history."""
        if delta.is_fill:
            if table.key:
                self._create_index(cursor, table, table.key)
            cursor.execute("SELECT pgtrickle._ensure_publication(%s)", (table.id,))
        if was_partial:
            cursor.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET partial_until = NULL"
                " WHERE pgt_id = %s AND partial_until IS NOT NULL",
                (table.id,),
            )
        move_frontier(cursor, table.id, delta.lsn_range.lower, delta.lsn_range.upper, as_of)
        if refresh.rows_inserted or refresh.rows_deleted or delta.is_fill:
            record_refresh(cursor, refresh)

    def _write(self, cursor: Cursor, table: StreamTable, method: ApplyMethod, delta: Delta) -> tuple[int, int]:
        """Write the delta in batches; return how many rows were inserted and deleted."""
        if isinstance(delta, StagedDelta):
            return self._merge_staged(cursor, table, delta)
        if delta.is_fill and isinstance(method, Fill):
            self._check_empty(cursor, table)
        rows = method.arrange(delta.rows)
        if rows.num_rows:
            method.prepare(cursor)
        batches = cut_batches(rows, self.batch_size)
        inserted = deleted = 0
        for batch in prefetch(batches) if rows.num_rows > self.batch_size else batches:
            more, less = method.write(cursor, batch)
            inserted, deleted = inserted + more, deleted + less
        return inserted, deleted

    def _write_progressively(self, table: StreamTable, delta: Delta) -> tuple[int, int]:
        """Commit each batch alone; meanwhile the catalog says that the table has no frontier."""
        inserted = deleted = 0
        with self._connection.cursor() as cursor:
            method = self._choose_method(cursor, table, delta)
            if delta.is_fill:
                self._check_empty(cursor, table)
            cursor.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET partial_until = %s::pg_lsn WHERE pgt_id = %s",
                (str(delta.lsn_range.upper), table.id),
            )
            if isinstance(delta, StagedDelta):
                return self._merge_staged(cursor, table, delta)
            method.prepare(cursor)
            for batch in prefetch(cut_batches(method.arrange(delta.rows), self.batch_size)):
                with self._connection.transaction():
                    more, less = method.write(cursor, batch)
                log.debug("batch committed", extra={"table": str(table), "rows": batch.rows.num_rows})
                inserted, deleted = inserted + more, deleted + less
        return inserted, deleted

    def _merge_staged(self, cursor: Cursor, table: StreamTable, delta: StagedDelta) -> tuple[int, int]:
        if delta.is_fill:
            self._check_empty(cursor, table)
        return merge_parts(
            cursor, table, delta, self._database.url, lambda part: self._phases(cursor, table, delta, part)
        )

    def _phases(self, cursor: Cursor, table: StreamTable, delta: StagedDelta, part: StagedPart) -> merge_sql.Phases:
        if delta.is_fill:
            return merge_sql.fill_part(table, part.table)
        if table.key is None:
            return merge_sql.keyless_part(table, *self._comparable_columns(cursor, table), part.table)
        return merge_sql.keyed_part(table, table.key, table.not_null, part.table)

    def _is_progressive(self, table: StreamTable) -> bool:
        found = self._connection.execute(
            "SELECT visibility = 'progressive' FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (table.id,)
        ).fetchone()
        return found == (True,)

    def _choose_method(self, cursor: Cursor, table: StreamTable, delta: Delta) -> ApplyMethod:
        only_inserts = delta.is_fill or (isinstance(delta, MemoryDelta) and delta.appended)
        return Fill(table) if only_inserts else self._merge_method(cursor, table)

    def _merge_method(self, cursor: Cursor, table: StreamTable) -> ApplyMethod:
        if table.key is None:
            return ByCount(table, merge_sql.keyless_statements(table, *self._comparable_columns(cursor, table)))
        statements = merge_sql.keyed_statements(table, table.key, table.not_null, self._server)
        return ByKey(table, table.key, statements)

    @staticmethod
    def _check_empty(cursor: Cursor, table: StreamTable) -> None:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(merge_sql.target(table)))
        if cursor.fetchone() == (True,):
            raise TargetDiverged(f"{table} already holds rows", hint="a stream table must be empty before it is filled")

    def _create_index(self, cursor: Cursor, table: StreamTable, key: tuple[int, ...]) -> None:
        try:
            with self._connection.transaction():
                cursor.execute(merge_sql.key_index(table, key, table.not_null, self._server))
        except errors.ProgramLimitExceeded:
            # Values are too long for an index entry: MERGE still finds its rows, but by scanning.
            log.warning("stream table has no key index", extra={"table": str(table)})

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

    @contextmanager
    def _translate_errors(self, table: StreamTable, delta: Callable[[Cursor], Delta]) -> Iterator[None]:
        """Raise PostgreSQL's errors inside the block as the applier's own, with the rejected row where there is one.

        `delta` returns the rows to write once more, for the search of that row.
        """
        try:
            yield
        except psycopg.Error as error:
            if pg_errors.is_about_rows(error):
                row = self._find_rejected(table, delta)
                raise pg_errors.to_refresh_error(error, table, row) from error
            if pg_errors.breaks_session(error):
                self._database.close()
                if self._in_group_commit:
                    raise GroupCommitRefused(str(error).splitlines()[0]) from error
            raise pg_errors.to_refresh_error(error, table, None) from error

    def _find_rejected(self, table: StreamTable, delta: Callable[[Cursor], Delta]) -> str | None:
        """Write the delta once more, until the row is found that PostgreSQL rejects, and roll that back."""
        try:
            with self._connection.transaction(force_rollback=True), self._connection.cursor() as cursor:
                again = delta(cursor)
                method = self._choose_method(cursor, table, again)
                return find_rejected_row(cursor, table, method, again, self.batch_size)
        except psycopg.Error:
            return None


def _elapsed_ms(started: float) -> float:
    return (time.monotonic() - started) * 1000
