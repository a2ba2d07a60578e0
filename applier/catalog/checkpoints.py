"""Reads and writes the last checkpoint of the traces (`pgt_checkpoints`): a manifest of versions at one frontier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import dict_row

from applier.catalog.database import Connection, Database
from applier.errors import InstallError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import Offsets


@dataclass(frozen=True)
class Manifest:
    """One checkpoint: every trace's Delta version at one frontier, and the Kafka offsets to continue from."""

    frontier: Lsn
    offsets: Offsets
    traces: list[dict[str, Any]]
    sinks: dict[str, dict[str, str]]
    """Stream table id -> sink -> the frontier of its last commit; its rows are still correct at `frontier`."""
    states: dict[str, Any] = field(default_factory=dict)
    """Stream table id -> the stored state of its operators; only `applier.state.stored` knows the form."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that the catalog stores."""
        offsets = {t: {str(p): o for p, o in ps.items()} for t, ps in self.offsets.items()}
        return {
            "frontier": str(self.frontier),
            "offsets": offsets,
            "traces": self.traces,
            "sinks": self.sinks,
            "states": self.states,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Manifest:
        """Read the stored form; raise InstallError when it is not one of this version."""
        with refuse_unknown_form():
            offsets = {t: {int(p): o for p, o in ps.items()} for t, ps in stored["offsets"].items()}
            # Earlier versions stored no states; then they are computed.
            states = stored.get("states") or {}
            return cls(Lsn.parse(stored["frontier"]), offsets, stored["traces"], stored["sinks"], states)


EMPTY_MANIFEST = Manifest(ORIGIN, {}, [], {})


@contextmanager
def refuse_unknown_form() -> Iterator[None]:
    """Raise InstallError for a manifest that cannot be read inside the block."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InstallError(
            f"the checkpoint in pgtrickle.pgt_checkpoints has a form that this version does not know ({error!r})",
            hint="start the version that wrote it, or delete its row: the topics are then read from their beginning",
        ) from error


class Checkpoints:
    """Reads and writes manifests; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def _connection(self) -> Connection:
        return self._database.connection

    def load(self, applier: str) -> Manifest:
        """Return the last checkpoint; an empty one before the first."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                "SELECT manifest FROM pgtrickle.pgt_checkpoints WHERE applier = %s", (applier,)
            ).fetchone()
        return Manifest.from_json(row["manifest"]) if row else EMPTY_MANIFEST

    def installation(self) -> str:
        """Return what identifies this catalog. A server whose files were restored has the same."""
        row = self._connection.execute(
            "SELECT pg_catalog.concat_ws('/', s.system_identifier, d.oid, 'pgtrickle'::pg_catalog.regnamespace::oid)"
            " FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d"
            " WHERE d.datname = pg_catalog.current_database()"
        ).fetchone()
        return str(row[0]) if row else ""

    def save(self, applier: str, manifest: Manifest) -> None:
        """Store a checkpoint as the last one, durably whatever the role's settings say: a lost one looks like a server
        that was restored."""
        with self._connection.transaction():
            self._connection.execute(
                "SELECT pg_catalog.set_config('synchronous_commit', 'local', true)"
                " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
            )
            self._insert(applier, manifest)

    def _insert(self, applier: str, manifest: Manifest) -> None:
        self._connection.execute(
            "INSERT INTO pgtrickle.pgt_checkpoints (applier, frontier, manifest) VALUES (%s, %s::pg_lsn, %s::jsonb)"
            " ON CONFLICT (applier) DO UPDATE SET frontier = excluded.frontier, manifest = excluded.manifest,"
            " written_at = now()",
            (applier, str(manifest.frontier), json.dumps(manifest.to_json())),
        )
