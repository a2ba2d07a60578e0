"""Relations in; what their rows rest on besides the log, out, and whether two such facts mean that rows changed.

An applier compares the sources of its stream tables itself, where they are in its own database. Readers elsewhere
cannot see this catalog, so all captured tables are compared here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

import psycopg

from cdc_consumer.wal.catalog import Connection, PublishedTable
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema.dependency_facts import ColumnFact, RelationFact
from shared_schema.outdated_rows import outdated_rows
from shared_schema.progress import Capture
from shared_schema.table_schema import TableId

_FACTS = """
WITH RECURSIVE tree (root, relid) AS (
    SELECT u.oid, u.oid FROM unnest(%(relids)s::int8[]::oid[]) AS u (oid)
  UNION
    SELECT t.root, h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.relid AND NOT h.inhdetachpending
), members AS MATERIALIZED (
    SELECT DISTINCT t.root, p.oid AS publication FROM pg_publication p
    JOIN pg_publication_tables m ON m.pubname = p.pubname
    JOIN pg_namespace n ON n.nspname = m.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = m.tablename
    JOIN tree t ON t.relid = c.oid
    WHERE p.pubname = ANY (%(publications)s)
)
SELECT c.oid::int8, json_build_object(
    'storage', (SELECT json_object_agg(l.oid::text, l.relfilenode::int8 ORDER BY l.oid) FROM tree t
                JOIN pg_class l ON l.oid = t.relid WHERE t.root = c.oid),
    'columns', (SELECT json_agg(json_build_array(
        a.attnum, a.attname, a.atttypid::int8, a.atttypmod,
        CASE WHEN a.attgenerated <> '' THEN (
            SELECT md5(f.adbin::text) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum) END,
        a.xmin::text,
        (SELECT format('%%s %%s', f.oid, f.xmin) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum),
        a.atthasmissing) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'enums', (SELECT json_object_agg(e.oid::text, e.label ORDER BY e.oid) FROM (
        SELECT DISTINCT x.oid, x.enumlabel AS label
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
        JOIN pg_enum x ON x.enumtypid IN (t.oid, b.oid, b.typelem)
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384) e),
    'actions', (SELECT concat_ws(', ', CASE WHEN bool_or(p.pubinsert) THEN 'insert' END,
        CASE WHEN bool_or(p.pubupdate) THEN 'update' END, CASE WHEN bool_or(p.pubdelete) THEN 'delete' END,
        CASE WHEN bool_or(p.pubtruncate) THEN 'truncate' END)
        FROM members m JOIN pg_publication p ON p.oid = m.publication WHERE m.root = c.oid),
    -- What a publication says of a leaf partition by itself has priority over what it says of the root.
    'cut_leaves', EXISTS (
        SELECT FROM tree t JOIN pg_publication_rel r ON r.prrelid = t.relid JOIN pg_publication p ON p.oid = r.prpubid
        WHERE t.root = c.oid AND t.relid <> c.oid AND p.pubname = ANY (%(publications)s)
          AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL)))::text
FROM pg_class c WHERE c.oid = ANY (%(relids)s::int8[]::oid[])
"""

_READABLE = """
SELECT bool_and(coalesce(has_table_privilege(to_regclass(t), 'SELECT'), false))
FROM unnest(ARRAY['pgtrickle.pgt_source_facts', 'pgtrickle.pgt_dependencies']) AS t
"""
_BY_APPLIER = """
SELECT f.source_relid::int8 FROM pgtrickle.pgt_source_facts f
WHERE EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
              WHERE d.source_relid = f.source_relid AND d.source_type = 'TABLE')
"""

ALL_ACTIONS = "insert, update, delete, truncate"


def read_table_facts(connection: Connection, publications: Collection[str], relids: Collection[int]) -> dict[int, str]:
    """Return the present facts of relations, each as one text."""
    values = {"relids": sorted(relids), "publications": list(publications)}
    try:
        rows = connection.execute(_FACTS.encode(), values).fetchall() if relids else []
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return {int(relid): str(facts) for relid, facts in rows}


def sources_of_applier(connection: Connection) -> frozenset[int]:
    """Return the relations that an applier of this database compares: it requests copies of them itself."""
    try:
        if connection.execute(_READABLE.encode()).fetchone() != (True,):
            return frozenset()
        return frozenset(int(relid) for (relid,) in connection.execute(_BY_APPLIER.encode()))
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def find_outdated_tables(
    captured: Mapping[int, Capture], facts: Mapping[int, str], left_out: Mapping[TableId, str]
) -> dict[TableId, str]:
    """Return why rows of which tables are not those of the log. `captured` are the captures by oid, `left_out` is what
    the publications leave out now."""
    differences: dict[TableId, str | None] = {}
    for relid, now in facts.items():
        capture = captured[relid]
        differences[capture.table] = find_difference(capture.table, capture.facts, now)
        if capture.left_out and capture.table not in left_out:
            differences[capture.table] = f"changes of {capture.table} were not streamed for some time"
    return {table: problem for table, problem in sorted(differences.items()) if problem is not None}


def find_difference(table: TableId, old: str, new: str) -> str | None:
    """Return why the rows that were copied with the old facts are no longer those of the table; None where they are."""
    if not old or old == new:
        return None
    was, now = json.loads(old), json.loads(new)
    if was["actions"] != now["actions"]:
        return f"the publications stream {now['actions'] or 'nothing'} of {table}, not {was['actions'] or 'nothing'}"
    if was.get("cut_leaves", False) != now["cut_leaves"]:
        return f"the publications have another row filter or column list for partitions of {table}"
    return outdated_rows(_relation(table, was), _relation(table, now), ())


def find_left_out(published: PublishedTable, facts: str) -> str:
    """Return which rows or changes of a table the publications leave out; '' for none."""
    if not facts:
        return ""
    described = json.loads(facts)
    streamed = {*published.columns}
    left = [str(c[1]) for c in described["columns"] or () if c[4] is None and c[1] not in streamed]
    if published.row_filter:
        return "the publications have a row filter for it"
    if left:
        return f"the publications have a column list for it without {', '.join(left)}"
    if described["cut_leaves"]:
        return "the publications have a row filter or a column list for some of its partitions"
    if described["actions"] != ALL_ACTIONS:
        return f"the publications stream only {described['actions'] or 'nothing'}"
    return ""


def find_all_left_out(published: Iterable[PublishedTable], facts: Mapping[int, str]) -> dict[TableId, str]:
    """Return the tables of which the publications leave something out, and what."""
    found = {table.table: find_left_out(table, facts.get(table.relid, "")) for table in published}
    return {table: left for table, left in found.items() if left}


def _relation(table: TableId, facts: Mapping[str, object]) -> RelationFact:
    storage = {int(oid): int(node) for oid, node in dict(facts["storage"] or {}).items()}  # type: ignore[call-overload]
    return RelationFact(
        table=table,
        kind="r",
        persistence="p",
        row_security=False,
        is_partition=False,
        has_children=False,
        replica_identity="",
        storage=0,
        rule=None,
        options="",
        keys=None,
        leaves=tuple((oid, node, "", "", "", "") for oid, node in sorted(storage.items())),
        publication_problem=None,
        memberships=frozenset(),
        enums=frozenset((int(oid), str(label)) for oid, label in dict(facts["enums"] or {}).items()),  # type: ignore[call-overload]
        columns=tuple(_column(c) for c in facts["columns"] or ()),  # type: ignore[attr-defined]
    )


def _column(fields: list[object]) -> ColumnFact:
    number, name, type_oid, typmod, generated, written, default, has_missing = fields
    return ColumnFact(number, name, type_oid, typmod, 0, False, generated, written, default, has_missing)  # type: ignore[arg-type]
