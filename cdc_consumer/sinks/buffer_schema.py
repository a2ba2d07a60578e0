"""The tables of schema `pgtrickle_changes`: making them, and keeping a buffer table fit for each schema version.

`changes_<oid>`   the change rows of the source table with that oid: the stamp and its company, then a column per source
                  column. A column that is gone stays, a column whose type changed is renamed and made anew.
`versions`        what the columns were when a row was written: `__pgt_version` of a row refers to it. Masks count its
                  columns.
`control`         log messages and schema changes, the same JSON as on the control topic.
`progress`        the progress record of each slot and the capture records, the same JSON as on the progress topic.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from cdc_consumer.change_rows.buffer_rows import BOOKKEEPING, Layout
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
    """Everything but the buffer tables; safe when several do it at once."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('pgtrickle_changes'))")
        connection.execute(_CREATE)


def buffers_exist(connection: Connection) -> bool:
    """Whether the tables are there."""
    row = connection.execute("SELECT to_regclass('pgtrickle_changes.progress') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def buffer_table(relid: int) -> str:
    """`changes_<oid>`, without its schema."""
    return f"changes_{relid}"


def fit_buffer_table(connection: Connection, schema: TableSchema) -> Layout:
    """Make or alter the buffer table so that it takes this version's rows."""
    own = {name for name, _ in BOOKKEEPING}
    for column in schema.columns:
        if column.name in own:
            raise UnsupportedColumn(
                f"column {column.name} of {schema.table} has the name of a column of ours",
                hint="rename it, leave it out by a column list, or use mode log",
            )
    table = sql.Identifier(SCHEMA, buffer_table(schema.relid))
    bookkeeping = sql.SQL(", ".join(f"{name} {kind}" for name, kind in BOOKKEEPING))
    create_table = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY (__pgt_lsn, __pgt_seq))")
    connection.execute(create_table.format(table, bookkeeping))
    present: dict[str, str] = dict(connection.execute(_COLUMNS, (buffer_table(schema.relid),)).fetchall())
    types = [_target_type(connection, column.type) for column in schema.columns]
    for column, (display, _) in zip(schema.columns, types, strict=True):
        name = sql.Identifier(column.name)
        if present.get(column.name) == display:
            continue
        if column.name in present:
            before = sql.Identifier(_free_name(column.name, present))
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

    Text for types this database does not have, and for those whose values are read by looking into the catalog (enums,
    composite types, `regclass`): it may have moved on since the value was printed, and then refuses it. A domain's
    checks are the source's business, and an unknown value is NULL here whatever they say.
    """
    place = {"name": kind.name, "typmod": kind.typmod, "display": kind.display}
    row = connection.execute(_TYPE, place).fetchone()
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
    """The number of this schema version, a new one if it was never seen."""
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
            "columns": [column.name for column in schema.columns],
            "key": list(schema.key),
            "identity": schema.replica_identity.value,
            "avro": avro,
        },
    ).fetchone()
    return int(added[0]) if added else 1
