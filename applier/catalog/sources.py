"""Requests copies of captured tables; the digest of a function."""

from __future__ import annotations

from typing import LiteralString

from applier.catalog.database import Connection, Database

_STEPS: LiteralString = (
    "(SELECT concat_ws(' ', a.aggtransfn::oid, a.aggfinalfn::oid, a.aggfinalextra, a.aggtranstype, a.agginitval) "
    "FROM pg_aggregate a WHERE a.aggfnoid = p.oid)"
)
DIGEST: LiteralString = (
    "md5(concat_ws(' ', p.prosrc, p.prosqlbody::text, p.provolatile, p.proisstrict, p.prolang, " + _STEPS + "))"
)
"""Digest of what the function p does; an aggregate's names its own functions, which have digests themselves."""


class SourceFacts:
    """Requests copies of captured tables; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def request_recapture(self, relid: int) -> None:
        """Request that the consumer copies a relation again."""
        self._connection.execute("SELECT pgtrickle._request_recapture(%s::int8::oid)", (relid,))

    def recapture_epoch(self, relid: int) -> int:
        """Return how often a recapture of the relation was requested."""
        row = self._connection.execute(
            "SELECT epoch FROM pgtrickle.pgt_recaptures WHERE source_relid = %s::int8::oid", (relid,)
        ).fetchone()
        return int(str(row[0])) if row else 0
