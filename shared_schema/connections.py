"""Opens every PostgreSQL session of both programs: with the pins, and so that a lost connection is quickly detected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared_schema import session_pins
from shared_schema.errors import SettingsError

NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""With these a failed server machine is detected in about ten seconds; values in the connection string win."""

SERVER_SIDE = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = '10s'"
)
"""The same for the server's side: otherwise the server would hold the locks of a lost session for hours. No effect on
local sockets."""


def connect_with_statement(
    database_url: str, *, application_name: str, replication: bool = False
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit session and pin it with one statement: this also works through a connection pooler."""
    more = {"replication": "database"} if replication else {}
    text = _conninfo(database_url, application_name=application_name, **more)
    connection = psycopg.connect(text, autocommit=True)
    try:
        lift = session_pins.lift_statements(connection.info.server_version)
        # Without parameters it is the simple protocol, which is the only one that a walsender knows.
        connection.execute(f"{session_pins.set_statements()}; {lift}; {SERVER_SIDE}".encode())
    except BaseException:
        connection.close()
        raise
    return connection


def connect_with_options(
    database_url: str, *, application_name: str, replication: bool = False, more: Mapping[str, str] | None = None
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit session whose startup parameters hold the pins and `more` settings."""
    text = pinned_conninfo(database_url, application_name=application_name, replication=replication, more=more)
    connection = psycopg.connect(text, autocommit=True)
    if connection.info.server_version < session_pins.TRANSACTION_TIMEOUT_SINCE:
        return connection
    try:
        # The only limit that not every server knows: as a startup parameter it would be an error there.
        connection.execute(session_pins.UNLIMITED_SINCE_17)
    except BaseException:
        connection.close()
        raise
    return connection


def pinned_conninfo(
    database_url: str, *, application_name: str, replication: bool = False, more: Mapping[str, str] | None = None
) -> str:
    """Return a libpq conninfo with the pins and `more` settings; the user's own `options` come before them."""
    given = parse_conninfo(database_url)
    extra = {
        "options": f"{given.get('options', '')} {session_pins.options_text(more)}".strip(),
        "application_name": given.get("application_name", application_name),
    }
    if replication:
        extra["replication"] = "database"
    return _conninfo(database_url, **extra)


def _conninfo(database_url: str, **more: str) -> str:
    """Return the connection string with `more`, and with those options of NETWORK that it does not set itself."""
    given = parse_conninfo(database_url)
    network = {name: value for name, value in NETWORK.items() if name not in given}
    return make_conninfo(database_url, client_encoding=session_pins.CLIENT_ENCODING, **more, **network)


def parse_conninfo(database_url: str) -> dict[str, str]:
    """Return the options of a URL or key=value string."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(database_url).items() if value is not None}
    except psycopg.Error:
        # libpq's message repeats parts of the string, which may be the password.
        raise SettingsError(
            "setting database_url is neither a PostgreSQL URL nor a key=value string",
            hint="for example postgresql://user@host:5432/database",
        ) from None
