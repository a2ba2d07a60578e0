"""Reads the source's catalog over ordinary SQL connections: types, keys and published tables as they are now."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from cdc_consumer.errors import ColumnListsDiffer, PublishedViaRoot
from cdc_consumer.pgoutput.relations import RelationFacts, TypeFacts
from cdc_consumer.wal.diagnosis import diagnose_exception
from cdc_consumer.wal.horizon import NO_HORIZON, Horizon, read_horizon
from shared_schema.connections import connect_with_options
from shared_schema.progress import with_epoch
from shared_schema.signed_messages import KEY_READABLE, READ_KEY
from shared_schema.stored_settings import INSTALLED, READ, Stored
from shared_schema.table_schema import ReplicaIdentity, TableId

Connection = psycopg.Connection[tuple[Any, ...]]

log = logging.getLogger(__name__)

APPLICATION_NAME = "pg-trickle-cdc"
"""How the sessions of the consumer are called in pg_stat_activity, unless the connection string names them."""

OWN_PUBLICATION = "pg_trickle"
"""The publication that this project creates, and may alter."""

OWN_SCHEMAS = ("pgtrickle", "pgtrickle_changes")
"""The project's own tables are not captured: with a FOR ALL TABLES publication each change would cause another."""

_NOT_OWN = """(p.schemaname <> ALL (%(own)s) OR (p.schemaname, p.tablename) = ('pgtrickle', 'pgt_refresh_history')
           AND EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication o ON o.oid = r.prpubid
                       WHERE o.pubname = p.pubname
                         AND r.prrelid = format('%%I.%%I', p.schemaname, p.tablename)::regclass))"""
"""Except the refresh history, where a publication names it: self-monitoring reads it."""


def connect(database_url: str) -> Connection:
    """Open an autocommit SQL connection with the pinned settings.

    A row security policy raises an error; it must not hide rows silently.
    """
    try:
        return connect_with_options(database_url, application_name=APPLICATION_NAME, more={"row_security": "off"})
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, c.relreplident
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_KEY = """
SELECT a.attname
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = %s AND i.indisprimary ORDER BY a.attnum
"""

_TYPES = """
WITH RECURSIVE step AS (
    SELECT t.oid AS origin, t.oid, t.typname, t.typtype, t.typbasetype, t.typtypmod, -1 AS typmod
    FROM pg_type t WHERE t.oid = ANY (%s)
  UNION ALL
    SELECT s.origin, t.oid, t.typname, t.typtype, t.typbasetype, t.typtypmod,
           CASE WHEN s.typmod >= 0 THEN s.typmod ELSE s.typtypmod END
    FROM step s JOIN pg_type t ON s.typtype = 'd' AND t.oid = s.typbasetype
)
SELECT origin, typname, typmod FROM step WHERE typtype <> 'd'
"""

_DISPLAYS = "SELECT o, m, format_type(o, m) FROM unnest(%s::oid[], %s::int4[]) AS u (o, m)"


def relation_facts(connection: Connection, relid: int, types: Iterable[tuple[int, int]]) -> RelationFacts:
    """Return the catalog's current description of a relation and of the given (type oid, typmod) pairs."""
    try:
        rows = connection.execute(_COLUMNS, (relid,)).fetchall()
        columns = frozenset((str(n), int(t), int(m)) for n, t, m, _ in rows)
        key = tuple(str(name) for (name,) in connection.execute(_KEY, (relid,)))
        pairs = sorted({(oid, typmod) for _, oid, typmod in columns} | set(types))
        oids, typmods = [oid for oid, _ in pairs], [typmod for _, typmod in pairs]
        known = {int(o): TypeFacts(str(n), int(m)) for o, n, m in connection.execute(_TYPES, (oids,))}
        displays = {(int(o), int(m)): str(d) for o, m, d in connection.execute(_DISPLAYS, (oids, typmods))}
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    identity = ReplicaIdentity(rows[0][3]) if rows else ReplicaIdentity.DEFAULT
    return RelationFacts(columns, key, known, displays, tuple(str(n) for n, *_ in rows), identity)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table in at least one of the publications.

    `membership` changes when the table is removed from a publication and added again: the stream does not contain the
    changes in between. `row_filter` is SQL over the table's columns, '' for all rows; `columns` are the published ones
    in order.
    """

    table: TableId
    relid: int
    partitioned: bool
    columns: tuple[str, ...]
    row_filter: str
    membership: str
    bytes: int = 0
    """Size on disk, including all partitions."""
    leaves: tuple[int, ...] = ()
    """The leaf partitions of a partitioned table, without one that is being detached."""
    joined: Mapping[int, str] = field(default_factory=dict)
    """What identifies the attachment of each leaf."""
    via_root: bool = False
    """Whether a publication publishes the leaf partitions' changes as those of the root: then they cannot be told
    apart, and what happens to a single leaf is not in the stream."""
    only: tuple[int, ...] = ()
    """The leaf partitions to copy, if the others are captured already."""
    problem: str = ""
    """Why the stream cannot have all changes of a leaf partition."""
    horizon: Horizon = NO_HORIZON
    """Which transactions this description surely contains."""


_PUBLISHED = """
WITH RECURSIVE members AS (
    SELECT r.prrelid AS relid, p.pubviaroot, {generated} AS generated
    FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = ANY (%(publications)s)
  UNION ALL
    SELECT c.oid, p.pubviaroot, {generated}
    FROM pg_publication p JOIN pg_class c ON c.relkind = 'p' AND c.relpersistence <> 't'
    WHERE p.puballtables AND p.pubname = ANY (%(publications)s)
    {schema_members}
), roots AS (
    -- Members, of which no member is above them.
    SELECT m.relid, bool_or(m.pubviaroot) AS via_root, bool_or(m.generated) AS generated
    FROM members m JOIN pg_class c ON c.oid = m.relid AND c.relkind = 'p'
    WHERE NOT EXISTS (SELECT FROM pg_partition_ancestors(m.relid) a JOIN members o ON o.relid = a.relid::oid
                      WHERE a.relid <> m.relid)
    GROUP BY m.relid
), tree (root, relid, joined) AS (
    SELECT r.relid, r.relid, '' FROM roots r
  UNION
    SELECT t.root, i.inhrelid, concat(t.joined, '.', i.xmin)
    FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
), published AS (
    SELECT c.oid AS relid, p.schemaname, p.tablename, c.relkind, {columns}
    FROM pg_publication_tables p
    JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    WHERE p.pubname = ANY (%(publications)s) AND {not_own}
      AND c.oid NOT IN (SELECT t.relid FROM tree t)
  UNION ALL
    SELECT c.oid, n.nspname, c.relname, c.relkind,
           (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND (a.attgenerated = '' OR a.attgenerated = 's' AND r.generated)), NULL
    FROM roots r JOIN pg_class c ON c.oid = r.relid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname <> ALL (%(own)s)
)
SELECT schemaname, tablename, relid, relkind = 'p', attnames,
       (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''),
       filters,
       (SELECT string_agg(DISTINCT m, ',' ORDER BY m) FROM (
           SELECT r.oid::text AS m FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
           WHERE p.pubname = ANY (%(publications)s)
             AND (r.prrelid = relid OR r.prrelid IN (SELECT a.relid FROM pg_partition_ancestors(published.relid) a))
           UNION ALL
           SELECT 'all' || p.oid FROM pg_publication p WHERE p.pubname = ANY (%(publications)s) AND p.puballtables
           {schemas}
       ) AS memberships),
       CASE WHEN relkind = 'p' THEN (SELECT coalesce(sum(pg_relation_size(t.relid)), 0)::int8
                                     FROM pg_partition_tree(published.relid) t WHERE t.isleaf)
            ELSE coalesce(pg_relation_size(relid), 0) END,
       (SELECT coalesce(jsonb_object_agg(t.relid::text, t.joined), '{{}}')
        FROM tree t JOIN pg_class c ON c.oid = t.relid WHERE t.root = published.relid AND c.relkind <> 'p'),
       coalesce((SELECT r.via_root FROM roots r WHERE r.relid = published.relid), false),
       (SELECT min(format('its partition %%s %%s', c.oid::regclass, CASE
                   WHEN c.relkind = 'f' THEN 'is a foreign table: its changes are not in the log'
                   WHEN c.relpersistence <> 'p' THEN 'is unlogged: its changes are not in the log'
                   ELSE 'has a row filter or a column list of its own in a publication' END))
        FROM tree t JOIN pg_class c ON c.oid = t.relid AND c.relkind <> 'p'
        WHERE t.root = published.relid AND (c.relkind = 'f' OR c.relpersistence <> 'p' {limited})),
       pg_current_snapshot()::text, lists
FROM (
    SELECT relid, schemaname, tablename, relkind, min(attnames) AS attnames, count(DISTINCT attnames) AS lists,
           CASE WHEN bool_or(rowfilter IS NULL) THEN '' ELSE string_agg(DISTINCT '(' || rowfilter || ')', ' OR ') END
             AS filters
    FROM published GROUP BY relid, schemaname, tablename, relkind
) AS published
"""

_SCHEMA_MEMBERS = """UNION ALL
    SELECT c.oid, p.pubviaroot, {generated} FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
    JOIN pg_class c ON c.relnamespace = s.pnnspid AND c.relkind = 'p' WHERE p.pubname = ANY (%(publications)s)"""

_LIMITED = """OR EXISTS (
            SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
            WHERE r.prrelid = c.oid AND p.pubname = ANY (%(publications)s)
              AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))"""

_SCHEMA_MEMBERSHIPS = """UNION ALL
           SELECT 'schema' || s.oid FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
           JOIN pg_class c ON c.relnamespace = s.pnnspid
           WHERE p.pubname = ANY (%(publications)s) AND c.oid = published.relid"""


def published_query(server_version: int) -> str:
    """Return the query for a server version. Version 14 has no column lists, row filters or publications of schemas."""
    modern = server_version >= 150000
    generated = "p.pubgencols = 's'" if server_version >= 180000 else "false"
    return _PUBLISHED.format(
        not_own=_NOT_OWN,
        generated=generated,
        schema_members=_SCHEMA_MEMBERS.format(generated=generated) if modern else "",
        columns="p.attnames, p.rowfilter" if modern else "NULL::name[] AS attnames, NULL::text AS rowfilter",
        schemas=_SCHEMA_MEMBERSHIPS if modern else "",
        limited=_LIMITED if modern else "",
    )


def published_tables(connection: Connection, publications: tuple[str, ...]) -> list[PublishedTable]:
    """Return the tables that are in the publications now."""
    query = published_query(connection.info.server_version)
    values = {"publications": list(publications), "own": list(OWN_SCHEMAS)}
    try:
        rows = connection.execute(query.encode(), values).fetchall()
        epochs = _recapture_epochs(connection)
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    for schema, name, *_, lists in rows:
        if lists > 1:
            # The server would raise an error too, but only at the first change.
            raise ColumnListsDiffer(
                f"{TableId(schema, name)} has different column lists in the publications {', '.join(publications)}",
                hint="give the table the same column list in all publications, or stream each publication from its own "
                "slot",
            )
    return sorted(
        (
            PublishedTable(
                TableId(schema, name),
                relid,
                partitioned,
                published_columns(listed, own, connection.info.server_version),
                filters,
                with_epoch(members or "", epochs.get(relid, 0)),
                int(size),
                tuple(sorted(map(int, leaves))),
                {int(leaf): str(joined) for leaf, joined in leaves.items()},
                via_root,
                problem=problem or "",
                horizon=read_horizon(seen),
            )
            for schema, name, relid, partitioned, listed, own, filters, members, *others in rows
            for size, leaves, via_root, problem, seen, _ in [others]
        ),
        key=lambda t: t.table,
    )


_UNREADABLE = """
SELECT u.root, c.oid::regclass::text, current_user::text, row_security_active(c.oid)
FROM unnest(%(roots)s::int8[], %(parts)s::int8[]) AS u (root, part) JOIN pg_class c ON c.oid = u.part::oid
WHERE row_security_active(c.oid) OR NOT has_schema_privilege(c.relnamespace, 'USAGE')
   OR NOT has_table_privilege(c.oid, 'SELECT') AND EXISTS (
       SELECT FROM pg_attribute a JOIN jsonb_array_elements_text(%(columns)s::jsonb -> u.root::text) AS n (name)
           ON a.attname = n.name
       WHERE a.attrelid = c.oid AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT'))
ORDER BY 1, 2
"""


def find_unreadable(connection: Connection, tables: Collection[PublishedTable]) -> dict[int, str]:
    """Return why tables cannot be copied, by their oid: not every row of them, or of their leaves, may be read."""
    parts = [(t.relid, part) for t in tables for part in (t.relid, *(t.only or t.leaves))]
    columns = {str(t.relid): list(t.columns) for t in tables}
    values = {"roots": [r for r, _ in parts], "parts": [p for _, p in parts], "columns": json.dumps(columns)}
    try:
        rows = connection.execute(_UNREADABLE, values).fetchall() if parts else []
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return {
        int(root): f"row security policies of {part} hide rows from role {role}; ALTER ROLE {role} BYPASSRLS"
        if hidden
        else f"permission denied for table {part}; GRANT SELECT ON {part} TO {role}"
        for root, part, role, hidden in reversed(rows)
    }


def stored_settings(database_url: str) -> Stored:
    """Return the settings stored in the database; none if no applier is installed or the role may not read them."""
    with connect(database_url) as connection:
        if connection.execute(INSTALLED).fetchone() != (True,):
            return {}
        return {str(name): (str(value), str(source)) for name, value, source in connection.execute(READ)}


def _recapture_epochs(connection: Connection) -> dict[int, int]:
    """Return how often an applier requested to copy each relation again; empty if no applier is installed."""
    readable = connection.execute(
        "SELECT has_table_privilege(t, 'SELECT') FROM to_regclass('pgtrickle.pgt_recaptures') t"
    ).fetchone()
    if readable != (True,):
        return {}
    rows = connection.execute("SELECT source_relid::int8, epoch FROM pgtrickle.pgt_recaptures").fetchall()
    return {int(relid): int(number) for relid, number in rows}


def published_columns(listed: list[str] | None, stored: list[str] | None, server_version: int) -> tuple[str, ...]:
    """Return the columns that are streamed.

    `stored` excludes generated columns: before PostgreSQL 18 no stream contains them, although version 15 lists them.
    """
    if listed is None:
        return tuple(stored or ())
    return tuple(name for name in listed if server_version >= 180000 or name in (stored or ()))


def publications_of(connection: Connection, publications: tuple[str, ...]) -> dict[TableId, list[str]]:
    """Return for each table the publications that contain it, for a partitioned one those that contain its leaves."""
    query = (
        "SELECT n.nspname, c.relname, array_agg(DISTINCT p.pubname::text) FROM pg_publication_tables p "
        "JOIN pg_class t ON t.oid = format('%%I.%%I', p.schemaname, p.tablename)::regclass "
        "JOIN pg_class c ON c.oid IN (t.oid, pg_partition_root(t.oid)) JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE p.pubname = ANY (%(publications)s) AND {_NOT_OWN} GROUP BY 1, 2"
    )
    try:
        rows = connection.execute(query, {"publications": list(publications), "own": list(OWN_SCHEMAS)}).fetchall()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return {TableId(schema, name): names for schema, name, names in rows}


def missing_publications(connection: Connection, publications: tuple[str, ...]) -> list[str]:
    """Return the names for which no publication exists."""
    try:
        rows = connection.execute("SELECT pubname FROM pg_publication").fetchall()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    found = {str(name) for (name,) in rows}
    return [name for name in publications if name not in found]


def create_publication(connection: Connection, name: str) -> None:
    """Create a publication without tables.

    Changes of partitions are published as their own; generated columns are published too.
    """
    generated = " WITH (publish_generated_columns = stored)" if connection.info.server_version >= 180_000 else ""
    statement = psycopg.sql.SQL(f"CREATE PUBLICATION {{}}{generated}")
    try:
        connection.execute(statement.format(psycopg.sql.Identifier(name)))
    except psycopg.errors.DuplicateObject:
        return  # another instance created it first
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def publications_via_root(connection: Connection, publications: tuple[str, ...]) -> list[str]:
    """Return the publications that publish the changes of leaf partitions as those of their root."""
    try:
        rows = connection.execute(
            "SELECT pubname FROM pg_publication WHERE pubname = ANY (%s) AND pubviaroot ORDER BY 1",
            (list(publications),),
        ).fetchall()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return [str(name) for (name,) in rows]


def publish_leaves(connection: Connection, publications: tuple[str, ...]) -> None:
    """Let our own publication, if it is among these, publish the changes of leaf partitions as their own.

    Only while we stream: an instance of an older version would not know the leaves.
    """
    if OWN_PUBLICATION not in publications_via_root(connection, publications):
        return
    statement = psycopg.sql.SQL("ALTER PUBLICATION {} SET (publish_via_partition_root = false)")
    try:
        connection.execute(statement.format(psycopg.sql.Identifier(OWN_PUBLICATION)))
        log.info("publication publishes leaf partitions by themselves now", extra={"publication": OWN_PUBLICATION})
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidParameterValue) as error:
        if tables := [str(t.table) for t in published_tables(connection, (OWN_PUBLICATION,)) if t.via_root]:
            raise published_via_root(OWN_PUBLICATION, tables) from error
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def published_via_root(publication: str, tables: list[str]) -> PublishedViaRoot:
    """Return the error for a publication that is not ours to alter: what happens to single partitions would be lost."""
    return PublishedViaRoot(
        f"publication {publication} publishes {', '.join(tables)} via the root",
        hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)",
    )


_ANCESTORS = "SELECT a.relid::oid::int8 FROM pg_partition_ancestors(%s::int8::oid::regclass) a"

_IS_PUBLISHED = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
               WHERE c.oid = %s::int8::oid AND p.pubname = ANY (%s))
"""


def partition_ancestors(connection: Connection, publications: tuple[str, ...], relid: int) -> list[int]:
    """Return the tables of which a relation is a partition now, and itself; only itself if it is published by itself.

    Empty if it is neither: it was dropped or detached, or left the publications.
    """
    try:
        ancestors = [int(oid) for (oid,) in connection.execute(_ANCESTORS, (relid,))]
        if not ancestors and connection.execute(_IS_PUBLISHED, (relid, list(publications))).fetchone() == (True,):
            return [relid]
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return ancestors


def partitioned_tables(connection: Connection, relids: list[int]) -> set[int]:
    """Return those of the relations that are partitioned tables."""
    query = "SELECT oid::int8 FROM pg_class WHERE oid = ANY (%s::int8[]::oid[]) AND relkind = 'p'"
    try:
        return {int(oid) for (oid,) in connection.execute(query, (relids,))}
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


def message_key(connection: Connection) -> bytes | None:
    """Return the key of signed log messages; None if no applier is installed or the role may not read it."""
    try:
        if connection.execute(KEY_READABLE).fetchone() != (True,):
            return None
        with connection.transaction():
            # Here a policy decides who sees the row; elsewhere one that hides rows is an error in these sessions.
            connection.execute("SET LOCAL row_security = on")
            row = connection.execute(READ_KEY).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return bytes(row[0]) if row else None
