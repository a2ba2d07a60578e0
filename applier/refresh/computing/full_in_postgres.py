"""A query without a plan in; its difference to the stream table, computed by PostgreSQL at a known LSN, out.

The query runs with the rights of the stream table's owner, which its functions cannot leave, and may write nothing:
what a function writes could fire triggers at the commit, with the rights of the applier.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from applier.catalog.confined import Confined, owner_of
from applier.catalog.database import Connection
from applier.errors import CalculationError, Infrastructure, SourceBusy, TargetFull
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.computing.pinned_snapshot import PinnedSnapshots
from applier.sinks.delta import ComputedDelta, StagedDelta
from applier.sinks.postgres import merge_sql, pg_errors
from applier.sinks.postgres.full_diff import FullResult, diff_with_target
from applier.sinks.postgres.gather import DriverLimit, collect_delta
from applier.sinks.staging.staged_delta import NUMBERS
from applier.unexpected import is_service_away
from shared_schema.lsn import Lsn, LsnRange


class FullInPostgres:
    """Runs queries in PostgreSQL; one at a time per calling thread."""

    def __init__(self, url: str, driver_rows: int) -> None:
        self._pins = PinnedSnapshots(url)
        self._driver_limit = DriverLimit(driver_rows, url)

    def stop(self) -> None:
        """Interrupt the running queries and refuse later ones."""
        self._pins.stop()

    def run(self, table: StreamTable, since: Lsn) -> ComputedDelta:
        """Return the difference of the query's result at a new LSN to the rows of the stream table."""
        if not isinstance(table.plan, PostgresQuery):
            raise AssertionError(f"{table} has a plan")
        try:
            with self._pins.pin() as (connection, at):
                lsn_range = LsnRange(since, at)
                _refuse_held(connection, table)
                rows = run_query(connection, table, table.plan.query)
                with connection.cursor() as cursor:
                    found = diff_with_target(cursor, table, FullResult(lsn_range, rows))
                    delta = collect_delta(cursor, table, found, lsn_range, self._driver_limit)
                if isinstance(delta, StagedDelta):
                    connection.execute("COMMIT")
                return delta
        except psycopg.Error as error:
            if is_service_away(error):
                raise Infrastructure(f"the query of {table} was interrupted: {_first_line(error)}") from error
            if isinstance(error, psycopg.errors.DiskFull):
                raise TargetFull(
                    f"PostgreSQL has no space for the result of {table}",
                    hint="free disk space: then the refresh continues without further action",
                ) from error
            # Also a time limit, a limit on temporary files, a materialized view without rows, a lock: this query's own.
            raise CalculationError(
                f"the query of {table} fails in PostgreSQL: {pg_errors.describe_error(error)}",
                hint=error.diag.message_hint or "correct the rows or the query",
            ) from error


def run_query(connection: Connection, table: StreamTable, query: str) -> sql.Identifier:
    """Run the query of a stream table in the open transaction; return the temporary table that holds its result.

    The settings stay: a role's own settings apply to its logins only.
    """
    owner = owner_of(connection, table.relid)
    if owner is None:
        raise CalculationError(f"{table} does not exist any more")
    rows = sql.Identifier("pg_temp", f"pgt_whole_{next(NUMBERS)}")
    connection.execute(merge_sql.create_whole_table(table, rows))
    connection.execute(sql.SQL("GRANT INSERT ON {} TO {}").format(rows, sql.Identifier(owner)))
    confined = Confined(connection, owner)
    # A limit that the database or the role has for statements bounds what users wrote, but not our own statements.
    connection.execute("RESET statement_timeout")
    # The result is a temporary table.
    insert = sql.SQL("INSERT INTO {} {}").format(rows, sql.SQL(query.rstrip().rstrip(";")))
    confined.run(insert, read_only=True)
    confined.clear()
    connection.execute("SET statement_timeout = 0")
    return rows


def _refuse_held(connection: Connection, table: StreamTable) -> None:
    """Raise when a gate holds the stream table in this snapshot: the gate was closed after the tick had looked."""
    held = connection.execute("SELECT h.reason FROM pgtrickle._held_by(%s) h LIMIT 1", (table.id,)).fetchone()
    if held is not None:
        raise SourceBusy(f"the query of {table} was not run: {held[0]}")


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).splitlines()[0]
