"""A Delta table in; the same table in fewer files, without files that no version needs and with a short log, out."""

from __future__ import annotations

from deltalake import DeltaTable, WriterProperties

MANY_FILES = 64
"""Every commit adds a file; with more than this, reading the table is mostly opening files."""


def is_scattered(table: DeltaTable) -> bool:
    """Whether the rows are in many small files."""
    return len(table.file_uris()) > MANY_FILES


def group_properties(group_rows: int | None) -> WriterProperties:
    """Return the properties of files whose row groups have at most so many rows; None is the usual number."""
    return WriterProperties(max_row_group_size=group_rows)


def optimize_and_vacuum(table: DeltaTable, retention_hours: int, group_rows: int | None = None) -> None:
    """Compact small files, then delete files that left the table more than `retention_hours` ago. Adds versions."""
    if is_scattered(table):
        table.optimize.compact(writer_properties=group_properties(group_rows))
    table.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    table.cleanup_metadata()
