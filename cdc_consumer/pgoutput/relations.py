"""Turns Relation messages and catalog facts into TableSchema. Does no IO: the caller provides the facts.

The stream describes the row's own past, the catalog only the present. Column names, types and order therefore come
from the message. The catalog gives what the message lacks: names of types by oid (an oid keeps its meaning) and, under
REPLICA IDENTITY FULL, which columns are the primary key. When the catalog's columns are no longer the message's, its
key is not trusted: the previous version's key is kept if all its columns still exist, otherwise the rows are keyless.

Rows of a leaf partition have the schema of their root. A leaf has the columns of its root, in any order. The order is
that of the previous version if the columns are the same, otherwise that of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.messages import Relation
from shared_schema.pg_types import PgType
from shared_schema.table_schema import LEAF_COLUMN, Column, ReplicaIdentity, TableId, TableSchema


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type by its oid: name of the base type under all domains, and the typmod those domains fix (-1: none)."""

    name: str
    domain_typmod: int


@dataclass(frozen=True, slots=True)
class RelationFacts:
    """The catalog's present view of a relation."""

    columns: frozenset[tuple[str, int, int]]
    """(name, type oid, typmod)"""
    key: tuple[str, ...]
    types: Mapping[int, TypeFacts]
    displays: Mapping[tuple[int, int], str]
    """(type oid, typmod) -> format_type()"""
    order: tuple[str, ...] = ()
    """The names of the columns in their order."""
    replica_identity: ReplicaIdentity = ReplicaIdentity.DEFAULT


def pg_type(oid: int, typmod: int, facts: RelationFacts) -> PgType:
    """A column's type; one the catalog does not know any more travels as text."""
    known = facts.types.get(oid)
    if known is None:
        return PgType(oid, typmod, "unknown", "text")
    effective = typmod if typmod >= 0 else known.domain_typmod
    return PgType(oid, effective, known.name, facts.displays.get((oid, typmod), known.name))


def table_schema(relation: Relation, facts: RelationFacts, previous: TableSchema | None) -> TableSchema:
    """The schema of the relation's tuples from this message on."""
    columns = tuple(Column(c.name, pg_type(c.type_oid, c.typmod, facts)) for c in relation.columns)
    return TableSchema(
        table=TableId(relation.schema, relation.name),
        relid=relation.relid,
        columns=columns,
        key=_key(relation, facts, previous),
        replica_identity=relation.replica_identity,
    )


def root_schema(
    leaf: Relation, root: TableId, relid: int, facts: RelationFacts, previous: TableSchema | None
) -> TableSchema:
    """The schema of the root's change rows from this message of a leaf on; `facts` are those of the root."""
    columns = [Column(c.name, pg_type(c.type_oid, c.typmod, facts)) for c in leaf.columns]
    if previous is not None and previous.table == root and {*previous.columns} == {*columns, LEAF_COLUMN}:
        return previous
    places = {name: i for i, name in enumerate(facts.order)}
    columns.sort(key=lambda c: (places.get(c.name, len(places)), c.name))
    current = {(c.name, c.type_oid, c.typmod) for c in leaf.columns} <= facts.columns
    key = facts.key if current else previous.key if previous else ()
    return TableSchema(
        table=root,
        relid=relid,
        columns=(*columns, LEAF_COLUMN),
        key=key if {c.name for c in columns}.issuperset(key) else (),
        replica_identity=facts.replica_identity,
    )


def _key(relation: Relation, facts: RelationFacts, previous: TableSchema | None) -> tuple[str, ...]:
    names = {c.name for c in relation.columns}
    match relation.replica_identity:
        case ReplicaIdentity.DEFAULT | ReplicaIdentity.INDEX:
            # The identity's columns are what old images hold, so only they can address a row.
            return tuple(c.name for c in relation.columns if c.in_key)
        case ReplicaIdentity.FULL | ReplicaIdentity.NOTHING:
            current = {(c.name, c.type_oid, c.typmod) for c in relation.columns} <= facts.columns
            key = facts.key if current else previous.key if previous else ()
            return key if names.issuperset(key) else ()


class Relations:
    """Which schema each relation's tuples have at this point of the stream."""

    def __init__(self, lookup: Callable[[Relation], RelationFacts]) -> None:
        self._lookup = lookup
        self._described: dict[int, Relation] = {}
        self._schemas: dict[int, TableSchema] = {}
        self._leaf_schemas: dict[int, tuple[Relation, TableSchema]] = {}
        self._stale: set[int] = set()

    def describe(self, relation: Relation) -> None:
        """Take a Relation message; the server repeats them after any change nearby, mostly unchanged."""
        if self._described.get(relation.relid) != relation:
            self._described[relation.relid] = relation
            self._stale.add(relation.relid)

    def relation(self, relid: int) -> Relation:
        """The last description of a relation."""
        try:
            return self._described[relid]
        except KeyError:
            raise MalformedMessage(f"rows of relation {relid} before its description", offset=1) from None

    def schema(self, relid: int) -> TableSchema:
        """The schema of a described relation; the catalog is asked only when the description is new."""
        known = self._schemas.get(relid)
        if known is None or relid in self._stale:
            relation = self.relation(relid)
            known = table_schema(relation, self._lookup(relation), known)
            self._schemas[relid] = known
            self._stale.discard(relid)
        return known

    def root_schema(self, leaf: int, root: TableId, relid: int, previous: TableSchema | None) -> TableSchema:
        """The schema of a root's change rows after the last description of one of its leaf partitions.

        `previous` is the version of the root's last rows. The catalog is asked only when the description is new.
        """
        relation, known = self.relation(leaf), self._leaf_schemas.get(leaf)
        if known is None or known[0] != relation or known[1] != previous:
            facts = self._lookup(replace(relation, relid=relid))
            known = relation, root_schema(relation, root, relid, facts, previous)
            self._leaf_schemas[leaf] = known
        return known[1]
