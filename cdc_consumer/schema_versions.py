"""Which schema version each relation's last rows were written with, so that a change of it is announced once.

The versions' fingerprints are part of every progress record: a change made while nobody looked is announced too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc_consumer.change_rows.schema_changes import SchemaDifference, compare_schemas
from shared_schema.avro import codec
from shared_schema.change_row import Stamp
from shared_schema.control import SchemaChange
from shared_schema.table_schema import TableSchema


class SchemaVersions:
    """`lookup` finds the schema of a fingerprint an earlier instance left."""

    def __init__(self, known: Mapping[int, str], lookup: Callable[[str], TableSchema | None]) -> None:
        self._fingerprints = dict(known)
        self._schemas: dict[int, TableSchema] = {}
        self._before: dict[int, str | None] = {}
        """What the open transaction changed, as it was."""
        self._lookup = lookup

    @property
    def fingerprints(self) -> Mapping[int, str]:
        """relid -> fingerprint."""
        return self._fingerprints

    def begin(self) -> None:
        """A transaction begins."""
        self._before.clear()

    @property
    def fingerprints_before(self) -> Mapping[int, str]:
        """The same as they were when the open transaction began."""
        known = self._fingerprints | self._before
        return {relid: written for relid, written in known.items() if written is not None}

    def changed(self, schema: TableSchema) -> bool:
        """Whether rows of this version come after rows of another; cheap when it is the version of last time."""
        if self._schemas.get(schema.relid) is schema:
            return False
        written = self._fingerprints.get(schema.relid)
        if written is not None and written != codec(schema).id.hex():
            return True
        self.wrote(schema)
        return False

    def wrote(self, schema: TableSchema) -> None:
        """Rows of this version are written from now on."""
        self._before.setdefault(schema.relid, self._fingerprints.get(schema.relid))
        self._schemas[schema.relid] = schema
        self._fingerprints[schema.relid] = codec(schema).id.hex()

    def change(self, schema: TableSchema, stamp: Stamp) -> SchemaChange:
        """The announcement of a changed version, which is now the written one."""
        old = self._fingerprints[schema.relid]
        before = self._schemas.get(schema.relid) or self._lookup(old)
        found = (
            compare_schemas(before, schema)
            if before
            else SchemaDifference(False, ("the version before is not to be found",))
        )
        self.wrote(schema)
        new = self._fingerprints[schema.relid]
        return SchemaChange(stamp, schema.table, schema.relid, old, new, found.compatible, found.changes)
