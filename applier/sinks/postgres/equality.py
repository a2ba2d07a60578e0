"""A stream table in; for each column the operator by which PostgreSQL itself compares its type, out.

The search path of a write session is that of the role, for triggers of users: a plain `=` could be an operator that
somebody else put into one of its schemas. So statements name the operator of the type's own index, with its schema.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from applier.plan.stream_table import StreamTable
from shared_schema.pg_types import FIRST_USER_OID
from shared_schema.table_schema import Column

Cursor = psycopg.Cursor[tuple[object, ...]]

BUILT_IN: LiteralString = "OPERATOR(pg_catalog.=)"
"""Of all types that are PostgreSQL's own. It covers enums, arrays, ranges and rows of users too."""

_OF_TYPES: LiteralString = """
SELECT y.oid::int8, n.nspname::text, o.oprname::text
FROM pg_catalog.pg_type y JOIN pg_catalog.pg_opclass c ON c.opcintype = y.oid AND c.opcdefault
JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
JOIN pg_catalog.pg_amop a ON a.amopfamily = c.opcfamily AND a.amoplefttype = y.oid AND a.amoprighttype = y.oid
    AND a.amopstrategy = 3
JOIN pg_catalog.pg_operator o ON o.oid = a.amopopr JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
WHERE y.oid = ANY (%s::int8[]::oid[])
"""
_BASE_TYPES: LiteralString = """
WITH RECURSIVE step (oid, base) AS (
    SELECT oid, oid FROM pg_catalog.unnest(%s::int8[]::oid[]) AS oid
  UNION ALL
    SELECT s.oid, y.typbasetype FROM step s JOIN pg_catalog.pg_type y ON y.oid = s.base AND y.typtype = 'd'
)
SELECT s.oid::int8, s.base::int8 FROM step s JOIN pg_catalog.pg_type y ON y.oid = s.base AND y.typtype <> 'd'
"""


def printed(value: sql.Composable, column: Column) -> sql.Composable:
    """Return the SQL of the text that PostgreSQL prints of a value.

    Not `::text` for a type of users: that is a function of the type's owner where he made a cast. It may give one text
    for several values.
    """
    if column.type.oid < FIRST_USER_OID or column.type.name == "bpchar":
        return sql.SQL("{}::text").format(value)
    # Unlike IS NULL, not true of a row whose columns are all NULL.
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END").format(value)


def equality_operators(cursor: Cursor, table: StreamTable) -> dict[int, sql.Composable]:
    """Return the operator of each column by its ordinal."""
    types = {column.type.oid for column in table.columns if column.type.oid >= FIRST_USER_OID}
    base: dict[int, int] = {}
    named: dict[int, sql.Composable] = {}
    if types:
        base = {int(str(oid)): int(str(of)) for oid, of in cursor.execute(_BASE_TYPES, (sorted(types),)).fetchall()}
        for oid, schema, name in cursor.execute(_OF_TYPES, (sorted(set(base.values())),)).fetchall():
            operator = sql.SQL("OPERATOR({}.").format(sql.Identifier(str(schema)))
            named[int(str(oid))] = sql.Composed([operator, sql.SQL(str(name)), sql.SQL(")")])
    return {
        i: named.get(base.get(column.type.oid, column.type.oid), sql.SQL(BUILT_IN))
        for i, column in enumerate(table.columns)
    }
