"""Relations in; what their rows rest on besides the log, out, and whether two such facts mean that rows changed.

An applier compares the sources of its stream tables itself, where they are in its own database. Readers elsewhere
cannot see this catalog, so all captured tables are compared here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import psycopg

from cdc_consumer.wal.catalog import Connection, PublishedTable
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema.dependency_facts import ColumnFact, LeafFact, RelationFact
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
), restricted AS MATERIALIZED (
    -- A leaf that is published by itself has a row filter and a column list of its own.
    SELECT t.root, min(format('a %%s for partition %%s', CASE WHEN to_jsonb(r) ->> 'prqual' IS NOT NULL
                              THEN 'row filter' ELSE 'column list' END, t.relid::regclass)) AS by
    FROM tree t JOIN pg_publication_rel r ON r.prrelid = t.relid AND t.relid <> t.root
    JOIN pg_publication p ON p.oid = r.prpubid AND p.pubname = ANY (%(publications)s)
    WHERE to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL GROUP BY t.root
), parts (root, type) AS (
    -- The types of columns and all that they are made of.
    SELECT a.attrelid, a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY (%(relids)s::int8[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
  UNION
    SELECT p.root, x.oid FROM parts p JOIN pg_type t ON t.oid = p.type CROSS JOIN LATERAL (
        SELECT t.typbasetype UNION ALL SELECT t.typelem
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.typtype = 'r' AND r.rngtypid = t.oid
        UNION ALL SELECT r.rngtypid FROM pg_range r WHERE t.typtype = 'm' AND r.rngmultitypid = t.oid) AS x (oid)
    WHERE x.oid >= 16384
)
SELECT c.oid::int8, json_build_object(
    'storage', (SELECT json_object_agg(l.oid::text, l.relfilenode::int8 ORDER BY l.oid) FROM tree t
                JOIN pg_class l ON l.oid = t.relid WHERE t.root = c.oid),
    'toast', (SELECT json_object_agg(l.oid::text, l.reltoastrelid::int8 ORDER BY l.oid) FROM tree t
              JOIN pg_class l ON l.oid = t.relid WHERE t.root = c.oid),
    'columns', (SELECT json_agg(json_build_array(
        a.attnum, a.attname, a.atttypid::int8, a.atttypmod,
        CASE WHEN a.attgenerated <> '' THEN (
            SELECT md5(f.adbin::text) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum) END,
        a.xmin::text,
        (SELECT format('%%s %%s', f.oid, f.xmin) FROM pg_attrdef f WHERE f.adrelid = c.oid AND f.adnum = a.attnum),
        a.atthasmissing) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'expressions', (SELECT json_object_agg(l.relid::text, l.written) FROM (
        SELECT t.relid, string_agg(format('%%s %%s %%s', f.adnum, f.oid, f.xmin), ',' ORDER BY f.adnum) AS written
        FROM tree t JOIN pg_attrdef f ON f.adrelid = t.relid
        JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum AND a.attgenerated <> ''
        WHERE t.root = c.oid AND t.relid <> c.oid GROUP BY t.relid ORDER BY t.relid) l),
    'enums', (SELECT json_object_agg(x.oid::text, x.enumlabel ORDER BY x.oid)
              FROM parts p JOIN pg_enum x ON x.enumtypid = p.type WHERE p.root = c.oid),
    'labels_written', (SELECT json_object_agg(x.oid::text, x.xmin::text ORDER BY x.oid)
                       FROM parts p JOIN pg_enum x ON x.enumtypid = p.type WHERE p.root = c.oid),
    'composites', (SELECT json_object_agg(t.oid::text, (
        SELECT json_agg(json_build_array(a.attnum, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) ORDER BY t.oid)
        FROM parts p JOIN pg_type t ON t.oid = p.type AND t.typtype = 'c' WHERE p.root = c.oid),
    'restricted', (SELECT r.by FROM restricted r WHERE r.root = c.oid),
    'via_root', c.relkind = 'p' AND EXISTS (SELECT FROM members m JOIN pg_publication p ON p.oid = m.publication
                                            WHERE m.root = c.oid AND p.pubviaroot),
    'actions', (SELECT concat_ws(', ', CASE WHEN bool_or(p.pubinsert) THEN 'insert' END,
        CASE WHEN bool_or(p.pubupdate) THEN 'update' END, CASE WHEN bool_or(p.pubdelete) THEN 'delete' END,
        CASE WHEN bool_or(p.pubtruncate) THEN 'truncate' END)
        FROM members m JOIN pg_publication p ON p.oid = m.publication WHERE m.root = c.oid),
    'options_written', (SELECT json_object_agg(p.oid::text, p.xmin::text ORDER BY p.oid)
                        FROM members m JOIN pg_publication p ON p.oid = m.publication WHERE m.root = c.oid),
    'generated_columns', (SELECT json_object_agg(p.oid::text, to_jsonb(p) ->> 'pubgencols' ORDER BY p.oid)
                          FROM members m JOIN pg_publication p ON p.oid = m.publication WHERE m.root = c.oid))::text
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
        if connection.execute(_READABLE.encode(), prepare=True).fetchone() != (True,):
            return frozenset()
        return frozenset(int(relid) for (relid,) in connection.execute(_BY_APPLIER.encode(), prepare=True))
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def find_outdated_tables(
    captured: Mapping[int, Capture], facts: Mapping[int, str], left_out: Collection[TableId]
) -> dict[TableId, str]:
    """Return the tables whose rows are not those of the log, and why. `captured` are the captures by oid; of tables in
    `left_out` the publications leave something out now."""
    found: dict[TableId, str] = {}
    for relid, now in facts.items():
        capture = captured[relid]
        problem = find_difference(capture.table, capture.facts, now)
        if problem is None and capture.left_out and capture.table not in left_out:
            problem = f"not all changes of {capture.table} were streamed for some time"
        if problem is not None:
            found[capture.table] = problem
    return dict(sorted(found.items()))


def find_difference(table: TableId, old: str, new: str) -> str | None:
    """Return why the rows that were copied with the old facts are no longer those of the table; None where they are."""
    if not old or old == new:
        return None
    was, now = json.loads(old), json.loads(new)
    if was["actions"] != now["actions"]:
        return f"the publications stream {now['actions'] or 'nothing'} of {table}, not {was['actions'] or 'nothing'}"
    # Facts of earlier versions do not have them.
    if any(was.get(key, now[key]) != now[key] for key in ("restricted", "via_root")):
        return f"the publications stream partitions of {table} in another way"
    # A publication is altered by ourselves when it is to have generated columns: nothing is lost meanwhile.
    is_same = was.get("generated_columns") == now.get("generated_columns")
    if is_same and _is_written_again("options_written", was, now):
        return f"a publication of {table} was altered, and altered back"
    if _is_written_again("labels_written", was, now) and (was["enums"] or {}).items() <= (now["enums"] or {}).items():
        return f"a label of a type of {table} was renamed, and renamed back"
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
    if restricted := described.get("restricted"):
        return f"the publications have {restricted}"
    if described.get("via_root"):
        return "a publication publishes it via the root"
    if described["actions"] != ALL_ACTIONS:
        return f"the publications stream only {described['actions'] or 'nothing'}"
    return ""


def find_all_left_out(published: Iterable[PublishedTable], facts: Mapping[int, str]) -> dict[TableId, str]:
    """Return the tables of which the publications leave out rows or changes, and which. `facts` are theirs by oid."""
    found = {t.table: find_left_out(t, facts.get(t.relid, "")) for t in published}
    return {table: left_out for table, left_out in found.items() if left_out}


def _relation(table: TableId, facts: Mapping[str, Any]) -> RelationFact:
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
        leaves=tuple(
            LeafFact(
                int(oid), int(node), "", "", "", "", _expressions(facts, oid), (facts.get("toast") or {}).get(oid, 0)
            )
            for oid, node in sorted((facts["storage"] or {}).items())
        ),
        publication_problem=None,
        memberships=frozenset(),
        enums=frozenset((int(oid), str(label)) for oid, label in (facts["enums"] or {}).items()),
        columns=tuple(_column(c) for c in facts["columns"] or ()),
        composites=frozenset(
            (int(oid), tuple((number, kind, typmod) for number, kind, typmod in attributes or ()))
            for oid, attributes in (facts.get("composites") or {}).items()
        ),
    )


def _is_written_again(key: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a row of the catalog that both facts have was written in between; earlier versions have none of them."""
    old, new = was.get(key) or {}, now.get(key) or {}
    return any(new.get(oid, written) != written for oid, written in old.items())


def _expressions(facts: Mapping[str, Any], leaf: str) -> str | None:
    """Return when the expressions of a leaf's generated columns were written; None in facts of earlier versions."""
    return (facts["expressions"] or {}).get(leaf, "") if "expressions" in facts else None


def _column(fields: Sequence[Any]) -> ColumnFact:
    number, name, type_oid, typmod, generated, written, default, has_missing = fields
    return ColumnFact(number, name, type_oid, typmod, 0, False, generated, written, default, has_missing)
