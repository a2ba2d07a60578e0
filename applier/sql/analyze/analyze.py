"""The text of a query -> PostgreSQL's analysed tree, result columns and canonical text.

Does IO: it creates a temporary view in a transaction that is rolled back. The query itself is never run. What the
server resolves depends on settings, so they are pinned: the search path to that of the stream table, the time zone to
UTC, the date style to ISO.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from applier.sql.analyze.system_catalog import SystemCatalog, system_catalog_of
from applier.sql.refusal import DefinitionError, Place, Reason, Refused
from shared_schema.pg_types import PgType
from shared_schema.session_pins import set_local_query

_VIEW: LiteralString = "pgtrickle_definition"
_PREFIX: LiteralString = "CREATE TEMP VIEW " + _VIEW + " AS "
_PIN = set_local_query().encode()
"""For sessions whose search path is another one; it repeats the other pins, so that any connection can analyse."""

_FIND: LiteralString = (
    # An empty search path makes the canonical text name every schema.
    "SELECT c.oid::int8, c.reloptions IS NOT NULL, r.ev_action::text, now(), set_config('search_path', '', true) "
    "FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid "
    "WHERE c.relnamespace = pg_my_temp_schema() AND c.relname = '" + _VIEW + "'"
)
_RESULT: LiteralString = (
    "SELECT attname::text, atttypid::int8, atttypmod, format_type(atttypid, atttypmod), attcollation::int8, "
    "pg_get_viewdef(attrelid) FROM pg_attribute "
    "WHERE attrelid = %s::int8::oid AND attnum > 0 ORDER BY attnum"
)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result, with its exact type."""

    name: str
    type: PgType
    collation: int


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """PostgreSQL's analysis of a query text."""

    query: str
    major: int
    tree: str
    columns: tuple[ResultColumn, ...]
    canonical: str
    analysed_at: datetime

    def place(self, token: int | None) -> Place | None:
        """Return the place in the query text of a byte offset in the analysed statement."""
        return None if token is None else place_of_byte(self.query, token - len(_PREFIX))


def place_of_byte(query: str, offset: int) -> Place | None:
    """Return the place of a byte of the text; None outside of the text."""
    encoded = query.encode()
    if not 0 <= offset <= len(encoded):
        return None
    return Place.at(query, len(encoded[:offset].decode(errors="ignore")))


@contextmanager
def analysis_transaction(connection: psycopg.Connection[Any], search_path: str) -> Iterator[SystemCatalog]:
    """Open a transaction with pinned settings that is rolled back at its end; yields the catalog of the server."""
    catalog = system_catalog_of(connection)
    with connection.transaction(force_rollback=True):
        _pin_settings(connection, search_path)
        yield catalog


def _pin_settings(connection: psycopg.Connection[Any], search_path: str) -> None:
    try:
        connection.execute(_PIN, [search_path])
    except psycopg.errors.InvalidParameterValue as error:
        raise DefinitionError(
            f"search path {search_path!r} is not valid", hint='write it like this: "$user", public'
        ) from error


def analyze(connection: psycopg.Connection[Any], catalog: SystemCatalog, query: str) -> AnalyzedQuery:
    """Let PostgreSQL analyse one query inside an open `analysis_transaction`."""
    _create_view(connection, query)
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_FIND).fetchone()
        if found is None:
            raise Refused(Reason.NOT_A_QUERY, "this statement", hint="write a single SELECT", full_in_postgres=False)
        view, has_options, text, now, _ = found
        if has_options:
            hint = "it is for views that are written to; remove WITH CHECK OPTION"
            raise Refused(Reason.NOT_A_QUERY, "WITH CHECK OPTION", hint=hint, full_in_postgres=False)
        rows = cursor.execute(_RESULT, [view]).fetchall()
    columns = tuple(_result_column(catalog, row) for row in rows)
    return AnalyzedQuery(query, catalog.major, text, columns, rows[0][5] if rows else "", now)


def tree_with_positions(connection: psycopg.Connection[Any], query: str, search_path: str) -> str | None:
    """Return the analysed tree with byte offsets into the query, which servers since 17 store in no tree.

    These servers still print the offsets in their debug output (debug_print_parse). So the query is parsed once more,
    and not run, while the server sends this output to the session. None where the server does not send it.
    """
    found: list[str] = []

    def collect(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.message_primary == "parse tree:" and diagnostic.message_detail:
            found.append(diagnostic.message_detail)

    connection.add_notice_handler(collect)
    try:
        with connection.transaction(force_rollback=True):
            _pin_settings(connection, search_path)
            connection.execute(
                "SELECT set_config('debug_pretty_print', 'off', true), set_config('client_min_messages', 'log', true)"
            )
            connection.execute("SET LOCAL debug_print_parse = on")
            connection.pgconn.prepare(b"", query.encode(connection.info.encoding))
            connection.execute("SET LOCAL debug_print_parse = off")
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return None
    finally:
        connection.remove_notice_handler(collect)
    # The tree of the query comes first; the tree of the statement that turns the output off may follow.
    return f"({found[0]})" if found else None


def _result_column(catalog: SystemCatalog, row: tuple[Any, ...]) -> ResultColumn:
    name, oid, typmod, display, collation, _ = row
    info = catalog.type(oid)
    modifier = typmod if typmod >= 0 else info.base_typmod
    return ResultColumn(name, PgType(oid, modifier, catalog.type(info.base).name, display), collation)


def _create_view(connection: psycopg.Connection[Any], query: str) -> None:
    if "\0" in query:
        raise DefinitionError("the query contains a NUL character", hint="remove the character")
    # The binary format makes psycopg use the extended protocol, which accepts exactly one statement.
    with connection.cursor(binary=True) as cursor:
        try:
            cursor.execute((_PREFIX + query).encode(connection.info.encoding), prepare=False)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            raise _definition_error(error, query) from error


def _definition_error(error: psycopg.Error, query: str) -> DefinitionError:
    diagnostic = error.diag
    place = None
    if diagnostic.statement_position:
        place = Place.at(query, int(diagnostic.statement_position) - 1 - len(_PREFIX))
    message = diagnostic.message_primary or str(error)
    hint = diagnostic.message_hint or diagnostic.message_detail or "correct the query: PostgreSQL must accept it first"
    if isinstance(error, psycopg.errors.SyntaxError) and "multiple commands" in message:
        message, hint = "the query is more than one statement", "write a single SELECT"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        hint = "the analysis creates a temporary view; connect to the primary, in a session that is not read-only"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = "grant TEMPORARY on the database and SELECT on the tables to the role of the applier"
    return DefinitionError(message, hint=hint, sqlstate=diagnostic.sqlstate or "", place=place)
