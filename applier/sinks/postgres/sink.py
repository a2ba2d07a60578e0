"""The PostgreSQL sink: a window's net delta and the stream table's frontier in one transaction.

Progressive stream tables are the exception they ask for: each batch is a transaction, and until the last one the
catalog says that the rows are those of no frontier. A crash in between is mended by comparing the table with its
whole content (`replace`), which needs no memory of how far it got.
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
from applier.sinks.postgres.prefetch import prefetch as encoded_ahead
from applier.sinks.postgres.rejected_row import find_rejected_row
from applier.sinks.staging.staged_delta import Delta, StagedDelta, StagedPart
from shared_schema.lsn import Lsn, LsnRange

log = logging.getLogger(__name__)

Cursor = psycopg.Cursor[tuple[object, ...]]

RANDOM_PAGE_COST = 1.1
"""A batch finds its rows by the key's index. At the default of 4 PostgreSQL reads the whole table instead, for every
batch of some ten thousand rows, which takes twice the time."""

TOGETHER_ROWS = 50_000
"""Most rows of a stream table that others wait for, so that all of them are seen at once."""

DRIVER_ROWS = 200_000
"""Most rows of a difference that come to the driver."""


def prepare_write_session(lock_timeout_ms: int) -> Callable[[Connection], None]:
    """What a connection that writes stream tables is told first: whose it is, and how long to wait for a lock."""

    def prepare(connection: Connection) -> None:
        connection.execute(
            "SELECT set_config('pg_trickle.applier', 'on', false), set_config('lock_timeout', %s, false),"
            " set_config('random_page_cost', least(current_setting('random_page_cost')::float8, %s)::text, false)",
            (str(lock_timeout_ms), RANDOM_PAGE_COST),
        )

    return prepare


class PostgresSink:
    """Writes stream tables back into PostgreSQL. `server_version` is the server's own unless another is to be met."""

    def __init__(
        self,
        database: Database,
        pipeline_batch_size: int,
        server_version: int | None = None,
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        self._database = database
        self.batch_size = pipeline_batch_size
        self._room = DriverLimit(driver_rows, database.url)
        self._server_version = server_version
        self._in_company = False
        self._types: dict[int, tuple[frozenset[int], frozenset[int]]] = {}

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    @property
    def _server(self) -> int:
        return self._server_version or self._connection.info.server_version

    def apply(self, table: StreamTable, delta: Delta, as_of: datetime, executed: RefreshExecution) -> None:
        """Apply the delta once: the frontier must stand at its window's beginning and then stands at its end."""
        started = time.monotonic()
        with self._told(table, lambda _: delta):
            large = isinstance(delta, StagedDelta) or delta.count > self.batch_size
            ahead = delta.applied if isinstance(delta, StagedDelta) else None
            if ahead is None and large and self._is_progressive(table):
                ahead = self._progressively(table, delta)
            with self._connection.transaction(), self._connection.cursor() as cursor:
                counts = ahead or self._write(cursor, table, self._way(cursor, table, delta), delta)
                refresh = HistoryRow(table.id, executed, *counts, _since(started), delta.lsn_range)
                self._finish(cursor, table, delta, as_of, refresh, was_partial=large)

    def prefetch_parts(self, table: StreamTable, delta: StagedDelta) -> None:
        """Of a progressive stream table: rows as they come, before it is `apply`'s turn to move the frontier."""
        with self._told(table, lambda _: delta):
            if self._is_progressive(table):
                delta.applied = self._progressively(table, delta)

    def close(self) -> None:
        """Leave the server."""
        self._database.close()

    def can_group_commit(self, table: StreamTable, rows: Delta | FullResult) -> bool:
        """Whether it may be one of several in a transaction: short, and nobody asked to see parts of it."""
        if isinstance(rows, FullResult):
            return rows.change is None and isinstance(rows.rows, pa.Table) and rows.rows.num_rows <= TOGETHER_ROWS
        if isinstance(rows, StagedDelta) or rows.is_fill or rows.count > TOGETHER_ROWS:
            return False
        return rows.count <= self.batch_size or not self._is_progressive(table)

    @contextmanager
    def group_commit(self) -> Iterator[None]:
        """One transaction for several stream tables, each of which may fail in it by itself. It does not wait long.

        NotTogether when nothing of it was written.
        """
        connection = self._connection
        self._in_company = True
        try:
            with connection.transaction():
                # Shorter than deadlock_timeout: whoever drops several of them has them in another order.
                connection.execute("SET LOCAL lock_timeout = '300ms'")
                yield
        except psycopg.Error as error:
            if pg_errors.is_transient(error):
                raise Infrastructure(f"writing stream tables failed: {str(error).splitlines()[0]}") from error
            raise GroupCommitRefused(str(error).splitlines()[0]) from error
        except TargetLocked as error:
            raise GroupCommitRefused(error.problem) from error
        finally:
            self._in_company = False

    def advance(self, ids: list[int], lsn_range: LsnRange, as_of: datetime) -> None:
        """The frontiers of stream tables whose rows the window does not touch."""
        Frontiers(self._database).advance_unchanged(ids, lsn_range.lower, lsn_range.upper, as_of)

    def replace(
        self,
        table: StreamTable,
        rows: FullResult | Delta,
        as_of: datetime,
        executed: RefreshExecution,
        *,
        also_owed: Sequence[DeltaRows] = (),
        settled: Lsn | None = None,
    ) -> Delta:
        """Make the table hold the contents as of the window's end, touching only rows that differ; return the
        difference, or write it where somebody else has found it.

        With `settled`, the frontier that every other sink has reached, the difference is kept until they have it, and
        with it `also_owed`: deltas of before that they wait for and that nobody could compute again.
        """
        started = time.monotonic()

        def found(cursor: Cursor) -> Delta:
            if not isinstance(rows, FullResult):
                return rows
            return collect_delta(cursor, table, diff_with_target(cursor, table, rows), rows.lsn_range, self._room)

        with self._told(table, found), self._connection.transaction(), self._connection.cursor() as cursor:
            delta = found(cursor)
            counts = self._write(cursor, table, self._by_difference(cursor, table), delta)
            if settled is not None:
                acknowledge(cursor, table.id, settled)
                for one in (*also_owed, delta):
                    enqueue(cursor, table, one)
            refresh = HistoryRow(table.id, executed, *counts, _since(started), rows.lsn_range)
            self._finish(cursor, table, delta, as_of, refresh, was_partial=True)
        return delta

    def adopting(self, pgt_id: int, query: str) -> AbstractContextManager[None]:
        """A transaction in which the stream table has the query that waits for it, if it is this one."""
        return PendingAlterations(self._database).adopting(pgt_id, query)

    @contextmanager
    def rekeyed(self, old: StreamTable, new: StreamTable) -> Iterator[None]:
        """While its rows change from those of one query to those of another, no key holds; then that of the new one."""
        with self._connection.cursor() as cursor:
            if old.key:
                cursor.execute(merge_sql.KEY_INDEX, (old.relid, [old.columns[i].name for i in old.key]))
                for (index,) in cursor.fetchall()[:1]:
                    cursor.execute(f"DROP INDEX {index}".encode())
            yield
            if new.key:
                self._index(cursor, new, new.key)

    def pending_deltas(self, table: StreamTable, since: Lsn) -> list[MemoryDelta | OutboxDelta]:
        """Differences kept for sinks that stand at `since`, oldest first."""
        with self._connection.cursor() as cursor:
            return pending_deltas(cursor, table.id, since, self._database.url)

    def target_rows(self, table: StreamTable, lsn_range: LsnRange, schema: pa.Schema | None = None) -> Delta:
        """What the stream table holds, each row once with its count, as the change over the window."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            return collect_delta(cursor, table, target_rows(cursor, table, schema), lsn_range, self._room)

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
        if delta.is_fill:
            if table.key:
                self._index(cursor, table, table.key)
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

    def _write(self, cursor: Cursor, table: StreamTable, way: ApplyMethod, delta: Delta) -> tuple[int, int]:
        if isinstance(delta, StagedDelta):
            return self._staged(cursor, table, delta)
        if delta.is_fill and isinstance(way, Fill):
            self._must_be_empty(cursor, table)
        rows = way.arrange(delta.rows)
        if rows.num_rows:
            way.prepare(cursor)
        batches = cut_batches(rows, self.batch_size)
        came = left = 0
        for batch in encoded_ahead(batches) if rows.num_rows > self.batch_size else batches:
            more, less = way.write(cursor, batch)
            came, left = came + more, left + less
        return came, left

    def _progressively(self, table: StreamTable, delta: Delta) -> tuple[int, int]:
        """Each batch by itself; the catalog says meanwhile that the table is at no frontier."""
        came = left = 0
        with self._connection.cursor() as cursor:
            way = self._way(cursor, table, delta)
            if delta.is_fill:
                self._must_be_empty(cursor, table)
            cursor.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET partial_until = %s::pg_lsn WHERE pgt_id = %s",
                (str(delta.lsn_range.upper), table.id),
            )
            if isinstance(delta, StagedDelta):
                return self._staged(cursor, table, delta)
            way.prepare(cursor)
            for batch in encoded_ahead(cut_batches(way.arrange(delta.rows), self.batch_size)):
                with self._connection.transaction():
                    more, less = way.write(cursor, batch)
                log.debug("batch committed", extra={"table": str(table), "rows": batch.rows.num_rows})
                came, left = came + more, left + less
        return came, left

    def _staged(self, cursor: Cursor, table: StreamTable, delta: StagedDelta) -> tuple[int, int]:
        if delta.is_fill:
            self._must_be_empty(cursor, table)
        return merge_parts(
            cursor, table, delta, self._database.url, lambda part: self._phases(cursor, table, delta, part)
        )

    def _phases(self, cursor: Cursor, table: StreamTable, delta: StagedDelta, part: StagedPart) -> merge_sql.Phases:
        if delta.is_fill:
            return merge_sql.fill_part(table, part.table)
        if table.key is None:
            return merge_sql.keyless_part(table, *self._comparable(cursor, table), part.table)
        return merge_sql.keyed_part(table, table.key, table.not_null, part.table)

    def _is_progressive(self, table: StreamTable) -> bool:
        found = self._connection.execute(
            "SELECT visibility = 'progressive' FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (table.id,)
        ).fetchone()
        return found == (True,)

    def _way(self, cursor: Cursor, table: StreamTable, delta: Delta) -> ApplyMethod:
        straight = delta.is_fill or (isinstance(delta, MemoryDelta) and delta.appended)
        return Fill(table) if straight else self._by_difference(cursor, table)

    def _by_difference(self, cursor: Cursor, table: StreamTable) -> ApplyMethod:
        if table.key is None:
            return ByCount(table, merge_sql.keyless_statements(table, *self._comparable(cursor, table)))
        statements = merge_sql.keyed_statements(table, table.key, table.not_null, self._server)
        return ByKey(table, table.key, statements)

    @staticmethod
    def _must_be_empty(cursor: Cursor, table: StreamTable) -> None:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(merge_sql.target(table)))
        if cursor.fetchone() == (True,):
            raise TargetDiverged(f"{table} already holds rows", hint="a stream table must be empty before it is filled")

    def _index(self, cursor: Cursor, table: StreamTable, key: tuple[int, ...]) -> None:
        try:
            with self._connection.transaction():
                cursor.execute(merge_sql.key_index(table, key, table.not_null, self._server))
        except errors.ProgramLimitExceeded:
            # Values too long for an index entry: MERGE still finds its rows, only by scanning.
            log.warning("stream table has no key index", extra={"table": str(table)})

    def _comparable(self, cursor: Cursor, table: StreamTable) -> tuple[frozenset[int], frozenset[int]]:
        """Ordinals of the columns whose type has an equality, and of those whose type has a hash."""
        if table.id not in self._types:
            cursor.execute(merge_sql.COMPARABLE, ([column.type.oid for column in table.columns],))
            found = [(int(str(oid)), method) for oid, method in cursor.fetchall()]
            self._types[table.id] = tuple(  # type: ignore[assignment]
                frozenset(i for i, c in enumerate(table.columns) if (c.type.oid, method) in found)
                for method in ("btree", "hash")
            )
        return self._types[table.id]

    @contextmanager
    def _told(self, table: StreamTable, delta: Callable[[Cursor], Delta]) -> Iterator[None]:
        """PostgreSQL's errors in our words: which can be tried again, and for the others which row it was.

        `delta` gives what was to be written, once more, to whoever looks for the row.
        """
        try:
            yield
        except psycopg.Error as error:
            if pg_errors.is_about_rows(error):
                row = self._first_refused(table, delta)
                raise pg_errors.to_refresh_error(error, table, row) from error
            if pg_errors.breaks_session(error):
                self._database.close()
                if self._in_company:
                    raise GroupCommitRefused(str(error).splitlines()[0]) from error
            raise pg_errors.to_refresh_error(error, table, None) from error

    def _first_refused(self, table: StreamTable, delta: Callable[[Cursor], Delta]) -> str | None:
        """Write it once more, to take it back, until the row is found that PostgreSQL does not take."""
        try:
            with self._connection.transaction(force_rollback=True), self._connection.cursor() as cursor:
                again = delta(cursor)
                return find_rejected_row(cursor, table, self._way(cursor, table, again), again, self.batch_size)
        except psycopg.Error:
            return None


def _since(started: float) -> float:
    return (time.monotonic() - started) * 1000
