"""The text of a query -> PostgreSQL's analysed tree of it, its result columns and the catalog facts that it names.

The only pass that does IO: it creates a temporary view in a transaction that is rolled back. The query itself is never
run. What the server resolves depends on settings, so they are pinned, but for the search path of the stream table. The
search path of a text is in force while only the text is looked up: no statement of our own runs under it.

Text of users is analysed with the rights of one role, which it cannot leave (`Confined`). A question of another session
comes as the tree that PostgreSQL made of it there, so that nothing of it is run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from applier.catalog.confined import Confined
from applier.sql.analyze.built_ins import BuiltIns, built_ins_of
from applier.sql.analyze.read_objects import read_user_objects
from applier.sql.analyze.read_relations import RelationRow, read_relations, relids_of
from applier.sql.catalog_snapshot import CatalogSnapshot, TypeInfo
from applier.sql.refusal import DefinitionError, Place, Reason, Refused
from shared_schema.pg_types import PgType
from shared_schema.session_pins import set_local_query
from shared_schema.table_schema import Column

_VIEW: LiteralString = "pgtrickle_definition"
_PREFIX: LiteralString = "CREATE TEMP VIEW " + _VIEW + " AS "
_PIN = set_local_query().encode()
"""For the search path of the query; it repeats the other pins, so that any connection can analyse."""

_OWN_PATH: LiteralString = "SET LOCAL search_path = ''"
"""For statements of our own: PostgreSQL's objects alone, and the names of types name their schemas."""

_FIND: LiteralString = (
    "SELECT c.oid::int8, r.ev_action::text, now(), to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL "
    "FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid "
    "WHERE c.relnamespace = pg_my_temp_schema() AND c.relname = '" + _VIEW + "'"
)
_CHECK_OPTION = re.compile(r"\bwith\s+(local\s+|cascaded\s+)?check\s+option\s*;?\s*$", re.IGNORECASE)
"""What a view accepts after its query."""

_PREPARE: LiteralString = "PREPARE pgtrickle_places AS "


@dataclass(frozen=True, slots=True)
class RequestedQuery:
    """A query that another session analysed as a view."""

    query: str
    tree: str
    view: int
    """The object id of the view there, which the tree may name."""
    text_at: int
    """Where the text begins in the statement that the tree is of."""
    columns: tuple[tuple[str, int, int, str], ...]
    """Name, object id and modifier of the type, the type as PostgreSQL prints it."""
    shape: str
    """The columns of its relations there, as `pgtrickle._shape` prints them."""


_CANONICAL: LiteralString = (
    "SELECT r.ev_action::text, pgtrickle._canonical(c.oid) FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid "
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
    text_at: int = len(_PREFIX)
    """Where the text begins in the statement that was analysed."""
    role: str | None = None
    """With whose rights the text may be looked at again; None with those of the session."""
    may_rerun: bool = True
    """Whether the text may be given to the server again."""

    def base_columns(self) -> list[tuple[str, int, int]]:
        """Return names, types and modifiers of the result columns; a domain is its base type."""
        return [(c.name, self.catalog.type(c.type.oid).base, c.type.typmod) for c in self.columns]

    def place(self, token: int | None) -> Place | None:
        """Return the place in the query text of a byte offset in the analysed statement."""
        return None if token is None else place_of_byte(self.query, token - self.text_at)


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
    role: str | None = None,
) -> AnalyzedQuery:
    """Let PostgreSQL analyse one query with the rights of a role; `expected_digests` are those of the functions of a
    stored query.

    Raises DefinitionError when PostgreSQL does not accept the query, Refused when it is not a single SELECT.
    """
    built_ins = built_ins_of(connection)
    with connection.transaction(force_rollback=True):
        confined = _confine(connection, role)
        _pin_settings(connection, search_path)
        _create_view(confined, query)
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_OWN_PATH + "; " + _FIND).nextset()
            found = cursor.fetchone()
        if found is None:
            raise Refused(Reason.NOT_A_QUERY, "this statement", hint="write a single SELECT", full_in_postgres=False)
        view, tree, now, has_stream_tables = found
        rows = read_relations(connection, {view, *relids_of(tree)}, has_stream_tables, own_view=view)
        catalog = _read_catalog(connection, built_ins, tree, rows, confined, own_view=view)
    catalog = replace(catalog, expected_digests=expected_digests)
    result = catalog.relations[view]
    catalog = replace(catalog, relations={oid: info for oid, info in catalog.relations.items() if oid != view})
    columns = tuple(Column(column.name, column.type) for column in result.columns)
    return AnalyzedQuery(query, search_path, tree, columns, now, catalog, role=role)


def analyze_requested(connection: psycopg.Connection[Any], requested: RequestedQuery, role: str) -> AnalyzedQuery:
    """Read what the tree of a question names. Nothing of the question is run; `role` must be able to read it.

    Raises DefinitionError when an object is missing or the role may not read it.
    """
    built_ins = built_ins_of(connection)
    with connection.transaction(force_rollback=True):
        _pin_settings(connection, "")
        relids = set(relids_of(requested.tree)) - {requested.view}
        _check_readable(connection, relids, role)
        if connection.execute(_SHAPE, (sorted(relids),)).fetchone() != (requested.shape,):
            raise DefinitionError(
                "a table of the query is locked by a transaction that altered it",
                hint="ask before altering it, or after the commit",
                sqlstate=psycopg.errors.LockNotAvailable.sqlstate or "",
            )
        found = connection.execute(_BECOMES, (role,)).fetchone()
        confined = _confine(connection, role) if found is not None and found[0] else None
        [(now, has_stream_tables)] = connection.execute(_NOW).fetchall()
        rows = read_relations(connection, relids, has_stream_tables)
        types = [column[1] for column in requested.columns]
        catalog = _read_catalog(connection, built_ins, requested.tree, rows, confined, more_types=types)
    columns = tuple(
        Column(name, _column_type({**built_ins.objects.types, **catalog.objects.types}, oid, typmod, display))
        for name, oid, typmod, display in requested.columns
    )
    return AnalyzedQuery(
        requested.query, "pg_catalog", requested.tree, columns, now, catalog, requested.text_at, role, may_rerun=False
    )


_READABLE: LiteralString = (
    "SELECT o.oid::int8, c.oid::regclass::text, c.oid IS NULL OR has_table_privilege(%(role)s, c.oid, 'SELECT')"
    " OR has_any_column_privilege(%(role)s, c.oid, 'SELECT'), c.oid IS NULL"
    " FROM unnest(%(oids)s::int8[]) o(oid) LEFT JOIN pg_class c ON c.oid = o.oid::oid"
)
_NOW: LiteralString = "SELECT now(), to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL"
_SHAPE: LiteralString = "SELECT pgtrickle._shape(%s::int8[]::oid[])"
_BECOMES: LiteralString = "SELECT pg_has_role(session_user, %s, 'MEMBER')"


def _check_readable(connection: psycopg.Connection[Any], relids: set[int], role: str) -> None:
    for _, name, readable, missing in connection.execute(_READABLE, {"role": role, "oids": sorted(relids)}).fetchall():
        if missing:
            hint = "ask after the commit of the transaction that created it"
            raise DefinitionError("a table of the query does not exist yet for others", hint=hint, sqlstate="42P01")
        if not readable:
            raise DefinitionError(
                f"permission denied for {name}", hint=f"grant SELECT on it to {role}", sqlstate="42501"
            )


def _confine(connection: psycopg.Connection[Any], role: str | None) -> Confined:
    try:
        return Confined(connection, role)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _definition_error(error, "") from error


def _read_catalog(
    connection: psycopg.Connection[Any],
    built_ins: BuiltIns,
    tree: str,
    rows: Mapping[int, RelationRow],
    confined: Confined | None,
    *,
    own_view: int | None = None,
    more_types: Iterable[int] = (),
) -> CatalogSnapshot:
    trees = [tree, *(row.rule for oid, row in rows.items() if row.rule is not None and oid != own_view)]
    column_types = [*(oid for row in rows.values() for oid in row.column_types()), *more_types]
    user_objects = read_user_objects(connection, built_ins, trees, column_types, confined)
    types = {**built_ins.objects.types, **user_objects.types}
    return CatalogSnapshot(
        major=built_ins.major,
        built_in_objects=built_ins.objects,
        signatures=built_ins.signatures,
        objects=user_objects.objects(),
        function_texts=user_objects.function_texts,
        aggregates=user_objects.aggregates,
        relations={oid: row.info(lambda *column: _column_type(types, *column)) for oid, row in rows.items()},
        expected_digests=None,
    )


def canonical_query(connection: psycopg.Connection[Any], query: str, role: str | None = None) -> tuple[str, str]:
    """Return the tree of a stored query, and its text as PostgreSQL prints it with the present names of everything."""
    with connection.transaction(force_rollback=True):
        confined = _confine(connection, role)
        _pin_settings(connection, "pg_catalog")
        _create_view(confined, query)
        with connection.cursor(row_factory=tuple_row) as cursor:
            tree, canonical = cursor.execute(_CANONICAL).fetchall()[0]
    return str(tree), str(canonical)


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


def tree_with_positions(connection: psycopg.Connection[Any], analyzed: AnalyzedQuery) -> tuple[str, int] | None:
    """Return the analysed tree with byte offsets, which servers since 17 store in no tree, and where the text begins.

    These servers still print the offsets in their debug output (debug_print_parse). So the query is prepared once more,
    and not run, while the server sends this output to the session. None where the server does not send it.
    """
    if not analyzed.may_rerun:
        return None
    found: list[str] = []

    def collect(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.message_primary == "parse tree:" and diagnostic.message_detail:
            found.append(diagnostic.message_detail)

    connection.add_notice_handler(collect)
    try:
        with connection.transaction(force_rollback=True):
            confined = Confined(connection, analyzed.role)
            _pin_settings(connection, analyzed.search_path)
            connection.execute("SET LOCAL debug_pretty_print = off; SET LOCAL client_min_messages = log")
            connection.execute("SET LOCAL debug_print_parse = on")
            confined.run(_PREPARE + analyzed.query)
            connection.execute("SET LOCAL debug_print_parse = off; DEALLOCATE pgtrickle_places")
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return None
    finally:
        connection.remove_notice_handler(collect)
    # There are trees of the statements around it too; they are short, or those of a command.
    queries = [tree for tree in found if tree.startswith("{QUERY :commandType 1 ")]
    return (f"({max(queries, key=len)})", len(_PREPARE)) if queries else None


def _create_view(confined: Confined, query: str) -> None:
    if "\0" in query:
        raise DefinitionError("the query contains a NUL character", hint="remove the character")
    if _CHECK_OPTION.search(query):
        hint = "it is for views that are written to; remove WITH CHECK OPTION"
        raise Refused(Reason.NOT_A_QUERY, "WITH CHECK OPTION", hint=hint, full_in_postgres=False)
    try:
        confined.run(_PREFIX + query, probe=query)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        raise _definition_error(error, query) from error


def _definition_error(error: psycopg.Error, query: str) -> DefinitionError:
    diagnostic = error.diag
    place = None
    statement = diagnostic.internal_query or ""
    if diagnostic.internal_position and statement.endswith(query):
        place = Place.at(query, int(diagnostic.internal_position) - 1 - (len(statement) - len(query)))
    message = diagnostic.message_primary or str(error)
    hint = diagnostic.message_hint or diagnostic.message_detail or "correct the query: PostgreSQL must accept it first"
    sqlstate = diagnostic.sqlstate or ""
    if isinstance(error, psycopg.errors.InvalidCursorDefinition):
        message, hint, sqlstate = "the query is not one SELECT", "write a single SELECT", "42601"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        hint = "the analysis creates a temporary view; connect to the primary, in a session that is not read-only"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = "grant TEMPORARY on the database and SELECT on the tables to the owner of the stream table"
    return DefinitionError(message, hint=hint, sqlstate=sqlstate, place=place)
