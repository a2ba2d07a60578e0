"""A database URL in; a transaction that sees the database exactly at a known LSN out.

An ordinary snapshot has no LSN: a commit is in the log before other sessions see it, and two commits may become visible
in the other order. A temporary logical slot finds a point where both orders agree and exports the snapshot of that
point: it holds what commits before the point, and nothing else. No table is locked; finding the point waits until every
write transaction that runs at that moment has ended (decision 18).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import psycopg
from psycopg import pq, sql

from applier.catalog.database import Connection, connect
from applier.errors import Infrastructure, RefreshFailed
from applier.unexpected import is_away_state
from shared_schema.connections import connect_with_statement
from shared_schema.lsn import Lsn

_numbers = count()

PARENTHESES_SINCE = 150_000
"""server_version_num from which the options of CREATE_REPLICATION_SLOT are a list in parentheses."""


class PinnedSnapshots:
    """Opens transactions at a known LSN; `stop` may be called from another thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[Connection] = []
        self._stopped = False

    def stop(self) -> None:
        """Interrupt all running transactions and refuse later ones."""
        self._stopped = True
        for connection in list(self._open):
            with suppress(psycopg.Error):
                connection.cancel()

    @contextmanager
    def pin(self) -> Iterator[tuple[Connection, Lsn]]:
        """Open a connection inside a REPEATABLE READ transaction, with its LSN; the end rolls it back."""
        with self._register(_connect_replication(self._url)) as exporter:
            at, snapshot = _export_snapshot(exporter)
            with self._register(connect(self._url)) as reader:
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
                # From here on the reader itself holds the snapshot; the temporary slot ends with its session.
                exporter.close()
                yield reader, at

    @contextmanager
    def _register(self, connection: Connection) -> Iterator[Connection]:
        """Let `stop` cancel the connection while the block runs; close it afterwards."""
        self._open.append(connection)
        try:
            if self._stopped:
                raise Infrastructure("the applier is stopping")
            yield connection
        finally:
            self._open.remove(connection)
            connection.close()


def _connect_replication(url: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        return connect_with_statement(url, application_name="pg-trickle-applier snapshot", replication=True)
    except psycopg.OperationalError as error:
        raise Infrastructure(
            f"a snapshot at a known LSN cannot be taken: {str(error).splitlines()[0]}",
            hint="the applier's role needs REPLICATION, and max_wal_senders must allow one more connection",
        ) from error


def _export_snapshot(exporter: psycopg.Connection[tuple[object, ...]]) -> tuple[Lsn, str]:
    name = f"pg_trickle_full_{os.getpid()}_{next(_numbers)}"
    option = "(SNAPSHOT 'export')" if exporter.info.server_version >= PARENTHESES_SINCE else "EXPORT_SNAPSHOT"
    # With the simple protocol: a walsender knows no other. Members of a role do not inherit REPLICATION: the role that
    # logged in must have it itself, whatever role its sessions use.
    exporter.pgconn.exec_(b"SET ROLE NONE")
    result = exporter.pgconn.exec_(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput {option}".encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        kind = Infrastructure if not state or is_away_state(state) else RefreshFailed
        raise kind(
            f"a snapshot at a known LSN cannot be taken: {result.error_message.decode(errors='replace').strip()}",
            hint="max_replication_slots must allow one more slot",
        )
    at, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
    return Lsn.parse(at.decode()), snapshot.decode()
