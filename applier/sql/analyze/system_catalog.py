"""Object ids -> types, functions, operators, collations and relations of PostgreSQL's system catalog. Does IO.

Objects that initdb created (object ids below 16384) never change while a server exists; they are read once per
connection. Types and functions of users are read on first use and held until `refresh`. Relations are read again for
every query, so a plan never sees outdated columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, LiteralString
from weakref import WeakKeyDictionary, ref

import psycopg
from psycopg.rows import tuple_row

from shared_schema.pg_types import VARHDRSZ, PgType
from shared_schema.table_schema import ReplicaIdentity, TableId

FIRST_USER_OID = 16384
"""PostgreSQL's FirstNormalObjectId: initdb assigns only smaller ones."""


class Volatility(Enum):
    """pg_proc.provolatile."""

    IMMUTABLE = "i"
    STABLE = "s"
    VOLATILE = "v"


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A type; `base` and `base_typmod` are those of the innermost base type of a domain, else the type's own."""

    oid: int
    name: str
    display: str
    base: int
    base_typmod: int
    is_enum: bool = False
    is_row: bool = False


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function or aggregate. The signature of a user's function begins with its schema, so it matches no entry."""

    oid: int
    name: str
    signature: str
    volatility: Volatility
    strict: bool


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator and the function that implements it."""

    oid: int
    name: str
    function: int


@dataclass(frozen=True, slots=True)
class CollationInfo:
    """What is proven of a collation: equality is by bytes, order is by bytes, only ASCII letters change their case."""

    oid: int
    name: str
    deterministic: bool
    byte_order: bool
    ascii_letters: bool = False


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a relation."""

    number: int
    name: str
    type: PgType
    not_null: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """A relation; `rule` is the query of a view or stream table, `key` the attribute numbers of the primary key."""

    oid: int
    table: TableId
    kind: str
    persistence: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[int, ...]
    row_security: bool
    has_children: bool
    is_partition: bool
    is_partitioned: bool
    replica_identity: ReplicaIdentity
    security_barrier: bool
    uncaptured_partition: str | None
    """A partition whose changes are not in the log: a foreign or unlogged table."""
    rule: str | None

    def column(self, number: int) -> ColumnInfo | None:
        """Return the column with this attribute number."""
        return next((c for c in self.columns if c.number == number), None)


class SystemCatalog:
    """Looks objects up by object id over one connection; an unknown object id is a KeyError."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        # Weak, because the catalog itself is held in a dictionary keyed by the connection.
        self._connection = ref(connection)
        self.refresh()
        self.expected_digests: dict[int, str] | None = None
        """Digests of the functions that a stored query was created with; None while a query is being created."""

    def refresh(self) -> None:
        """Forget everything and read the built-in objects again."""
        self.major = self._open().info.server_version // 10000
        self._types: dict[int, TypeInfo] = {}
        self._functions: dict[int, FunctionInfo] = {}
        self._operators: dict[int, OperatorInfo] = {}
        self._collations: dict[int, CollationInfo] = {}
        self._load_types(_TYPES_BUILT_IN)
        self._load_functions(_FUNCTIONS_BUILT_IN)
        for oid, name, function in self._rows(_OPERATORS_BUILT_IN):
            self._operators[oid] = OperatorInfo(oid, name, function)
        self._load_collations()

    def type(self, oid: int) -> TypeInfo:
        """Return a type."""
        if oid not in self._types:
            self._load_types(_TYPES_OF_USERS, [oid])
        return self._types[oid]

    def pg_type(self, oid: int, typmod: int) -> PgType:
        """Return a type with its modifier; a domain is its base type under its own name."""
        info = self.type(oid)
        base = self.type(info.base)
        modifier = typmod if typmod >= 0 else info.base_typmod
        display = info.display if info.oid != info.base else _display(base, typmod)
        return PgType(oid, modifier, base.name, display)

    def labels(self, oid: int) -> dict[int, str]:
        """Return the current labels of an enum by object id, in their order."""
        return dict(self._rows(_LABELS, [oid]))

    def function(self, oid: int) -> FunctionInfo:
        """Return a function or aggregate."""
        if oid not in self._functions:
            self._load_functions(_FUNCTIONS_OF_USERS, [oid])
        return self._functions[oid]

    def array_type(self, oid: int) -> int:
        """Return the array type of a type, or the type itself where it is one; 0 where there is none."""
        if self.type(oid).name.startswith("_"):
            return oid
        return next((int(array) for (array,) in self._rows(_ARRAY_TYPE, [self.type(oid).base])), 0)

    def built_in(self, signature: str) -> int:
        """Return the object id of a built-in function, by its signature."""
        return next(f.oid for f in self.built_in_functions() if f.signature == signature)

    def built_in_functions(self) -> Iterator[FunctionInfo]:
        """Yield every built-in function."""
        return (f for f in self._functions.values() if f.oid < FIRST_USER_OID)

    def operator(self, oid: int) -> OperatorInfo:
        """Return an operator."""
        if oid not in self._operators:
            for row in self._rows(_OPERATORS_OF_USERS, [[oid]]):
                self._operators[oid] = OperatorInfo(*row)
        return self._operators[oid]

    def collation(self, oid: int) -> CollationInfo:
        """Return a collation; the default collation has the properties of the database's locale."""
        if oid not in self._collations:
            self._load_collations()
        return self._collations[oid]

    def relations(self, oids: Iterable[int]) -> dict[int, RelationInfo]:
        """Return relations as they are now."""
        numbers = sorted(set(oids))
        columns: dict[int, list[ColumnInfo]] = {oid: [] for oid in numbers}
        for relation, number, name, type_oid, typmod, display, not_null, generated in self._rows(_COLUMNS, [numbers]):
            info = self.type(type_oid)
            modifier = typmod if typmod >= 0 else info.base_typmod
            pg = PgType(type_oid, modifier, self.type(info.base).name, display)
            columns[relation].append(ColumnInfo(number, name, pg, not_null, generated))
        rules = self._stream_tables(numbers)
        return {
            row[0]: RelationInfo(
                oid=row[0],
                table=TableId(row[1], row[2]),
                kind="v" if row[0] in rules else row[3],
                persistence=row[4],
                columns=tuple(columns[row[0]]),
                key=tuple(row[5]),
                row_security=row[6],
                has_children=row[7],
                is_partition=row[8],
                is_partitioned=row[3] == "p",
                replica_identity=ReplicaIdentity(row[9]),
                security_barrier=row[10],
                uncaptured_partition=row[11],
                rule=rules.get(row[0], row[12]),
            )
            for row in self._rows(_RELATIONS, [numbers])
        }

    def _stream_tables(self, oids: Sequence[int]) -> dict[int, str]:
        """Return the analysed query of each stream table among the relations: it is read as a view of the same query.

        Both are then computed from the same tables at the same frontier, so they agree at every tick. The temporary
        views for this disappear with the analysis transaction, which is rolled back.
        """
        if self._rows(_HAS_STREAM_TABLES) != [(True,)]:
            return {}
        rules: dict[int, str] = {}
        for oid, query in self._rows(_STREAM_TABLES, [oids]):
            view = f"pgtrickle_source_{oid}"
            self._open().execute(f"CREATE TEMP VIEW {view} AS {query}".encode())
            rules[oid] = self._rows(_TEMPORARY_RULE, [view])[0][0]
            self._open().execute(f"DROP VIEW pg_temp.{view}".encode())
        return rules

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, inside the analysis transaction."""
        return self._open()

    def _open(self) -> psycopg.Connection[Any]:
        connection = self._connection()
        if connection is None:
            raise psycopg.InterfaceError("the connection of this catalog is closed")
        return connection

    def _rows(self, query: LiteralString, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._open().cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(query, parameters).fetchall()

    def _load_types(self, query: LiteralString, oids: Sequence[int] = ()) -> None:
        rows = self._rows(query, [list(oids)] if oids else [])
        for oid, name, display, base, base_typmod, is_enum, is_row in rows:
            inner, modifier = base or oid, base_typmod
            if base and base not in self._types:
                self._load_types(_TYPES_OF_USERS, [base])
            if base:
                parent = self._types[base]
                inner, modifier = parent.base, base_typmod if base_typmod >= 0 else parent.base_typmod
            self._types[oid] = TypeInfo(oid, name, display, inner, modifier, is_enum, is_row)

    def _load_collations(self) -> None:
        for row in self._rows(_COLLATIONS if self.major >= 15 else _COLLATIONS_BEFORE_15):
            self._collations[row[0]] = _read_collation(row)

    def _load_functions(self, query: LiteralString, oids: Sequence[int] = ()) -> None:
        for oid, schema, name, arguments, volatility, strict in self._rows(query, [list(oids)] if oids else []):
            names = ",".join(self.type(int(a)).name for a in arguments.split())
            prefix = "" if oid < FIRST_USER_OID else f"{schema}."
            signature = f"{prefix}{name}({names})"
            self._functions[oid] = FunctionInfo(oid, name, signature, Volatility(volatility), strict)


_CATALOGS: WeakKeyDictionary[psycopg.Connection[Any], SystemCatalog] = WeakKeyDictionary()


def system_catalog_of(connection: psycopg.Connection[Any]) -> SystemCatalog:
    """Return the catalog of a connection; it is read on first use."""
    found = _CATALOGS.get(connection)
    if found is None:
        found = _CATALOGS[connection] = SystemCatalog(connection)
    return found


def _display(base: TypeInfo, typmod: int) -> str:
    """Do what format_type() does, for the types that can have a modifier in an expression."""
    if typmod < VARHDRSZ:
        return base.display
    match base.name:
        case "numeric":
            precision, scale = PgType(base.oid, typmod, base.name, "").precision_scale or (0, 0)
            return f"numeric({precision},{scale})"
        case "varchar" | "bpchar":
            plain = "character varying" if base.name == "varchar" else "character"
            return f"{plain}({typmod - VARHDRSZ})"
        case _:
            return base.display


def _read_collation(row: tuple[Any, ...]) -> CollationInfo:
    oid, name, deterministic, provider, locale, utf8, letters = row
    # libc compares these locales by code point; PostgreSQL's built-in provider compares all of its locales by bytes.
    bytewise = provider == "b" or (provider == "c" and locale in ("C", "POSIX", "C.UTF-8", "C.utf8"))
    ascii_letters = provider == "c" and letters in ("C", "POSIX")
    return CollationInfo(oid, name, deterministic, bytewise and utf8, ascii_letters and utf8)


_TYPES: LiteralString = (
    "SELECT oid::int8, typname::text, format_type(oid, NULL), typbasetype::int8, typtypmod, typtype = 'e', "
    "typtype = 'c' OR typname = 'record' AND oid < 16384 "
    "FROM pg_type WHERE "
)
_TYPES_BUILT_IN: LiteralString = _TYPES + "oid < 16384 ORDER BY typbasetype <> 0"
_TYPES_OF_USERS: LiteralString = _TYPES + "oid = ANY(%s::int8[]::oid[])"
_LABELS: LiteralString = (
    "SELECT oid::int8, enumlabel::text FROM pg_enum WHERE enumtypid = %s::int8::oid ORDER BY enumsortorder"
)
_ARRAY_TYPE: LiteralString = "SELECT typarray::int8 FROM pg_type WHERE oid = %s::int8::oid"
_FUNCTIONS: LiteralString = (
    "SELECT p.oid::int8, n.nspname::text, proname::text, proargtypes::text, provolatile::text, proisstrict "
    "FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE "
)
_FUNCTIONS_BUILT_IN: LiteralString = _FUNCTIONS + "p.oid < 16384 AND n.nspname = 'pg_catalog'"
_FUNCTIONS_OF_USERS: LiteralString = _FUNCTIONS + "p.oid = ANY(%s::int8[]::oid[])"
_OPERATORS: LiteralString = "SELECT oid::int8, oprname::text, oprcode::oid::int8 FROM pg_operator WHERE "
_OPERATORS_BUILT_IN: LiteralString = _OPERATORS + "oid < 16384"
_OPERATORS_OF_USERS: LiteralString = _OPERATORS + "oid = ANY(%s::int8[]::oid[])"

_COLLATION_HEAD: LiteralString = (
    "SELECT c.oid::int8, c.collname::text, c.collisdeterministic, CASE WHEN c.collprovider = 'd' THEN "
)
_COLLATION_TAIL: LiteralString = (
    " ELSE c.collprovider::text END, CASE WHEN c.collprovider = 'd' THEN datcollate ELSE c.collcollate END, "
    "pg_encoding_to_char(encoding) = 'UTF8', CASE WHEN c.collprovider = 'd' THEN datctype ELSE c.collctype END "
    "FROM pg_collation c, pg_database WHERE datname = current_database()"
)
_COLLATIONS: LiteralString = _COLLATION_HEAD + "datlocprovider::text" + _COLLATION_TAIL
_COLLATIONS_BEFORE_15: LiteralString = _COLLATION_HEAD + "'c'" + _COLLATION_TAIL
_COLUMNS: LiteralString = (
    "SELECT attrelid::int8, attnum::int4, attname::text, atttypid::int8, atttypmod, format_type(atttypid, atttypmod), "
    "attnotnull, attgenerated <> '' FROM pg_attribute "
    "WHERE attrelid = ANY(%s::int8[]::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum"
)
_HAS_STREAM_TABLES: LiteralString = "SELECT to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL"

_STREAM_TABLES: LiteralString = (
    "SELECT pgt_relid::int8, defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_relid = ANY(%s::int8[]::oid[])"
)

_TEMPORARY_RULE: LiteralString = (
    "SELECT r.ev_action::text FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class "
    "WHERE c.relnamespace = pg_my_temp_schema() AND c.relname = %s"
)

_RELATIONS: LiteralString = (
    "SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, "
    "COALESCE((SELECT i.indkey::int2[]::int4[] FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), '{}'), "
    "c.relrowsecurity, EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = c.oid), c.relispartition, "
    "c.relreplident::text, "
    "EXISTS (SELECT 1 FROM pg_options_to_table(c.reloptions) "
    "WHERE option_name = 'security_barrier' AND option_value::bool), "
    "(SELECT p.oid::regclass::text FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid "
    "WHERE c.relkind = 'p' AND (p.relkind = 'f' OR p.relpersistence <> 'p') LIMIT 1), "
    "(SELECT r.ev_action::text FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename = '_RETURN' "
    "AND c.relkind = 'v') "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::int8[]::oid[])"
)
