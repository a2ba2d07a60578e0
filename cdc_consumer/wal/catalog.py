"""Reads the source's catalog over ordinary SQL connections: types, keys and published tables as they are now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

from cdc_consumer.errors import ColumnListsDiffer
from cdc_consumer.pgoutput.relations import RelationFacts, TypeFacts
from cdc_consumer.wal.diagnosis import diagnose_exception
from shared_schema.connections import connect_with_options
from shared_schema.progress import with_epoch
from shared_schema.stored_settings import INSTALLED, READ, Stored
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[Any, ...]]

APPLICATION_NAME = "pg-trickle-cdc"
"""How the sessions of the consumer are called in pg_stat_activity, unless the connection string names them."""

OWN_SCHEMAS = ("pgtrickle", "pgtrickle_changes")
"""The project's own tables are never captured: with a FOR ALL TABLES publication each change would cause another."""


def connect(database_url: str) -> Connection:
    """Open an autocommit SQL connection with the pinned settings.

    A row security policy raises an error; it must not hide rows silently.
    """
    try:
        return connect_with_options(database_url, application_name=APPLICATION_NAME, more={"row_security": "off"})
    except psycopg.Error as error:
        raise diagnose_exception(error) from error


_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
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
        columns = frozenset((str(n), int(t), int(m)) for n, t, m in connection.execute(_COLUMNS, (relid,)))
        key = tuple(str(name) for (name,) in connection.execute(_KEY, (relid,)))
        pairs = sorted({(oid, typmod) for _, oid, typmod in columns} | set(types))
        oids, typmods = [oid for oid, _ in pairs], [typmod for _, typmod in pairs]
        known = {int(o): TypeFacts(str(n), int(m)) for o, n, m in connection.execute(_TYPES, (oids,))}
        displays = {(int(o), int(m)): str(d) for o, m, d in connection.execute(_DISPLAYS, (oids, typmods))}
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    return RelationFacts(columns, key, known, displays)


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


_PUBLISHED = """
WITH published AS (
    SELECT c.oid AS relid, p.schemaname, p.tablename, c.relkind, {columns}
    FROM pg_publication_tables p
    JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    WHERE p.pubname = ANY (%(publications)s) AND p.schemaname <> ALL (%(own)s)
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
       lists
FROM (
    SELECT relid, schemaname, tablename, relkind, min(attnames) AS attnames, count(DISTINCT attnames) AS lists,
           CASE WHEN bool_or(rowfilter IS NULL) THEN '' ELSE string_agg(DISTINCT '(' || rowfilter || ')', ' OR ') END
             AS filters
    FROM published GROUP BY relid, schemaname, tablename, relkind
) AS published
"""

_SCHEMA_MEMBERSHIPS = """UNION ALL
           SELECT 'schema' || s.oid FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
           JOIN pg_class c ON c.relnamespace = s.pnnspid
           WHERE p.pubname = ANY (%(publications)s) AND c.oid = published.relid"""


def published_query(server_version: int) -> str:
    """Return the query for a server version. Version 14 has no column lists, row filters or publications of schemas."""
    modern = server_version >= 150000
    return _PUBLISHED.format(
        columns="p.attnames, p.rowfilter" if modern else "NULL::name[] AS attnames, NULL::text AS rowfilter",
        schemas=_SCHEMA_MEMBERSHIPS if modern else "",
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
            )
            for schema, name, relid, partitioned, listed, own, filters, members, size, _ in rows
        ),
        key=lambda t: t.table,
    )


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
    """Return for each table the publications that contain it."""
    query = (
        "SELECT schemaname, tablename, array_agg(pubname::text ORDER BY pubname) FROM pg_publication_tables "
        "WHERE pubname = ANY (%s) AND schemaname <> ALL (%s) GROUP BY 1, 2"
    )
    try:
        rows = connection.execute(query, (list(publications), list(OWN_SCHEMAS))).fetchall()
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

    Changes of partitions are published under the name of their root; generated columns are published too.
    """
    generated = ", publish_generated_columns = stored" if connection.info.server_version >= 180_000 else ""
    statement = psycopg.sql.SQL(f"CREATE PUBLICATION {{}} WITH (publish_via_partition_root = true{generated})")
    try:
        connection.execute(statement.format(psycopg.sql.Identifier(name)))
    except psycopg.errors.DuplicateObject:
        return  # another instance created it first
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
