"""A database URL in, an open connection out: opened on first use, and again after it broke."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg

from applier.catalog.epochs import epoch_of, has_ended, name_epoch
from applier.errors import AnotherApplier, Infrastructure
from shared_schema.connections import connect_with_statement

Connection = psycopg.Connection[tuple[object, ...]]


def connect(url: str) -> Connection:
    """Open a pinned connection in autocommit mode, which names the epoch of this process; raise Infrastructure when the
    server is not reachable, AnotherApplier when the epoch has ended."""
    try:
        connection = connect_with_statement(url, application_name="pg-trickle-applier")
        if (epoch := epoch_of(url)) is not None:
            name_epoch(connection, epoch)
        return connection
    except psycopg.OperationalError as error:
        if has_ended(error):
            raise taken_over() from error
        raise Infrastructure(
            f"PostgreSQL cannot be reached: {str(error).splitlines()[0]}",
            hint="check PG_TRICKLE_DATABASE_URL and that the server is running",
        ) from None


def taken_over() -> AnotherApplier:
    """Return the error with which a process ends once its epoch has ended."""
    return AnotherApplier(
        "another applier has taken over the stream tables",
        hint="nothing is lost or written twice; start this one again, and it stands by",
    )


class Database:
    """One connection at a time; `prepare` runs on each new one before its first use."""

    def __init__(self, url: str, prepare: Callable[[Connection], None] | None = None) -> None:
        self.url = url
        self._prepare = prepare
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection."""
        if self._connection is None or self._connection.closed:
            connection = connect(self.url)
            if self._prepare is not None:
                try:
                    self._prepare(connection)
                except BaseException:
                    connection.close()
                    raise
            self._connection = connection
        return self._connection

    def cancel(self) -> None:
        """Interrupt the statement that another thread runs at present."""
        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.cancel()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
