"""A query without a plan, run by PostgreSQL itself in a snapshot of known position; only the difference comes here."""

from __future__ import annotations

import psycopg
from psycopg import sql

from applier.catalog.database import Connection
from applier.errors import CalculationError, Infrastructure
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.pinned_snapshot import PinnedSnapshots
from applier.sinks.postgres.full_diff import FullResult, diff_with_target
from applier.sinks.postgres.gather import DriverLimit, collect_delta
from applier.sinks.staging.staged_delta import Delta, StagedDelta
from shared_schema.lsn import Lsn, LsnRange

_PIN = (
    "SELECT set_config('search_path', 'pg_catalog', true), set_config('TimeZone', 'UTC', true),"
    " set_config('DateStyle', 'ISO, YMD', true), set_config('IntervalStyle', 'postgres', true),"
    " set_config('extra_float_digits', '1', true), set_config('bytea_output', 'hex', true)"
)
"""The query was stored in this form under these settings."""


class FullInPostgres:
    """Runs such queries; one at a time per caller's thread."""

    def __init__(self, url: str, driver_rows: int) -> None:
        self._pins = PinnedSnapshots(url)
        self._room = DriverLimit(driver_rows, url)

    def stop(self) -> None:
        """Interrupt what runs; nothing is begun any more."""
        self._pins.stop()

    def run(self, table: StreamTable, since: Lsn) -> Delta:
        """How the query's result at a new position differs from what the stream table holds."""
        if not isinstance(table.plan, PostgresQuery):
            raise AssertionError(f"{table} has a plan")
        try:
            with self._pins.pinned() as (connection, at):
                lsn_range = LsnRange(since, at)
                self._become_owner(connection, table)
                query = sql.SQL(table.plan.query.rstrip().rstrip(";"))
                with connection.cursor() as cursor:
                    found = diff_with_target(cursor, table, FullResult(lsn_range, query))
                    # What the applier's sessions act as, which need not be who logged in.
                    cursor.execute("RESET ROLE")
                    delta = collect_delta(cursor, table, found, lsn_range, self._room)
                if isinstance(delta, StagedDelta):
                    connection.execute("COMMIT")
                return delta
        except psycopg.OperationalError as error:
            raise Infrastructure(f"the query of {table} was interrupted: {_first_line(error)}") from error
        except psycopg.Error as error:
            raise CalculationError(
                f"the query of {table} fails in PostgreSQL: {_first_line(error)}",
                hint=error.diag.message_hint or "correct the rows or the query",
            ) from error

    @staticmethod
    def _become_owner(connection: Connection, table: StreamTable) -> None:
        """Functions in the query do what the stream table's owner may do, not what the applier may."""
        row = connection.execute(
            "SELECT pg_get_userbyid(relowner)::text FROM pg_catalog.pg_class WHERE oid = %s::int8::oid", (table.relid,)
        ).fetchone()
        if row is None:
            raise CalculationError(f"{table} is gone")
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(str(row[0]))))
        connection.execute(_PIN)


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).splitlines()[0]
