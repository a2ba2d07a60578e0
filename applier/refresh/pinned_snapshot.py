"""A transaction that sees the database exactly as of a known position in the log.

The snapshots that sessions take by themselves have no position: a commit is written to the log before others see it,
and two commits may become visible in the other order. A temporary logical slot finds a point where the two agree and
exports the snapshot that belongs to it: it holds what commits before the point, and nothing else. No table is locked;
finding the point waits until every write transaction that runs at that moment has ended (decision 18).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import psycopg
from psycopg import pq, sql

from applier.catalog.database import Connection, connect
from applier.errors import Infrastructure
from shared_schema.connections import conninfo
from shared_schema.lsn import Lsn

_numbers = count()

PARENTHESES_SINCE = 150_000
"""server_version_num from which options of CREATE_REPLICATION_SLOT are a list."""


class PinnedSnapshots:
    """Takes such snapshots; `stop` may be called from another thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[Connection] = []
        self._stopped = False

    def stop(self) -> None:
        """Interrupt whoever waits for a point or reads; later ones are refused."""
        self._stopped = True
        for connection in list(self._open):
            with suppress(psycopg.Error):
                connection.cancel()

    @contextmanager
    def pinned(self) -> Iterator[tuple[Connection, Lsn]]:
        """A connection inside a REPEATABLE READ transaction, and its position; what it does is rolled back."""
        with self._opened(_replication(self._url)) as exporter:
            at, snapshot = _export(exporter)
            with self._opened(connect(self._url)) as reader:
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
                # From here on the reader holds the snapshot by itself, and the slot goes with its session.
                exporter.close()
                yield reader, at

    @contextmanager
    def _opened(self, connection: Connection) -> Iterator[Connection]:
        self._open.append(connection)
        try:
            if self._stopped:
                raise Infrastructure("the applier stops")
            yield connection
        finally:
            self._open.remove(connection)
            connection.close()


def _replication(url: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        return psycopg.connect(
            conninfo(url, application_name="pg-trickle-applier snapshot", replication="database"), autocommit=True
        )
    except psycopg.OperationalError as error:
        raise Infrastructure(
            f"no snapshot of a known position can be taken: {str(error).splitlines()[0]}",
            hint="the applier's role needs REPLICATION, and max_wal_senders one more place",
        ) from error


def _export(exporter: psycopg.Connection[tuple[object, ...]]) -> tuple[Lsn, str]:
    name = f"pg_trickle_full_{os.getpid()}_{next(_numbers)}"
    option = "(SNAPSHOT 'export')" if exporter.info.server_version >= PARENTHESES_SINCE else "EXPORT_SNAPSHOT"
    # By the simple protocol: a walsender knows no other. REPLICATION is not inherited by members of a role: it is the
    # role that logged in which has it, whatever its sessions act as.
    exporter.pgconn.exec_(b"SET ROLE NONE")
    result = exporter.pgconn.exec_(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput {option}".encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise Infrastructure(
            f"no snapshot of a known position can be taken: {result.error_message.decode(errors='replace').strip()}",
            hint="max_replication_slots needs one more place",
        )
    at, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
    return Lsn.parse(at.decode()), snapshot.decode()
