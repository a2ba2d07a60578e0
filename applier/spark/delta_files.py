"""A Delta table in; the same table in fewer files, without files that no version needs and with a short log, out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

MANY_FILES = 64
"""Every commit adds a file; with more than this, reading the table is mostly opening files."""

ONLY_NEXT = CommitProperties(max_commit_retries=0)
"""For commits that fail unless they make the version after the one that was loaded: what another process commits
meanwhile stops them, instead of standing below their rows."""

SAME_ROWS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""The operations that change no row."""


def open_newest(path: str) -> DeltaTable | None:
    """Return the newest version of a Delta table; None when there is none."""
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def create(path: str, rows: pa.Table | pa.RecordBatchReader, **options: Any) -> None:
    """Create a Delta table with these rows; raise CommitFailedError when it exists already."""
    try:
        write_deltalake(path, rows, mode="error", **options)
    except CommitFailedError:
        raise
    except DeltaError as error:
        if DeltaTable.is_deltatable(path):
            raise CommitFailedError(str(error)) from error
        raise


def is_scattered(table: DeltaTable) -> bool:
    """Whether the rows are in many small files."""
    return len(table.file_uris()) > MANY_FILES


def group_properties(group_rows: int | None) -> WriterProperties:
    """Return the properties of files whose row groups have at most so many rows; None is the usual number."""
    return WriterProperties(max_row_group_size=group_rows)


def optimize_and_vacuum(table: DeltaTable, retention_hours: int, group_rows: int | None = None) -> None:
    """Compact small files, then delete files that left the table more than `retention_hours` ago. Adds versions, after
    whatever others have committed meanwhile."""
    if is_scattered(table):
        table.optimize.compact(writer_properties=group_properties(group_rows))
    table.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    table.cleanup_metadata()


def holds_rows_of(table: DeltaTable, version: int) -> bool:
    """Whether the loaded version has exactly the rows of an earlier one: since then files were only compacted."""
    return all(commit["operation"] in SAME_ROWS for commit in table.history(table.version() - version))
