"""How a connection to PostgreSQL notices that the other side is gone."""

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
"""A server whose machine died is noticed in about ten seconds; whoever sets one of these keeps it."""

SERVER_SIDE: LiteralString = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = '10s'"
)
"""The same for the other direction: else a session we lost keeps its locks for hours. Says nothing on local sockets."""


def conninfo(database_url: str, **more: str) -> str:
    """A URL or key=value string with `more`, and with what it does not say itself of NETWORK."""
    given = parse_conninfo(database_url)
    return make_conninfo(database_url, **more, **{name: value for name, value in NETWORK.items() if name not in given})


def parse_conninfo(database_url: str) -> dict[str, str]:
    """The parts of a URL or key=value string."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(database_url).items() if value is not None}
    except psycopg.Error:
        # libpq's message repeats parts of the string, which may be the password.
        raise SettingsError(
            "setting database_url is neither a PostgreSQL URL nor a key=value string",
            hint="for example postgresql://user@host:5432/database",
        ) from None
