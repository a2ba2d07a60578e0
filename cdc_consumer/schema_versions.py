"""Remembers with which schema version the last rows of each relation were written, and announces each change once.

The fingerprints of the versions are part of every progress record, so a change that was made while no consumer ran is
announced too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc_consumer.change_rows.schema_changes import SchemaDifference, compare_schemas
from shared_schema.avro import codec
from shared_schema.change_row import Stamp
from shared_schema.control import SchemaChange
from shared_schema.table_schema import TableSchema


class SchemaVersions:
    """The schema versions written so far. `lookup` finds the schema of a fingerprint that an earlier instance wrote."""

    def __init__(self, known: Mapping[int, str], lookup: Callable[[str], TableSchema | None]) -> None:
        self._fingerprints = dict(known)
        self._schemas: dict[int, TableSchema] = {}
        self._before: dict[int, str | None] = {}
        """The fingerprints that the open transaction replaced."""
        self._lookup = lookup
        self._recorded: set[int] = set()

    @property
    def fingerprints(self) -> Mapping[int, str]:
        """Relation oid -> fingerprint of the version its last rows were written with."""
        return self._fingerprints

    def take_recorded(self) -> set[int]:
        """Return the relations whose version was recorded since the last call."""
        recorded, self._recorded = self._recorded, set()
        return recorded

    def begin(self) -> None:
        """Start a transaction."""
        self._before.clear()

    @property
    def fingerprints_before(self) -> Mapping[int, str]:
        """The same map as it was when the open transaction began."""
        known = self._fingerprints | self._before
        return {relid: written for relid, written in known.items() if written is not None}

    def find(self, relid: int) -> TableSchema | None:
        """Return the version of the relation's last rows; None if none was written."""
        written = self._fingerprints.get(relid)
        found = self._schemas.get(relid) or (self._lookup(written) if written is not None else None)
        if found is not None:
            self._schemas[relid] = found
        return found

    def is_changed(self, schema: TableSchema) -> bool:
        """Return whether the last rows were written with another version. Cheap if the version is the same object."""
        if self._schemas.get(schema.relid) is schema:
            return False
        written = self._fingerprints.get(schema.relid)
        if written is not None and written != codec(schema).id.hex():
            return True
        self.record_version(schema)
        return False

    def record_version(self, schema: TableSchema) -> None:
        """Record that rows are written with this version from now on."""
        self._before.setdefault(schema.relid, self._fingerprints.get(schema.relid))
        self._schemas[schema.relid] = schema
        self._recorded.add(schema.relid)
        self._fingerprints[schema.relid] = codec(schema).id.hex()

    def record_change(self, schema: TableSchema, stamp: Stamp) -> SchemaChange:
        """Record a changed version -> the control record that announces it."""
        old = self._fingerprints[schema.relid]
        before = self._schemas.get(schema.relid) or self._lookup(old)
        found = (
            compare_schemas(before, schema)
            if before
            else SchemaDifference(False, ("the previous version cannot be found",))
        )
        self.record_version(schema)
        new = self._fingerprints[schema.relid]
        return SchemaChange(stamp, schema.table, schema.relid, old, new, found.compatible, found.changes)
