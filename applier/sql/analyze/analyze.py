"""Query text -> PostgreSQL's analysed tree. The IO shell: a view that exists only inside a rolled-back transaction.

The query is never run. What the server resolves depends on settings, so they are pinned: the search path to the
stream table's own, the time zone to UTC, the spelling of dates to ISO.
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

_VIEW: LiteralString = "pgtrickle_definition"
_PREFIX: LiteralString = "CREATE TEMP VIEW " + _VIEW + " AS "
_PIN: LiteralString = (
    "SELECT set_config('search_path', %s, true), set_config('TimeZone', 'UTC', true), "
    "set_config('DateStyle', 'ISO, MDY', true), set_config('IntervalStyle', 'postgres', true), "
    "set_config('transform_null_equals', 'off', true), set_config('standard_conforming_strings', 'on', true), "
    "set_config('extra_float_digits', '1', true), set_config('bytea_output', 'hex', true)"
)
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
    """A column of the result, exactly typed."""

    name: str
    type: PgType
    collation: int


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """What PostgreSQL made of the query text."""

    query: str
    major: int
    tree: str
    columns: tuple[ResultColumn, ...]
    canonical: str
    analysed_at: datetime

    def place(self, token: int | None) -> Place | None:
        """The place in the query text of a byte offset in the analysed statement."""
        return None if token is None else place_of_byte(self.query, token - len(_PREFIX))


def place_of_byte(query: str, offset: int) -> Place | None:
    """The place of a byte of the text; None beyond it."""
    encoded = query.encode()
    if not 0 <= offset <= len(encoded):
        return None
    return Place.at(query, len(encoded[:offset].decode(errors="ignore")))


@contextmanager
def analysis_transaction(connection: psycopg.Connection[Any], search_path: str) -> Iterator[SystemCatalog]:
    """A transaction with pinned settings that leaves no trace; yields the catalog to look things up in."""
    catalog = system_catalog_of(connection)
    with connection.transaction(force_rollback=True):
        _pin(connection, search_path)
        yield catalog


def _pin(connection: psycopg.Connection[Any], search_path: str) -> None:
    try:
        connection.execute(_PIN, [search_path])
    except psycopg.errors.InvalidParameterValue as error:
        raise DefinitionError(
            f"search path {search_path!r} is not valid", hint='write it as in "$user", public'
        ) from error


def analyze(connection: psycopg.Connection[Any], catalog: SystemCatalog, query: str) -> AnalyzedQuery:
    """Let PostgreSQL resolve one query inside an open `analysis_transaction` transaction."""
    _create(connection, query)
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_FIND).fetchone()
        if found is None:
            raise Refused(Reason.NOT_A_QUERY, "this statement", hint="write one SELECT", full_in_postgres=False)
        view, has_options, text, now, _ = found
        if has_options:
            raise Refused(Reason.NOT_A_QUERY, "WITH CHECK OPTION", hint="leave it out", full_in_postgres=False)
        rows = cursor.execute(_RESULT, [view]).fetchall()
    columns = tuple(_result_column(catalog, row) for row in rows)
    return AnalyzedQuery(query, catalog.major, text, columns, rows[0][5] if rows else "", now)


def tree_with_positions(connection: psycopg.Connection[Any], query: str, search_path: str) -> str | None:
    """The analysed tree with byte offsets into the query, which servers since 17 keep in no stored tree.

    They still print it with them for who debugs a server: the query is parsed once more, and not run, while the server
    tells this session what it reads. None where it does not.
    """
    found: list[str] = []

    def told(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.message_primary == "parse tree:" and diagnostic.message_detail:
            found.append(diagnostic.message_detail)

    connection.add_notice_handler(told)
    try:
        with connection.transaction(force_rollback=True):
            _pin(connection, search_path)
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
        connection.remove_notice_handler(told)
    # The tree of the query itself comes first; behind it may stand that of the statement which ends the telling.
    return f"({found[0]})" if found else None


def _result_column(catalog: SystemCatalog, row: tuple[Any, ...]) -> ResultColumn:
    name, oid, typmod, display, collation, _ = row
    info = catalog.type(oid)
    modifier = typmod if typmod >= 0 else info.base_typmod
    return ResultColumn(name, PgType(oid, modifier, catalog.type(info.base).name, display), collation)


def _create(connection: psycopg.Connection[Any], query: str) -> None:
    if "\0" in query:
        raise DefinitionError("the query holds a NUL character", hint="remove it")
    # The binary format makes psycopg use the extended protocol, and that takes exactly one statement.
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
    hint = diagnostic.message_hint or diagnostic.message_detail or "the query must run in PostgreSQL as it is"
    if isinstance(error, psycopg.errors.SyntaxError) and "multiple commands" in message:
        message, hint = "the query is more than one statement", "write one SELECT"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        hint = "queries are analysed where a temporary view can be made: on the primary, in a session that may write"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = "the applier's role needs TEMPORARY on the database and SELECT on the tables"
    return DefinitionError(message, hint=hint, sqlstate=diagnostic.sqlstate or "", place=place)
