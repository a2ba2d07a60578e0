"""Change rows of a large micro-batch in; the same rows in Arrow files, mapped into memory, out.

A commit may be larger than the memory, and its rows wait until all of it has arrived. Pages of a mapped file are
written once and read again when they are needed, so that the kernel may drop them from memory at any time. The file
has no name any more when this returns: its space is free as soon as nothing refers to its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from applier.errors import Infrastructure
from applier.ingest.decode import can_be_text
from applier.trace.align import STAMPED, arrow_type
from applier.trace.stamped_rows import Chunk, StampedRow
from applier.zset import column_name
from shared_schema.change_row import Op


def move_to_disk(chunk: Chunk, folder: Path) -> Chunk:
    """Return the same rows in a file that has no name."""
    file = folder / f"rows-{uuid4().hex}.arrow"
    try:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, chunk.rows.schema) as writer:
            writer.write_table(chunk.rows)
        return Chunk(pa.ipc.open_file(pa.memory_map(str(file))).read_all(), chunk.schema)
    except OSError as error:
        raise Infrastructure(
            f"rows cannot be written to {folder}: {error.strerror or type(error).__name__}",
            hint="PG_TRICKLE_SCRATCH_DIR needs room for the largest commit",
        ) from error
    finally:
        file.unlink(missing_ok=True)


def is_plain(one: StampedRow) -> bool:
    """Whether a row can be part of a chunk: its image is complete, and each value has a physical type."""
    row = one.row
    if row.op is Op.TRUNCATE or row.values is None or row.unknown:
        return False
    columns = zip(row.values, one.schema.columns, strict=True)
    return not any(isinstance(value, str) and can_be_text(column) for value, column in columns)


def pack_rows(rows: Sequence[StampedRow]) -> Chunk | None:
    """Return plain rows of one schema version as a chunk; None if a physical type cannot hold a value after all."""
    schema = rows[0].schema
    kinds = [arrow_type(column.type) for column in schema.columns]
    values = zip(*(one.row.values or () for one in rows), strict=True)
    try:
        arrays = [pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)]
    except (pa.ArrowException, OverflowError):
        return None
    stamps = (
        [one.row.op.weight for one in rows],
        [one.row.stamp.lsn.value for one in rows],
        [one.row.stamp.seq for one in rows],
    )
    names = [*(column_name(i) for i in range(len(kinds))), *STAMPED]
    return Chunk(pa.table([*arrays, *(pa.array(stamp, pa.int64()) for stamp in stamps)], names), schema)
