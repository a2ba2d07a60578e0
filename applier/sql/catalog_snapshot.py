"""What PostgreSQL's system catalog says of the objects that one query names, as of its analysis. Pure and frozen.

`analyze` reads it, and every later pass looks objects up in it by their object ids. Objects that initdb created (object
ids below 16384) never change while a server exists: they are read once per connection and shared by all snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from shared_schema.pg_types import FIRST_USER_OID, VARHDRSZ, PgType
from shared_schema.table_schema import ReplicaIdentity, TableId


class Volatility(Enum):
    """pg_proc.provolatile."""

    IMMUTABLE = "i"
    STABLE = "s"
    VOLATILE = "v"


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A type; `base` and `base_typmod` are those of the innermost base type of a domain, else the type's own.

    `array` is its array type, 0 where there is none. `labels` are those of an enum by object id, in their order; None
    for an enum of which the query names only columns that it does not read.
    """

    oid: int
    name: str
    display: str
    base: int
    base_typmod: int
    is_enum: bool = False
    is_row: bool = False
    array: int = 0
    labels: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function or aggregate. The signature of a user's function begins with its schema, so it matches no entry."""

    oid: int
    name: str
    signature: str
    volatility: Volatility
    strict: bool


@dataclass(frozen=True, slots=True)
class FunctionText:
    """The analysed tree of a simple SQL function of a user, as text, and a digest of what the function does."""

    tree: str
    result: int
    strict: bool
    digest: str


@dataclass(frozen=True, slots=True)
class AggregateInfo:
    """A row of pg_aggregate; `final` is 0 where the result is the last state.

    `initial` is the initial state as the output function of each possible state type prints it.
    """

    plain: bool
    step: int
    strict: bool
    final: int
    final_takes_all: bool
    final_strict: bool
    state: int
    has_initial: bool
    initial: Mapping[int, str]
    moves: bool
    digest: str


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


@dataclass(frozen=True, slots=True)
class CatalogObjects:
    """Types, functions, operators and collations by object id."""

    types: Mapping[int, TypeInfo]
    functions: Mapping[int, FunctionInfo]
    operators: Mapping[int, OperatorInfo]
    collations: Mapping[int, CollationInfo]


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Looks objects up by object id; one that the query does not name, directly or through others, is a KeyError."""

    major: int
    """The server's version, which decides what its trees look like."""
    built_in_objects: CatalogObjects
    signatures: Mapping[str, int]
    """The built-in functions by signature."""
    objects: CatalogObjects
    """Objects of users."""
    function_texts: Mapping[int, FunctionText]
    aggregates: Mapping[int, AggregateInfo]
    relations: Mapping[int, RelationInfo]
    expected_digests: Mapping[int, str] | None
    """Digests of the functions that a stored query was created with; None while a query is being created."""

    def type(self, oid: int) -> TypeInfo:
        """Return a type."""
        return (self.built_in_objects if oid < FIRST_USER_OID else self.objects).types[oid]

    def pg_type(self, oid: int, typmod: int) -> PgType:
        """Return a type with its modifier; a domain is its base type under its own name."""
        info = self.type(oid)
        base = self.type(info.base)
        modifier = typmod if typmod >= 0 else info.base_typmod
        display = info.display if info.oid != info.base else _display(base, typmod)
        return PgType(oid, modifier, base.name, display)

    def labels(self, oid: int) -> dict[int, str]:
        """Return the labels of an enum by object id, in their order."""
        info = self.type(oid)
        if info.labels is None and info.is_enum:
            raise KeyError(oid)
        return dict(info.labels or ())

    def array_type(self, oid: int) -> int:
        """Return the array type of a type, or the type itself where it is one; 0 where there is none."""
        info = self.type(oid)
        return oid if info.name.startswith("_") else self.type(info.base).array

    def function(self, oid: int) -> FunctionInfo:
        """Return a function or aggregate."""
        return (self.built_in_objects if oid < FIRST_USER_OID else self.objects).functions[oid]

    def built_in(self, signature: str) -> int:
        """Return the object id of a built-in function, by its signature."""
        return self.signatures[signature]

    def operator(self, oid: int) -> OperatorInfo:
        """Return an operator."""
        return (self.built_in_objects if oid < FIRST_USER_OID else self.objects).operators[oid]

    def collation(self, oid: int) -> CollationInfo:
        """Return a collation; the default collation has the properties of the database's locale."""
        return (self.built_in_objects if oid < FIRST_USER_OID else self.objects).collations[oid]


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
