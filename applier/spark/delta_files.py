"""Keeps a Delta table's folder small: few files, nothing that no version needs, a short log."""

from __future__ import annotations

from deltalake import DeltaTable

MANY_FILES = 64
"""Every commit adds a file; beyond this many, reading the table is mostly opening files."""


def is_scattered(table: DeltaTable) -> bool:
    """Whether the rows lie in many small files."""
    return len(table.file_uris()) > MANY_FILES


def optimize_and_vacuum(table: DeltaTable, retention_hours: int) -> None:
    """Join small files, then delete what has not been part of the table for `retention_hours`. Adds versions."""
    if is_scattered(table):
        table.optimize.compact()
    table.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    table.cleanup_metadata()
