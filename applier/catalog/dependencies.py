"""Reads the facts that stream tables rest on, compares them cheaply, and stores them (`pgt_dependency_facts`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.rows import tuple_row

from applier.catalog.database import Connection, Database
from shared_schema.commits import SESSIONS, SessionAtWork, session_of
from shared_schema.dependency_facts import DependencyFacts, RelationFact, read_facts, read_relation
from shared_schema.lsn import Lsn
from shared_schema.table_schema import TableId

_FACTS = """
SELECT jsonb_build_object(
    'relations', coalesce((SELECT jsonb_object_agg(relid::text, fact) FROM pgtrickle._relation_facts(%(relations)s::int8[]::oid[])), '{}'),
    'types', coalesce((SELECT jsonb_object_agg(type::text, fact) FROM pgtrickle._type_facts(%(types)s::int8[]::oid[])), '{}'),
    'functions', coalesce((SELECT jsonb_object_agg(function::text, fact)
                           FROM pgtrickle._function_facts(%(functions)s::int8[]::oid[])), '{}'))
"""  # noqa: E501

# Which rows of the catalog there are, and by which transaction each was written. A few thousand short index lookups:
# nothing is formatted or parsed, and nothing depends on the number of tables in the database.
_DIGEST = """
WITH relations AS MATERIALIZED (
    SELECT c.oid, c.xmin, c.relfilenode, c.relnamespace FROM pg_class c WHERE c.oid = ANY (%(stored)s::int8[]::oid[])
)
SELECT concat_ws(' ',
    (SELECT sum(hashint8extended(r.xmin::text::int8, hashint8extended(r.oid::int8, r.relfilenode::int8)))
     FROM relations r),
    (SELECT sum(hashint8extended(a.xmin::text::int8, hashint8extended(a.attrelid::int8, a.attnum))) FROM pg_attribute a
     WHERE a.attrelid = ANY (%(relations)s::int8[]::oid[]) AND a.attnum > 0),
    (SELECT sum(hashint8extended(d.xmin::text::int8, hashint8extended(d.oid::int8, 1))) FROM pg_attrdef d
     WHERE d.adrelid = ANY (%(relations)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(k.xmin::text::int8, hashint8extended(k.oid::int8, 2))) FROM pg_constraint k
     WHERE k.conrelid = ANY (%(relations)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(w.xmin::text::int8, hashint8extended(w.oid::int8, 3))) FROM pg_rewrite w
     WHERE w.ev_class = ANY (%(relations)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(h.inhrelid::int8, hashint8extended(h.inhparent::int8, h.xmin::text::int8)))
     FROM pg_inherits h
     WHERE h.inhparent = ANY (%(stored)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(p.xmin::text::int8, hashint8extended(p.oid::int8, 4))) FROM pg_publication_rel p
     WHERE p.prrelid = ANY (%(stored)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(p.xmin::text::int8, hashint8extended(p.oid::int8, 5))) FROM pg_publication p),
    (SELECT sum(hashint8extended(n.xmin::text::int8, hashint8extended(n.oid::int8, 6))) FROM pg_namespace n
     WHERE n.oid IN (SELECT relnamespace FROM relations)),
    (SELECT sum(hashint8extended(t.xmin::text::int8, hashint8extended(t.oid::int8, 7))) FROM pg_type t
     WHERE t.oid = ANY (%(types)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(e.xmin::text::int8, hashint8extended(e.oid::int8, 8))) FROM pg_enum e
     WHERE e.enumtypid = ANY (%(types)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(a.xmin::text::int8, hashint8extended(a.attrelid::int8, a.attnum))) FROM pg_type t
     JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0
     WHERE t.oid = ANY (%(types)s::int8[]::oid[]) AND t.typtype = 'c'),
    (SELECT sum(hashint8extended(f.xmin::text::int8, hashint8extended(f.oid::int8, 9))) FROM pg_proc f
     WHERE f.oid = ANY (%(functions)s::int8[]::oid[])),
    (SELECT sum(hashint8extended(r.epoch, hashint8extended(r.source_relid::int8, 10))) FROM pgtrickle.pgt_recaptures r))
"""
_SCHEMA_MEMBERS = """,
    (SELECT sum(hashint8extended(p.xmin::text::int8, hashint8extended(p.oid::int8, 11)))
     FROM pg_publication_namespace p))
"""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is stored of a captured table: its facts when its trace was last right, and what its readers wait for."""

    fact: RelationFact
    problem: str | None
    awaits: int | None


@dataclass(frozen=True, slots=True)
class ObjectIds:
    """The objects of some dependency sets."""

    relations: frozenset[int]
    types: frozenset[int]
    functions: frozenset[int]
    leaves: frozenset[int] = frozenset()
    """Partitions at any depth of the relations."""

    @property
    def all(self) -> frozenset[int]:
        """All object ids."""
        return self.relations | self.types | self.functions | self.leaves

    def parameters(self) -> dict[str, list[int]]:
        """Return the ids as the queries take them."""
        return {
            "relations": sorted(self.relations),
            "types": sorted(self.types),
            "functions": sorted(self.functions),
            "stored": sorted(self.relations | self.leaves),
        }


def ids_of(facts: Iterable[DependencyFacts]) -> ObjectIds:
    """Return the objects of all these facts, with the partitions of partitioned tables."""
    found = list(facts)
    return ObjectIds(
        frozenset(relid for f in found for relid in f.relations),
        frozenset(oid for f in found for oid in f.types),
        frozenset(oid for f in found for oid in f.functions),
        frozenset(leaf.oid for f in found for relation in f.relations.values() for leaf in relation.leaves),
    )


class DependencyStore:
    """Reads present facts, and stores those that plans were made with; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def read(self, ids: ObjectIds) -> DependencyFacts:
        """Return the present facts of these objects; what is gone is not in them."""
        row = self._connection.execute(_FACTS.encode(), ids.parameters()).fetchone()
        source: Any = row[0] if row else {}
        return read_facts({**source, "used": None, "tree": ""})

    def digest(self, ids: ObjectIds) -> str:
        """Return a text that changes whenever a row of the catalog about one of the objects is written."""
        query = _DIGEST
        if self._connection.info.server_version >= 150_000:
            query = query.rstrip()[:-1] + _SCHEMA_MEMBERS
        row = self._connection.execute(query.encode(), ids.parameters(), prepare=True).fetchone()
        return str(row[0]) if row else ""

    def sessions_at_work(self) -> list[SessionAtWork]:
        """Return the other sessions of the database whose transaction may be committing at this moment."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.execute(SESSIONS.encode(), prepare=True).fetchall()
        return [session_of(row) for row in rows]

    def load(self) -> dict[int, DependencyFacts]:
        """Return the stored facts by stream table."""
        rows = self._connection.execute("SELECT pgt_id, facts FROM pgtrickle.pgt_dependency_facts").fetchall()
        stored: list[tuple[Any, Any]] = [(row[0], row[1]) for row in rows]
        return {int(pgt_id): read_facts(facts) for pgt_id, facts in stored}

    def load_one(self, pgt_id: int) -> DependencyFacts | None:
        """Return the stored facts of one stream table."""
        row = self._connection.execute(
            "SELECT facts FROM pgtrickle.pgt_dependency_facts WHERE pgt_id = %s", (pgt_id,)
        ).fetchone()
        facts: Any = row[0] if row else None
        return None if facts is None else read_facts(facts)

    def store(self, pgt_id: int, facts: DependencyFacts, followed: str = "") -> None:
        """Store the facts that a plan was made with; nothing if the stream table was just dropped.

        `followed` is what was seen, when it is followed by the new plan alone: the history tells of it.
        """
        with self._connection.transaction():
            self._connection.execute(
                "SELECT pgtrickle._store_facts(%s, %s::jsonb, %s::int8[]::oid[])",
                (pgt_id, facts.to_json(), sorted(ids_of([facts]).all)),
            )
            if followed:
                self._connection.execute("SELECT pgtrickle._note_evolution(%s, %s)", (pgt_id, followed))

    def owners(self, names: Collection[TableId]) -> dict[TableId, int]:
        """Return which relation has each of these names now."""
        rows = self._connection.execute(
            "SELECT u.s, u.n, c.oid::int8 FROM unnest(%s::text[], %s::text[]) AS u (s, n)"
            " JOIN pg_namespace n ON n.nspname = u.s JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = u.n",
            ([name.schema for name in names], [name.name for name in names]),
        ).fetchall()
        return {TableId(str(schema), str(name)): int(str(oid)) for schema, name, oid in rows}

    def sources(self) -> dict[int, SourceState]:
        """Return what is stored of the captured tables."""
        rows = self._connection.execute(
            "SELECT source_relid::int8, fact, problem, awaits FROM pgtrickle.pgt_source_facts"
        ).fetchall()
        stored: list[tuple[Any, Any, Any, Any]] = [(r[0], r[1], r[2], r[3]) for r in rows]
        return {relid: SourceState(read_relation(f), problem, awaits) for relid, f, problem, awaits in stored}

    def note_source(self, relid: int, fact: Mapping[str, Any], problem: str | None) -> None:
        """Store the facts of a captured table, and why the log does not have all of its changes."""
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_source_facts (source_relid, fact, problem) VALUES (%s::int8::oid, %s::jsonb, %s)"
            " ON CONFLICT (source_relid) DO UPDATE SET fact = excluded.fact, problem = excluded.problem",
            (relid, json.dumps(fact), problem),
        )

    def note_stopped(self, stopped: Mapping[TableId, str]) -> None:
        """Store which tables the consumer cannot follow, and why: their readers cannot be resumed."""
        names = [(table.schema, table.name, reason) for table, reason in stopped.items()]
        with self._connection.transaction():
            self._connection.execute("DELETE FROM pgtrickle.pgt_stopped_sources")
            self._connection.execute(
                "INSERT INTO pgtrickle.pgt_stopped_sources (source_schema, source_name, reason)"
                " SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])",
                tuple(list(column) for column in zip(*names, strict=True)) or ([], [], []),
            )

    def await_recapture(self, relid: int) -> int:
        """Request a copy of a table that its readers wait for; return the number of the copy."""
        row = self._connection.execute("SELECT pgtrickle._await_recapture(%s::int8::oid)", (relid,)).fetchone()
        return int(str(row[0])) if row else 0

    def end_waiting(self, relid: int) -> None:
        """Note that the copy has arrived."""
        self._connection.execute(
            "UPDATE pgtrickle.pgt_source_facts SET awaits = NULL WHERE source_relid = %s::int8::oid", (relid,)
        )

    def announce(self, relids: Collection[int]) -> Lsn:
        """Write a message about altered relations to the log; return its position."""
        row = self._connection.execute(
            "SELECT pgtrickle._announce(%s::int8[]::oid[])::text", (sorted(relids),)
        ).fetchone()
        return Lsn.parse(str(row[0]) if row else "0/0")

    def follow(
        self, pgt_id: int, query: str, detail: str, facts: DependencyFacts, *, whole: bool, relabelled: bool
    ) -> None:
        """Give a stream table the present text of its query, with the facts that go with it; with `whole` also request
        that all of it is computed.

        With `relabelled` the other sinks get all rows: PostgreSQL's have other labels already.
        """
        with self._connection.transaction():
            self._connection.execute(
                "SELECT pgtrickle._follow(%s, %s, %s, %s, %s)", (pgt_id, query, detail, whole, relabelled)
            )
            self.store(pgt_id, facts)

    def may_evolve(self, pgt_id: int) -> bool:
        """Whether changes of sources that change rows are followed."""
        row = self._connection.execute("SELECT pgtrickle._auto_evolve(%s)", (pgt_id,)).fetchone()
        return row == (True,)
