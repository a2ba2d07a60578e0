"""Takes the source database's connection string, returns it completed for each kind of connection."""

from __future__ import annotations

from shared_schema.connections import conninfo, parse_conninfo

PINNED_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "timezone": "UTC",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
}
"""The session settings decide how values are printed: stream, snapshot and readers must print the same text, with
qualified names."""


def session_conninfo(database_url: str, *, replication: bool, sender_timeout_s: int | None = None) -> str:
    """Return a libpq conninfo with the pinned settings; the user's own `options` come before them."""
    given = parse_conninfo(database_url)
    timeout = {} if sender_timeout_s is None else {"wal_sender_timeout": f"{sender_timeout_s}s"}
    pinned = " ".join(f"-c {name}={value}" for name, value in (PINNED_SETTINGS | timeout).items())
    extra: dict[str, str] = {
        "options": f"{given.get('options', '')} {pinned}".strip(),
        "client_encoding": "UTF8",
        "application_name": given.get("application_name", "pg-trickle-cdc"),
    }
    if replication:
        extra["replication"] = "database"
    return conninfo(database_url, **extra)
