"""What a stream table rests on: facts of the catalog about relations, types and functions, at any depth. Pure.

`sql_api/api/facts.sql` reads them as JSON. Everything is identified by object id, and columns by attribute number, so a
name that changes or is used again is told apart from an object that changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class ColumnFact:
    """A column by its attribute number.

    `not_null` counts only a validated constraint; `generated` is a digest of the expression, None for other columns;
    `written` changes whenever the catalog's row of the column is written again, `default` when that of its default is.
    `has_missing` tells that old rows do not hold the default with which the column was added.
    """

    number: int
    name: str
    type: int
    typmod: int
    collation: int
    not_null: bool
    generated: str | None
    written: str
    default: str | None
    has_missing: bool

    @property
    def kind(self) -> tuple[int, int]:
        """Its type with the modifier."""
        return self.type, self.typmod


@dataclass(frozen=True, slots=True)
class LeafFact:
    """A partition, at any depth.

    `attached` is a digest of its bound and of the transactions that attached it; `expressions` changes whenever the
    expression of one of its own generated columns is written, None where it was not recorded. `toast` is its TOAST
    table, 0 where it has none or it was not recorded.
    """

    oid: int
    storage: int
    replica_identity: str
    kind: str
    persistence: str
    attached: str
    expressions: str | None = None
    toast: int = 0


@dataclass(frozen=True, slots=True)
class RelationFact:
    """A table, a view or a stream table.

    `storage` is the relfilenode; `toast` the TOAST table, 0 where there is none or it was not recorded; `rule` a digest
    of a view's query; `enums` the labels of all enums in its columns by object id, at any depth of the types;
    `composites` the attributes of the composite types in its columns likewise.
    """

    table: TableId
    kind: str
    persistence: str
    row_security: bool
    is_partition: bool
    has_children: bool
    replica_identity: str
    storage: int
    rule: str | None
    options: str
    keys: str | None
    leaves: tuple[LeafFact, ...]
    publication_problem: str | None
    memberships: frozenset[str]
    enums: frozenset[tuple[int, str]]
    columns: tuple[ColumnFact, ...]
    composites: frozenset[tuple[int, tuple[tuple[int, int, int], ...]]] = frozenset()
    toast: int = 0

    def column(self, number: int) -> ColumnFact | None:
        """Return the column with this attribute number; None when it was dropped."""
        return next((column for column in self.columns if column.number == number), None)

    def named(self, name: str) -> ColumnFact | None:
        """Return the column that has this name now."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class TypeFact:
    """A type of a user: labels of an enum in their order, base of a domain, columns of a composite type.

    `relation` is that of a composite type: a table's own one for the type of its rows. `parts` are the types of users
    that it is made of, at any depth, with itself.
    """

    table: TableId
    kind: str
    base: tuple[int, int]
    labels: tuple[tuple[int, str], ...]
    columns: tuple[tuple[str, int, int], ...]
    relation: int = 0
    parts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FunctionFact:
    """A function of a user, and a digest of what it does."""

    table: TableId
    digest: str


@dataclass(frozen=True, slots=True)
class DependencyFacts:
    """The facts of everything that one stream table rests on. An object that is gone is not in it.

    `used` has per captured table the attribute numbers that the plan reads; None where PostgreSQL runs the query, which
    may read all of them. `tree` is a digest of the analysed query without the names that it was written with, and
    `text` one of the stored query.
    """

    relations: Mapping[int, RelationFact]
    types: Mapping[int, TypeFact]
    functions: Mapping[int, FunctionFact]
    used: Mapping[int, frozenset[int]] | None
    tree: str = ""
    text: str = ""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The JSON that it was read from."""

    def of_now(self, present: DependencyFacts) -> DependencyFacts:
        """Return the present facts of the same objects."""
        chosen = {
            "relations": _only(present.source.get("relations", {}), self.relations),
            "types": _only(present.source.get("types", {}), self.types),
            "functions": _only(present.source.get("functions", {}), self.functions),
            "used": self.source.get("used"),
            "tree": self.tree,
            "text": self.text,
        }
        return read_facts(chosen)

    def agrees_with(self, others: DependencyFacts) -> bool:
        """Whether the objects that both have are the same in both."""
        return all(
            theirs.get(oid, fact) == fact
            for ours, theirs in (
                (self.relations, others.relations),
                (self.types, others.types),
                (self.functions, others.functions),
            )
            for oid, fact in ours.items()
        )

    def with_plan(self, used: Mapping[int, frozenset[int]] | None, tree: str, text: str) -> DependencyFacts:
        """Return the facts with what the plan reads of them, and what it was made from."""
        listed = None if used is None else {str(relid): sorted(numbers) for relid, numbers in used.items()}
        source = {**self.source, "used": listed, "tree": tree, "text": text}
        return replace(self, used=used, tree=tree, text=text, source=source)

    def with_types(self, oids: Collection[int]) -> DependencyFacts:
        """Return the facts with these types only, and what they are made of."""
        parts = {part for oid in oids if oid in self.types for part in (oid, *self.types[oid].parts)}
        return read_facts({**self.source, "types": _only(self.source.get("types", {}), parts)})

    def only(self, relations: Collection[int], types: Collection[int], functions: Collection[int]) -> DependencyFacts:
        """Return the facts of these relations and functions, of these types and what they are made of."""
        chosen = {
            **self.source,
            "relations": _only(self.source.get("relations", {}), relations),
            "functions": _only(self.source.get("functions", {}), functions),
        }
        return read_facts(chosen).with_types(types)

    def with_text(self, text: str) -> DependencyFacts:
        """Return the facts for another text of the same query."""
        return replace(self, text=text, source={**self.source, "text": text})

    def to_json(self) -> str:
        """Return the facts as they are stored."""
        return json.dumps(self.source, sort_keys=True)


def read_facts(source: Mapping[str, Any]) -> DependencyFacts:
    """Read the JSON of facts: per class the facts by object id."""
    used = source.get("used")
    return DependencyFacts(
        relations={int(oid): read_relation(fact) for oid, fact in source.get("relations", {}).items()},
        types={int(oid): _read_type(fact) for oid, fact in source.get("types", {}).items()},
        functions={int(oid): _read_function(fact) for oid, fact in source.get("functions", {}).items()},
        used=None if used is None else {int(relid): frozenset(numbers) for relid, numbers in used.items()},
        tree=str(source.get("tree") or ""),
        text=str(source.get("text") or ""),
        source=source,
    )


def read_relation(fact: Mapping[str, Any]) -> RelationFact:
    """Read the JSON of one relation."""
    leaves = fact["leaves"] or {}
    return RelationFact(
        table=TableId(fact["schema"], fact["name"]),
        kind=fact["kind"],
        persistence=fact["persistence"],
        row_security=fact["row_security"],
        is_partition=fact["is_partition"],
        has_children=fact["has_children"],
        replica_identity=fact["replica_identity"],
        storage=fact["storage"],
        rule=fact["rule"],
        options=fact["options"],
        keys=fact["keys"],
        leaves=tuple(sorted((LeafFact(int(oid), *leaf) for oid, leaf in leaves.items()), key=lambda leaf: leaf.oid)),
        publication_problem=fact["publication_problem"],
        memberships=frozenset(fact["memberships"] or ()),
        enums=frozenset((int(oid), label) for oid, label in fact["enums"].items()),
        columns=tuple(ColumnFact(*column) for column in fact["columns"]),
        composites=frozenset(
            (int(oid), tuple((number, kind, typmod) for number, kind, typmod in attributes or ()))
            for oid, attributes in fact.get("composites", {}).items()
        ),
        toast=fact.get("toast") or 0,
    )


def _read_type(fact: Mapping[str, Any]) -> TypeFact:
    return TypeFact(
        TableId(fact["schema"], fact["name"]),
        fact["kind"],
        (fact["base"], fact["typmod"]),
        tuple((oid, label) for oid, label in fact["labels"] or ()),
        tuple((name, kind, typmod) for name, kind, typmod in fact["columns"] or ()),
        fact.get("relation", 0),
        frozenset(fact.get("parts") or ()),
    )


def _read_function(fact: Mapping[str, Any]) -> FunctionFact:
    return FunctionFact(TableId(fact["schema"], fact["name"]), fact["digest"])


def _only(facts: Mapping[str, Any], wanted: Collection[int]) -> dict[str, Any]:
    return {oid: fact for oid, fact in facts.items() if int(oid) in wanted}
