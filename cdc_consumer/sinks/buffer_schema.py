"""Creates the tables of schema `pgtrickle_changes`, and alters a buffer table to fit each schema version.

`changes_<oid>`   the change rows of the source table with that oid: bookkeeping columns, then one column per source
                  column. A dropped column stays; a column whose type changed is renamed, and a new one is added.
                  The rows of leaf partitions are in the table of their root, with their leaf in `__pgt_leaf`.
`versions`        the columns at the time a row was written: `__pgt_version` of a row refers to it. Bit masks count
                  these columns.
`control`         log messages and schema changes, the same JSON as on the control topic.
`progress`        the progress record of each slot and the capture records, the same JSON as on the progress topic.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from cdc_consumer.change_rows.buffer_rows import BOOKKEEPING, LEAF_NAME, Layout, buffer_column
from shared_schema.avro import change_schema, schema_json
from shared_schema.errors import UnsupportedColumn
from shared_schema.pg_types import PgType
from shared_schema.table_schema import TableSchema

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA = "pgtrickle_changes"

_CREATE = """
CREATE SCHEMA IF NOT EXISTS pgtrickle_changes;
CREATE TABLE IF NOT EXISTS pgtrickle_changes.progress (
    key text PRIMARY KEY, slot text NOT NULL, record jsonb NOT NULL
);
CREATE TABLE IF NOT EXISTS pgtrickle_changes.versions (
    relid oid, version integer, source_schema text NOT NULL, source_table text NOT NULL, columns text[] NOT NULL,
    key text[] NOT NULL, replica_identity "char" NOT NULL, avro_schema jsonb NOT NULL, PRIMARY KEY (relid, version)
);
CREATE TABLE IF NOT EXISTS pgtrickle_changes.control (
    slot text, lsn pg_lsn, seq bigint, kind text NOT NULL, record jsonb NOT NULL, PRIMARY KEY (slot, lsn, seq)
)
"""


def create_buffers(connection: Connection) -> None:
    """Create everything except the buffer tables. Safe if several processes do it at the same time."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('pgtrickle_changes'))")
        connection.execute(_CREATE)


def buffers_exist(connection: Connection) -> bool:
    """Return whether the tables exist."""
    row = connection.execute("SELECT to_regclass('pgtrickle_changes.progress') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def buffer_table(relid: int) -> str:
    """Return the name of a buffer table, `changes_<oid>`, without its schema."""
    return f"changes_{relid}"


def fit_buffer_table(connection: Connection, schema: TableSchema) -> Layout:
    """Create or alter the buffer table so that it can hold the rows of this schema version."""
    own = {LEAF_NAME, *(name for name, _ in BOOKKEEPING)}
    for column in schema.columns:
        if column.name in own:
            raise UnsupportedColumn(
                f"column {column.name} of {schema.table} has the same name as a bookkeeping column of the buffer table",
                hint="rename the column, exclude it by a column list of the publication, or use mode log",
            )
    table = sql.Identifier(SCHEMA, buffer_table(schema.relid))
    bookkeeping = sql.SQL(", ".join(f"{name} {kind}" for name, kind in BOOKKEEPING))
    create_table = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY (__pgt_lsn, __pgt_seq))")
    connection.execute(create_table.format(table, bookkeeping))
    present: dict[str, str] = dict(connection.execute(_COLUMNS, (buffer_table(schema.relid),)).fetchall())
    types = [_target_type(connection, column.type) for column in schema.columns]
    for column, (display, _) in zip(schema.columns, types, strict=True):
        stored = buffer_column(column)
        name = sql.Identifier(stored)
        if present.get(stored) == display:
            continue
        if stored in present:
            before = sql.Identifier(_free_name(stored, present))
            connection.execute(sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, name, before))
        connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(table, name, sql.SQL(display)))
    return Layout(schema, _version(connection, schema), tuple(name for _, name in types))


_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = format('pgtrickle_changes.%%I', %s::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""

_TYPE = """
SELECT format_type(t.oid, %(typmod)s), t.typname
FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE (t.typnamespace = 'pg_catalog'::regnamespace AND t.typname = %(name)s OR t.oid = to_regtype(%(display)s))
  AND coalesce(e.typtype, t.typtype) IN ('b', 'r', 'm') AND coalesce(e.typname, t.typname) !~ '^reg'
ORDER BY t.typnamespace = 'pg_catalog'::regnamespace DESC LIMIT 1
"""


def _target_type(connection: Connection, kind: PgType) -> tuple[str, str]:
    """-> (type in SQL, catalog name): the base type under all domains, or `text`.

    Text for types that this database does not have, and for types whose values are parsed with the help of the catalog
    (enums, composite types, `regclass`): the catalog may have changed since the value was printed, and would then
    reject it. Domains are not used because the source has already checked them, and because an unknown value is NULL
    here even if the domain does not allow NULL.
    """
    parameters = {"name": kind.name, "typmod": kind.typmod, "display": kind.display}
    row = connection.execute(_TYPE, parameters).fetchone()
    return (str(row[0]), str(row[1])) if row else ("text", "text")


def _free_name(name: str, present: dict[str, str]) -> str:
    number = 1
    while True:
        suffix = f"__before_{number}"
        candidate = name.encode()[: 63 - len(suffix)].decode(errors="ignore") + suffix
        if candidate not in present:
            return candidate
        number += 1


def _version(connection: Connection, schema: TableSchema) -> int:
    """Return the number of this schema version; a version that is not stored yet gets a new number."""
    avro = schema_json(change_schema(schema))
    known = "SELECT version FROM pgtrickle_changes.versions WHERE relid = %s AND avro_schema = %s::jsonb"
    if row := connection.execute(known, (schema.relid, avro)).fetchone():
        return int(row[0])
    added = connection.execute(
        "INSERT INTO pgtrickle_changes.versions SELECT %(relid)s, coalesce(max(version), 0) + 1, %(schema)s, "
        "%(table)s, %(columns)s, %(key)s, %(identity)s, %(avro)s::jsonb "
        "FROM pgtrickle_changes.versions WHERE relid = %(relid)s RETURNING version",
        {
            "relid": schema.relid,
            "schema": schema.table.schema,
            "table": schema.table.name,
            "columns": [buffer_column(column) for column in schema.columns],
            "key": list(schema.key),
            "identity": schema.replica_identity.value,
            "avro": avro,
        },
    ).fetchone()
    return int(added[0]) if added else 1
