"""The objects that initdb created in a database, read once per connection. Does IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import tuple_row

from applier.sql.catalog_snapshot import (
    CatalogObjects,
    CollationInfo,
    FunctionInfo,
    OperatorInfo,
    TypeInfo,
    Volatility,
)

TYPE_FIELDS: LiteralString = (
    "t.oid::int8, t.typname::text, format_type(t.oid, NULL), t.typbasetype::int8, t.typtypmod, t.typtype = 'e', "
    "t.typtype = 'c' OR t.typname = 'record' AND t.oid < 16384, t.typarray::int8"
)
_TYPES: LiteralString = "SELECT " + TYPE_FIELDS + " FROM pg_type t WHERE oid < 16384"
_FUNCTIONS: LiteralString = (
    "SELECT oid::int8, proname::text, proargtypes::text, provolatile::text, proisstrict "
    "FROM pg_proc WHERE oid < 16384 ORDER BY pronamespace <> 'pg_catalog'::regnamespace"
)
_OPERATORS: LiteralString = "SELECT oid::int8, oprname::text, oprcode::oid::int8 FROM pg_operator WHERE oid < 16384"
_COLLATION_HEAD: LiteralString = (
    "c.oid::int8, c.collname::text, c.collisdeterministic, CASE WHEN c.collprovider = 'd' THEN "
)
_COLLATION_TAIL: LiteralString = (
    " ELSE c.collprovider::text END, CASE WHEN c.collprovider = 'd' THEN datcollate ELSE c.collcollate END, "
    "pg_encoding_to_char(encoding) = 'UTF8', CASE WHEN c.collprovider = 'd' THEN datctype ELSE c.collctype END"
)
COLLATIONS_FROM: LiteralString = "FROM pg_collation c, pg_database WHERE datname = current_database()"


def collation_fields(major: int) -> LiteralString:
    """Return the columns that `read_collation` reads, of pg_collation c and pg_database."""
    provider: LiteralString = "datlocprovider::text" if major >= 15 else "'c'"
    return _COLLATION_HEAD + provider + _COLLATION_TAIL


@dataclass(frozen=True, slots=True)
class BuiltIns:
    """The server's version, its built-in objects, and the object ids of its functions by signature."""

    major: int
    objects: CatalogObjects
    signatures: dict[str, int]


_OF_CONNECTIONS: WeakKeyDictionary[psycopg.Connection[Any], BuiltIns] = WeakKeyDictionary()


def built_ins_of(connection: psycopg.Connection[Any]) -> BuiltIns:
    """Return the built-in objects of the connection's database; they are read on first use."""
    found = _OF_CONNECTIONS.get(connection)
    if found is None:
        found = _OF_CONNECTIONS[connection] = _read(connection)
    return found


def _read(connection: psycopg.Connection[Any]) -> BuiltIns:
    major = connection.info.server_version // 10000
    with connection.cursor(row_factory=tuple_row) as cursor:
        types = read_types(cursor.execute(_TYPES), {})
        functions = {
            oid: FunctionInfo(oid, name, f"{name}({_names(arguments, types)})", Volatility(volatility), strict)
            for oid, name, arguments, volatility, strict in cursor.execute(_FUNCTIONS)
        }
        operators = {row[0]: OperatorInfo(*row) for row in cursor.execute(_OPERATORS)}
        rows = cursor.execute("SELECT " + collation_fields(major) + " " + COLLATIONS_FROM + " AND c.oid < 16384")
        collations = {row[0]: read_collation(row) for row in rows}
    signatures = {function.signature: oid for oid, function in reversed(functions.items())}
    return BuiltIns(major, CatalogObjects(types, functions, operators, collations), signatures)


def _names(arguments: str, types: dict[int, TypeInfo]) -> str:
    return ",".join(types[int(oid)].name for oid in arguments.split())


def read_types(rows: Iterable[Sequence[Any]], known: Mapping[int, TypeInfo]) -> dict[int, TypeInfo]:
    """Return the types of rows of TYPE_FIELDS, without labels; base types of domains are there or `known`."""
    unread = {row[0]: row for row in rows}
    types: dict[int, TypeInfo] = {}

    def read(oid: int) -> TypeInfo:
        if oid not in unread:
            return known[oid]
        if oid not in types:
            _, name, display, base, modifier, is_enum, is_row, array = unread[oid]
            inner = oid
            if base:
                parent = read(base)
                inner, modifier = parent.base, modifier if modifier >= 0 else parent.base_typmod
            types[oid] = TypeInfo(oid, name, display, inner, modifier, is_enum, is_row, array)
        return types[oid]

    for oid in unread:
        read(oid)
    return types


def read_collation(row: Sequence[Any]) -> CollationInfo:
    """Return what is proven of the collation in a row of `collation_fields`."""
    oid, name, deterministic, provider, locale, utf8, letters = row
    # libc compares these locales by code point; PostgreSQL's built-in provider compares all of its locales by bytes.
    bytewise = provider == "b" or (provider == "c" and locale in ("C", "POSIX", "C.UTF-8", "C.utf8"))
    ascii_letters = provider == "c" and letters in ("C", "POSIX")
    return CollationInfo(oid, name, deterministic, bytewise and utf8, ascii_letters and utf8)
