"""The source database's connection string, completed for each kind of connection."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared_schema.errors import SettingsError

PINNED_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "timezone": "UTC",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
}
"""Values are printed by the session: stream, snapshot and reader must all print them alike, names qualified."""


NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""A server whose machine died is noticed in about ten seconds; whoever sets one of these keeps it."""


def session_conninfo(database_url: str, *, replication: bool, sender_timeout_s: int | None = None) -> str:
    """-> libpq conninfo with the pinned settings; the user's own `options` stay in front of ours."""
    try:
        given = conninfo_to_dict(database_url)
    except psycopg.Error:
        # libpq's message repeats parts of the string, which may be the password.
        raise SettingsError(
            "setting database_url is neither a PostgreSQL URL nor a key=value string",
            hint="for example postgresql://user@host:5432/database",
        ) from None
    timeout = {} if sender_timeout_s is None else {"wal_sender_timeout": f"{sender_timeout_s}s"}
    pinned = " ".join(f"-c {name}={value}" for name, value in (PINNED_SETTINGS | timeout).items())
    extra: dict[str, str] = {
        "options": f"{given.get('options') or ''} {pinned}".strip(),
        "client_encoding": "UTF8",
        "application_name": str(given.get("application_name") or "pg-trickle-cdc"),
    }
    extra |= {name: value for name, value in NETWORK.items() if name not in given}
    if replication:
        extra["replication"] = "database"
    return make_conninfo(database_url, **extra)
