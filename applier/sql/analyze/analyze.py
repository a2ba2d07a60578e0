"""The text of a query -> PostgreSQL's analysed tree of it, its result columns and the catalog facts that it names.

The only pass that does IO: it creates a temporary view in a transaction that is rolled back. The query itself is never
run. What the server resolves depends on settings, so they are pinned, but for the search path of the stream table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from applier.sql.analyze.built_ins import built_ins_of
from applier.sql.analyze.read_objects import read_user_objects
from applier.sql.analyze.read_relations import read_relations
from applier.sql.catalog_snapshot import CatalogSnapshot, TypeInfo
from applier.sql.refusal import DefinitionError, Place, Reason, Refused
from shared_schema.pg_types import PgType
from shared_schema.session_pins import set_local_query
from shared_schema.table_schema import Column

_VIEW: LiteralString = "pgtrickle_definition"
_PREFIX: LiteralString = "CREATE TEMP VIEW " + _VIEW + " AS "
_PIN = set_local_query().encode()
"""For the search path of the query; it repeats the other pins, so that any connection can analyse."""

_FIND: LiteralString = (
    # An empty search path makes the names of types name their schemas.
    "SELECT c.oid::int8, c.reloptions IS NOT NULL, r.ev_action::text, now(), "
    "to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL, set_config('search_path', '', true) "
    "FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid "
    "WHERE c.relnamespace = pg_my_temp_schema() AND c.relname = '" + _VIEW + "'"
)


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """PostgreSQL's analysis of a query text."""

    query: str
    search_path: str
    tree: str
    columns: tuple[Column, ...]
    analysed_at: datetime
    catalog: CatalogSnapshot

    def base_columns(self) -> list[tuple[str, int, int]]:
        """Return names, types and modifiers of the result columns; a domain is its base type."""
        return [(c.name, self.catalog.type(c.type.oid).base, c.type.typmod) for c in self.columns]

    def place(self, token: int | None) -> Place | None:
        """Return the place in the query text of a byte offset in the analysed statement."""
        return None if token is None else place_of_byte(self.query, token - len(_PREFIX))


def place_of_byte(query: str, offset: int) -> Place | None:
    """Return the place of a byte of the text; None outside of the text."""
    encoded = query.encode()
    if not 0 <= offset <= len(encoded):
        return None
    return Place.at(query, len(encoded[:offset].decode(errors="ignore")))


def analyze(
    connection: psycopg.Connection[Any],
    query: str,
    search_path: str,
    expected_digests: Mapping[int, str] | None = None,
) -> AnalyzedQuery:
    """Let PostgreSQL analyse one query; `expected_digests` are those of the functions of a stored query.

    Raises DefinitionError when PostgreSQL does not accept the query, Refused when it is not a single SELECT.
    """
    built_ins = built_ins_of(connection)
    with connection.transaction(force_rollback=True):
        _pin_settings(connection, search_path)
        _create_view(connection, query)
        with connection.cursor(row_factory=tuple_row) as cursor:
            found = cursor.execute(_FIND).fetchone()
        if found is None:
            raise Refused(Reason.NOT_A_QUERY, "this statement", hint="write a single SELECT", full_in_postgres=False)
        view, has_options, tree, now, has_stream_tables, _ = found
        if has_options:
            hint = "it is for views that are written to; remove WITH CHECK OPTION"
            raise Refused(Reason.NOT_A_QUERY, "WITH CHECK OPTION", hint=hint, full_in_postgres=False)
        rows = read_relations(connection, view, tree, has_stream_tables)
        trees = [tree, *(row.rule for oid, row in rows.items() if row.rule is not None and oid != view)]
        column_types = (oid for row in rows.values() for oid in row.column_types())
        user_objects = read_user_objects(connection, built_ins, trees, column_types)
    types = {**built_ins.objects.types, **user_objects.types}
    relations = {oid: row.info(lambda *column: _column_type(types, *column)) for oid, row in rows.items()}
    result = relations.pop(view)
    catalog = CatalogSnapshot(
        major=built_ins.major,
        built_in_objects=built_ins.objects,
        signatures=built_ins.signatures,
        objects=user_objects.objects(),
        function_texts=user_objects.function_texts,
        aggregates=user_objects.aggregates,
        relations=relations,
        expected_digests=expected_digests,
    )
    columns = tuple(Column(column.name, column.type) for column in result.columns)
    return AnalyzedQuery(query, search_path, tree, columns, now, catalog)


def _pin_settings(connection: psycopg.Connection[Any], search_path: str) -> None:
    try:
        connection.execute(_PIN, [search_path])
    except psycopg.errors.InvalidParameterValue as error:
        raise DefinitionError(
            f"search path {search_path!r} is not valid", hint='write it like this: "$user", public'
        ) from error


def _column_type(types: Mapping[int, TypeInfo], oid: int, typmod: int, display: str) -> PgType:
    info = types[oid]
    return PgType(oid, typmod if typmod >= 0 else info.base_typmod, types[info.base].name, display)


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
