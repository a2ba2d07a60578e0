"""The tree of a query -> the rows of the catalog on its relations, and on those of its views. Does IO."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from applier.catalog.confined import Confined
from applier.sql.catalog_snapshot import ColumnInfo, RelationInfo
from applier.sql.sources import SYSTEM_SCHEMAS
from shared_schema.pg_types import PgType
from shared_schema.table_schema import ReplicaIdentity, TableId

_RELID = re.compile(r":relid (\d+)")
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
    "AND c.relkind = 'v'), "
    "(SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod, "
    "format_type(a.atttypid, a.atttypmod), "
    # Since 18 there are NOT NULL constraints that old rows need not meet.
    "a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'n' "
    "AND NOT k.convalidated AND a.attnum = ANY(k.conkey)), a.attgenerated <> '') ORDER BY a.attnum) "
    "FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::int8[]::oid[])"
)
_STREAM_TABLES: LiteralString = (
    "SELECT s.pgt_relid::int8, s.defining_query, pg_get_userbyid(c.relowner)::text FROM pgtrickle.pgt_stream_tables s"
    " JOIN pg_class c ON c.oid = s.pgt_relid WHERE s.pgt_relid = ANY(%s::int8[]::oid[])"
)
_TEMPORARY_RULE: LiteralString = (
    "SELECT r.ev_action::text FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class "
    "WHERE c.relnamespace = pg_my_temp_schema() AND c.relname = %s"
)


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A row of `_RELATIONS`; `rule` is the query of a view, or of a stream table, which is read as a view."""

    fields: tuple[Any, ...]
    columns: tuple[Sequence[Any], ...]
    rule: str | None
    is_stream_table: bool

    def column_types(self) -> Iterable[int]:
        """Yield the object ids of the columns' types."""
        return (column[2] for column in self.columns)

    def info(self, pg_type: Callable[[int, int, str], PgType]) -> RelationInfo:
        """Return the relation; `pg_type` makes a type of an object id, a modifier and a display."""
        oid, schema, name, kind, persistence, key, secured, children, partition, identity, barrier, uncaptured = (
            self.fields
        )
        return RelationInfo(
            oid=oid,
            table=TableId(schema, name),
            kind="v" if self.is_stream_table else kind,
            persistence=persistence,
            columns=tuple(
                ColumnInfo(number, column, pg_type(type_, typmod, display), not_null, generated)
                for number, column, type_, typmod, display, not_null, generated in self.columns
            ),
            key=tuple(key),
            row_security=secured,
            has_children=children,
            is_partition=partition,
            is_partitioned=kind == "p",
            replica_identity=ReplicaIdentity(identity),
            security_barrier=barrier,
            uncaptured_partition=uncaptured,
            rule=self.rule,
        )


def read_relations(
    connection: psycopg.Connection[Any], relids: set[int], has_stream_tables: bool, own_view: int | None = None
) -> dict[int, RelationRow]:
    """Read relations, then those of the views among them, and so on; not those of the query's own view."""
    rows: dict[int, RelationRow] = {}
    unread = relids
    while unread:
        found = _read(connection, sorted(unread), has_stream_tables)
        rows |= found
        rules = [row.rule for oid, row in found.items() if oid != own_view and row.fields[1] not in SYSTEM_SCHEMAS]
        unread = {oid for rule in rules if rule is not None for oid in relids_of(rule)} - rows.keys()
    return rows


def relids_of(tree: str) -> Iterable[int]:
    """Return all relations of a tree; also those that its queries do not read, which does no harm."""
    return (int(oid) for oid in _RELID.findall(tree) if oid != "0")


def _read(connection: psycopg.Connection[Any], oids: list[int], has_stream_tables: bool) -> dict[int, RelationRow]:
    rules = _read_stream_tables(connection, oids) if has_stream_tables else {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_RELATIONS, [oids]).fetchall()
    return {
        row[0]: RelationRow(row[:12], tuple(row[13] or ()), rules.get(row[0], row[12]), row[0] in rules)
        for row in found
    }


def _read_stream_tables(connection: psycopg.Connection[Any], oids: list[int]) -> dict[int, str]:
    """Return the analysed query of each stream table among the relations: it is read as a view of the same query.

    Both are then computed from the same tables at the same frontier, so they agree at every tick. The temporary views
    for this disappear with the analysis transaction, which is rolled back. Each query is looked up with the rights of
    the owner of its stream table, who must be able to read what it names.
    """
    rules: dict[int, str] = {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for oid, query, owner in cursor.execute(_STREAM_TABLES, [oids]).fetchall():
            view = f"pgtrickle_source_{oid}"
            confined = Confined(connection, owner)
            confined.run(f"CREATE TEMP VIEW {view} AS {query}", probe=query)
            connection.execute("SET LOCAL search_path = ''")
            rule = cursor.execute(_TEMPORARY_RULE, [view]).fetchone()
            rules[oid] = str(rule[0]) if rule else ""
            cursor.execute(f"DROP VIEW pg_temp.{view}".encode())
    return rules
