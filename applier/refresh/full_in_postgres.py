"""A query without a plan in; its difference to the stream table, computed by PostgreSQL at a known LSN, out."""

from __future__ import annotations

import psycopg
from psycopg import sql

from applier.catalog.database import Connection
from applier.errors import CalculationError, Infrastructure
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.pinned_snapshot import PinnedSnapshots
from applier.sinks.delta import ComputedDelta, StagedDelta
from applier.sinks.postgres.full_diff import FullResult, diff_with_target
from applier.sinks.postgres.gather import DriverLimit, collect_delta
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
                self._become_owner(connection, table)
                query = sql.SQL(table.plan.query.rstrip().rstrip(";"))
                with connection.cursor() as cursor:
                    found = diff_with_target(cursor, table, FullResult(lsn_range, query))
                    # Back to the role of the applier's sessions, which need not be the one that logged in.
                    cursor.execute("RESET ROLE")
                    delta = collect_delta(cursor, table, found, lsn_range, self._driver_limit)
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
        """Functions in the query run with the rights of the stream table's owner, not with those of the applier.

        The settings stay: a role's own settings apply to its logins only.
        """
        row = connection.execute(
            "SELECT pg_get_userbyid(relowner)::text FROM pg_catalog.pg_class WHERE oid = %s::int8::oid", (table.relid,)
        ).fetchone()
        if row is None:
            raise CalculationError(f"{table} does not exist any more")
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(str(row[0]))))


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).splitlines()[0]
