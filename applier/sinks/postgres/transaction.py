"""The connection that writes stream tables in; transactions of one refresh or of several, and their errors, out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from applier.catalog.database import Connection, Database
from applier.errors import GroupCommitRefused, Infrastructure, TargetLocked
from applier.plan.stream_table import StreamTable
from applier.sinks.postgres import pg_errors
from shared_schema.session_pins import PATH_OF_THE_ROLE

Cursor = psycopg.Cursor[tuple[object, ...]]

RANDOM_PAGE_COST = 1.1
"""A batch finds its rows by the index of the key. With the default of 4 PostgreSQL reads the whole table instead, for
every batch of some ten thousand rows, which takes twice the time."""


TICK_LOCK_TIMEOUT_MS = 300
"""How long a tick waits for a lock on a stream table: all others wait with it, so after that it is written beside the
ticks. Shorter than deadlock_timeout: a session that drops several stream tables locks them in another order."""


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


class WriteSession:
    """One session that writes stream tables. Tests may pass a `server_version` other than the server's own."""

    def __init__(self, database: Database, server_version: int | None = None) -> None:
        self.database = database
        self._server_version = server_version
        self._in_group_commit = False

    @property
    def connection(self) -> Connection:
        """The open connection."""
        return self.database.connection

    @property
    def server_version(self) -> int:
        """As server_version_num."""
        return self._server_version or self.connection.info.server_version

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Run the block in a transaction; inside of a group commit it is a part that may fail alone."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            yield cursor

    @contextmanager
    def group_commit(self) -> Iterator[None]:
        """Run the block in one transaction for several stream tables, each of which may fail alone; waits for locks
        only shortly.

        Raises GroupCommitRefused when nothing was written.
        """
        connection = self.connection
        self._in_group_commit = True
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {TICK_LOCK_TIMEOUT_MS}")
                yield
        except psycopg.Error as error:
            if pg_errors.is_transient(error):
                raise Infrastructure(f"writing stream tables failed: {str(error).splitlines()[0]}") from error
            raise GroupCommitRefused(pg_errors.describe_error(error)) from error
        except TargetLocked as error:
            raise GroupCommitRefused(error.problem) from error
        finally:
            self._in_group_commit = False

    @contextmanager
    def translate_errors(self, table: StreamTable, find_rejected: Callable[[], str | None]) -> Iterator[None]:
        """Raise PostgreSQL's errors inside the block as the applier's own; `find_rejected` finds the row that causes
        one, where a row does."""
        try:
            yield
        except psycopg.Error as error:
            if pg_errors.is_about_rows(error):
                raise pg_errors.to_refresh_error(error, table, find_rejected()) from error
            if pg_errors.breaks_session(error):
                self.close()
                if self._in_group_commit:
                    raise GroupCommitRefused(pg_errors.describe_error(error)) from error
            raise pg_errors.to_refresh_error(error, table, None) from error

    def cancel(self) -> None:
        """Interrupt what another thread writes at present."""
        self.database.cancel()

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        self.database.close()
