"""Relations and functions in, fingerprints of their present definitions out; also requests for a recapture."""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString

from psycopg.rows import tuple_row

from applier.catalog.database import Connection, Database

_STEPS: LiteralString = (
    "(SELECT concat_ws(' ', a.aggtransfn::oid, a.aggfinalfn::oid, a.aggfinalextra, a.aggtranstype, a.agginitval) "
    "FROM pg_aggregate a WHERE a.aggfnoid = p.oid)"
)
DIGEST: LiteralString = (
    "md5(concat_ws(' ', p.prosrc, p.prosqlbody::text, p.provolatile, p.proisstrict, p.prolang, " + _STEPS + "))"
)
"""Digest of what the function p does; an aggregate's names its own functions, which have digests themselves."""
_DIGESTS: LiteralString = "SELECT p.oid::int8, " + DIGEST + " FROM pg_proc p WHERE p.oid = ANY(%s::int8[]::oid[])"
_FINGERPRINTS = """
SELECT c.oid::int8, md5(format('%%s %%s %%s %%s %%s %%s', n.nspname, c.relname,
    -- What a source is refused for: policies, children that are no partitions, partitions that are not logged.
    format('%%s %%s %%s', c.relrowsecurity, c.relispartition, c.relkind = 'r' AND EXISTS (
        SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid)),
    CASE WHEN c.relkind = 'p' THEN (
        SELECT count(*) FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class p ON p.oid = t.relid
        WHERE p.relkind = 'f' OR p.relpersistence <> 'p') END,
    (SELECT string_agg(format('%%s %%s %%s %%s %%s', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull), ','
                       ORDER BY a.attnum)
     FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(format('%%s %%s', k.contype, k.conkey), ',' ORDER BY k.oid)
     FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u'))))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::int8[]::oid[])
"""


class SourceFacts:
    """Reads the facts that plans depend on; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def fingerprints(self, relids: Collection[int]) -> dict[int, str]:
        """Return per relation a text that changes with its name, columns and keys; none for a dropped one."""
        if not relids:
            return {}
        rows = self._connection.execute(_FINGERPRINTS, (list(relids),)).fetchall()
        return {int(str(relid)): str(text) for relid, text in rows}

    def function_digests(self, oids: Collection[int]) -> dict[int, str]:
        """Return per function a digest of what it does now; none for a dropped one."""
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return dict(cursor.execute(_DIGESTS, [list(oids)]).fetchall()) if oids else {}

    def request_recapture(self, relid: int) -> None:
        """Request that the consumer copies a relation again."""
        self._connection.execute("SELECT pgtrickle._request_recapture(%s::int8::oid)", (relid,))

    def recapture_epoch(self, relid: int) -> int:
        """Return how often a recapture of the relation was requested."""
        row = self._connection.execute(
            "SELECT epoch FROM pgtrickle.pgt_recaptures WHERE source_relid = %s::int8::oid", (relid,)
        ).fetchone()
        return int(str(row[0])) if row else 0
