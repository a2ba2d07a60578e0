"""Captured relations in; a text that changes whenever a row of the catalog on which their rows rest is written, out.

Nothing in it depends on the number of tables in the database, and nothing is formatted or compared.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import psycopg

from cdc_consumer.wal.catalog import Connection
from cdc_consumer.wal.diagnosis import diagnose_exception

# One statement, so one snapshot: the objects are those that the digest is about.
_DIGEST = """
WITH RECURSIVE tree (relid) AS (
    SELECT u.oid FROM unnest(%(relids)s::int8[]::oid[]) AS u (oid)
  UNION
    SELECT h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.relid
), parts (type) AS (
    SELECT a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY (%(relids)s::int8[]::oid[]) AND a.attnum > 0 AND a.atttypid >= 16384
  UNION
    SELECT x.oid FROM parts p JOIN pg_type t ON t.oid = p.type CROSS JOIN LATERAL (
        SELECT t.typbasetype UNION ALL SELECT t.typelem
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.typtype = 'r' AND r.rngtypid = t.oid
        UNION ALL SELECT r.rngtypid FROM pg_range r WHERE t.typtype = 'm' AND r.rngmultitypid = t.oid) AS x (oid)
    WHERE x.oid >= 16384
), relations AS MATERIALIZED (
    SELECT c.oid, c.xmin, c.relfilenode, c.relnamespace FROM tree t JOIN pg_class c ON c.oid = t.relid
), publications AS MATERIALIZED (
    SELECT p.oid, p.xmin FROM pg_publication p WHERE p.pubname = ANY (%(publications)s)
), types AS MATERIALIZED (
    SELECT t.oid, t.xmin, CASE WHEN t.typtype = 'c' THEN t.typrelid END AS relid
    FROM parts p JOIN pg_type t ON t.oid = p.type
)
SELECT concat_ws(' ',
    (SELECT sum(hashint8extended(r.xmin::text::int8, hashint8extended(r.oid::int8, r.relfilenode::int8)))
     FROM relations r),
    (SELECT sum(hashint8extended(a.xmin::text::int8, hashint8extended(a.attrelid::int8, a.attnum))) FROM pg_attribute a
     WHERE a.attrelid = ANY (%(relids)s::int8[]::oid[]) AND a.attnum > 0),
    (SELECT sum(hashint8extended(d.xmin::text::int8, hashint8extended(d.oid::int8, 1))) FROM relations r
     JOIN pg_attrdef d ON d.adrelid = r.oid),
    (SELECT sum(hashint8extended(h.inhrelid::int8, hashint8extended(h.inhparent::int8, h.xmin::text::int8)))
     FROM relations r
     JOIN pg_inherits h ON h.inhparent = r.oid),
    (SELECT sum(hashint8extended(m.xmin::text::int8, hashint8extended(m.oid::int8, 2))) FROM relations r
     JOIN pg_publication_rel m ON m.prrelid = r.oid),
    (SELECT sum(hashint8extended(n.xmin::text::int8, hashint8extended(n.oid::int8, 3))) FROM pg_namespace n
     WHERE n.oid IN (SELECT relnamespace FROM relations)),
    (SELECT sum(hashint8extended(t.xmin::text::int8, hashint8extended(t.oid::int8, 4))) FROM types t),
    (SELECT sum(hashint8extended(e.xmin::text::int8, hashint8extended(e.oid::int8, 5))) FROM types t
     JOIN pg_enum e ON e.enumtypid = t.oid),
    (SELECT sum(hashint8extended(a.xmin::text::int8, hashint8extended(a.attrelid::int8, a.attnum))) FROM types t
     JOIN pg_attribute a ON a.attrelid = t.relid AND a.attnum > 0),
    (SELECT sum(hashint8extended(p.xmin::text::int8, hashint8extended(p.oid::int8, 6))) FROM publications p){schemas}),
    (SELECT sum(hashint8extended(m.xmin::text::int8, hashint8extended(m.oid::int8, 8))) FROM publications p
     JOIN pg_publication_rel m ON m.prpubid = p.oid)::text,
    ARRAY(SELECT oid::int8 FROM relations UNION SELECT oid::int8 FROM types UNION SELECT oid::int8 FROM publications)
"""

_SCHEMAS = """,
    (SELECT sum(hashint8extended(s.xmin::text::int8, hashint8extended(s.oid::int8, 7))) FROM publications p
     JOIN pg_publication_namespace s ON s.pnpubid = p.oid)"""


@dataclass(frozen=True, slots=True)
class CatalogDigest:
    """What a look at the catalog is reduced to."""

    text: str
    members: str
    """A digest of the tables that the publications name, captured or not."""
    objects: frozenset[int]
    """The relations, types and publications that the text is about."""


def read_digest(connection: Connection, publications: Collection[str], relids: Collection[int]) -> CatalogDigest:
    """Return the digest of the present catalog."""
    query = _DIGEST.format(schemas=_SCHEMAS if connection.info.server_version >= 150_000 else "")
    values = {"relids": sorted(relids), "publications": list(publications)}
    try:
        row = connection.execute(query.encode(), values, prepare=True).fetchone()
    except psycopg.Error as error:
        raise diagnose_exception(error) from error
    text, members, objects = row if row else ("", "", [])
    return CatalogDigest(str(text), str(members), frozenset(objects))
