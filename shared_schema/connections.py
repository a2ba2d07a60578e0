"""Completes connection strings to PostgreSQL, so that both sides quickly detect a lost connection."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared_schema.errors import SettingsError

NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""With these a failed server machine is detected in about ten seconds; values in the connection string win."""

SERVER_SIDE: LiteralString = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = '10s'"
)
"""The same for the server's side: otherwise the server would hold the locks of a lost session for hours. No effect on
local sockets."""


def conninfo(database_url: str, **more: str) -> str:
    """Return the connection string with `more`, and with those options of NETWORK that it does not set itself."""
    given = parse_conninfo(database_url)
    return make_conninfo(database_url, **more, **{name: value for name, value in NETWORK.items() if name not in given})


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
