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
        "search_path": "pg_catalog",
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
"""The date style is PostgreSQL's own default. Its second half decides how '01/02/03' is read; only the first half, how
dates are printed, reaches stored queries."""

CLIENT_ENCODING = "UTF8"
"""A parameter of the connection, because libpq must know it too."""

PATH_OF_THE_ROLE: LiteralString = r"""set_config('search_path', (
    SELECT btrim(regexp_replace(s.reset_val, '(^|,)\s*"?pg_catalog"?\s*(?=,|$)', '', 'g'), ', ')
    FROM pg_settings s WHERE s.name = 'search_path'), false)"""
"""An expression that sets the role's own search path without pg_catalog, in sessions that were pinned by a statement.
PostgreSQL looks names up in pg_catalog first when the path does not name it, and creates objects in the first schema of
the path. For sessions in which triggers of users run, or operators of types from extensions."""


def options_text(more: Mapping[str, str] | None = None) -> str:
    """Return the pins and `more` for the startup parameter `options`: no round trip, but poolers refuse it."""
    return " ".join(f"-c {name}={_escaped(value)}" for name, value in {**PINS, **(more or {})}.items())


def set_statements() -> str:
    """Return the pins as SET statements in one text: one round trip, and connection poolers accept it."""
    return "; ".join(f"SET {name} = {_literal(value)}" for name, value in PINS.items())


def set_local_query() -> str:
    """Return a query that sets the pins until the end of the transaction, but the search path to its parameter."""
    rest = [f"set_config('{name}', {_literal(value)}, true)" for name, value in PINS.items() if name != "search_path"]
    return f"SELECT set_config('search_path', %s, true), {', '.join(rest)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
