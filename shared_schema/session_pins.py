"""The settings that every PostgreSQL session of both programs has, whatever the server, the database or the role says.

They decide which objects a name means, how text is read and how values are printed: stream, copy, analysis, full
results and checks must agree on all of it. A session that needs another value says so itself, after the pins. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import LiteralString

PINS: Mapping[str, str] = MappingProxyType(
    {
        "search_path": "pg_catalog, pg_temp",
        "datestyle": "ISO, MDY",
        "intervalstyle": "postgres",
        "timezone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "standard_conforming_strings": "on",
        "transform_null_equals": "off",
    }
)
"""PostgreSQL looks tables and types up in pg_temp before pg_catalog, unless the path names it: what a text of users
leaves there would take the place of the system catalog. The date style is PostgreSQL's own default. Its second half
decides how '01/02/03' is read; only the first half, how dates are printed, reaches stored queries."""

UNLIMITED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"), "0"
    )
)
"""Time limits, which roles and databases have for sessions of people and applications. Copies, streams and snapshots
last as long as they last, and sessions of programs are idle between two uses."""

UNLIMITED_SINCE_17: LiteralString = "SET transaction_timeout = 0"
"""An older server does not know this limit, and rejects its name."""

TRANSACTION_TIMEOUT_SINCE = 170_000

CLIENT_ENCODING = "UTF8"
"""A parameter of the connection, because libpq must know it too."""

OWN_PATH: LiteralString = "SET LOCAL search_path = pg_catalog, pg_temp"
"""For statements of our own in a transaction in which a text of users had its own path."""

PATH_OF_THE_ROLE: LiteralString = r"""set_config('search_path', (
    SELECT concat_ws(', ', nullif(btrim(regexp_replace(
        s.reset_val, '(^|,)\s*"?(pg_catalog|pg_temp)"?\s*(?=,|$)', '', 'g'), ', '), ''), 'pg_temp')
    FROM pg_settings s WHERE s.name = 'search_path'), false)"""
"""An expression that sets the role's own search path without pg_catalog, in sessions that were pinned by a statement.
PostgreSQL looks names up in pg_catalog first when the path does not name it, and creates objects in the first schema of
the path; pg_temp is last. For sessions in which triggers of users run, or operators of types from extensions."""


def options_text(more: Mapping[str, str] | None = None) -> str:
    """Return pins, lifted time limits and `more` for the startup parameter `options`: poolers refuse it."""
    return " ".join(f"-c {name}={_escaped(value)}" for name, value in {**PINS, **UNLIMITED, **(more or {})}.items())


def set_statements() -> str:
    """Return the pins as SET statements in one text: connection poolers accept it."""
    # A list of schemas as one literal would be the name of one schema.
    return "; ".join(
        f"SET {name} = {value if name == 'search_path' else _literal(value)}" for name, value in PINS.items()
    )


def lift_statements(server_version: int) -> str:
    """Return SET statements in one text that lift the time limits of the role, the database and the server."""
    limits = "; ".join(f"SET {name} = {value}" for name, value in UNLIMITED.items())
    return f"{limits}; {UNLIMITED_SINCE_17}" if server_version >= TRANSACTION_TIMEOUT_SINCE else limits


def set_local_query() -> str:
    """Return a query that sets the pins until the end of the transaction, but the search path to its parameter."""
    rest = [f"set_config('{name}', {_literal(value)}, true)" for name, value in PINS.items() if name != "search_path"]
    return f"SELECT set_config('search_path', %s, true), {', '.join(rest)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
