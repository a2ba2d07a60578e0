"""Stores the bases of the traces: one Delta table per relation, and one manifest that names their versions.

Order of a checkpoint: append the rows of each relation, then write the manifest. A crash in between leaves versions
that no manifest names; loading restores the tables to the named versions, so the others never count. Each write makes
the version after the one it was made for, or fails: an applier that was replaced may still write, and a version with
its rows must never be named. A copy of the manifest stays beside the tables: if that of the catalog is older, the
database was restored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from applier.catalog.checkpoints import Manifest, refuse_unknown_form
from applier.errors import Infrastructure, InstallError
from applier.spark.ddl import parse_schema
from applier.spark.delta_files import (
    ONLY_NEXT,
    create,
    group_properties,
    holds_rows_of,
    is_scattered,
    open_newest,
    optimize_and_vacuum,
)
from applier.spark.frame_files import needs_file
from applier.spark.net_frame import net_frame
from applier.trace.align import LSN, SEQ, STAMPED
from applier.trace.columns import Span, TraceColumn, rows_column
from applier.trace.segment import Segment
from applier.trace.trace import EMPTY_BASE, Base, Trace
from applier.trace.volume import rows_per_group
from applier.zset import WEIGHT, column_name, ddl
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId
from shared_schema.topics import table_topic

log = logging.getLogger(__name__)

RETENTION_HOURS = 24
"""How long files of older versions stay: the last manifest and running refreshes may still need them."""

TRACES, MANIFEST = "traces", "manifest.json"

MAX_SEGMENTS = 4
"""Each segment is a task of every query that reads the relation."""

ROWS_PER_PART = 250_000
"""For fewer rows a second task costs more than it saves."""

ROWS_PER_FILE = 1_000_000

COMPACT_AT = 0.25
"""A base is rewritten once this fraction of its rows has negative weights; before that a rewrite costs more."""


def noted_manifest(root: str, installation: str) -> Manifest | None:
    """Return the copy of the last manifest of this catalog below the folder of the traces; None if there is none that
    can be read."""
    path = Path(root.rstrip("/")) / TRACES / MANIFEST
    try:
        noted: dict[str, Any] = json.loads(path.read_text())
        return Manifest.from_json(noted["manifest"]) if noted["installation"] == installation else None
    except (OSError, ValueError, KeyError, TypeError, InstallError):
        return None


class TraceStore:
    """Reads and writes the Delta tables of the traces below one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = f"{root.rstrip('/')}/{TRACES}"

    def note_manifest(self, installation: str, manifest: Manifest) -> None:
        """Keep a copy of the last manifest beside the tables: a database that was restored has an older one.

        `installation` identifies the catalog. Nothing is kept where the folder is not on a local disk.
        """
        if "://" in self._root:
            return
        path = Path(self._root) / MANIFEST
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_text(json.dumps({"installation": installation, "manifest": manifest.to_json()}))
        written.replace(path)

    def _path(self, trace: Trace) -> str:
        return f"{self._root}/{table_topic('t', trace.table)}"

    def load(self, manifest: Manifest) -> list[Trace]:
        """Load the traces of a manifest."""
        with refuse_unknown_form():
            return [self._load_one(manifest.frontier, entry) for entry in manifest.traces]

    def _load_one(self, frontier: Lsn, entry: dict[str, Any]) -> Trace:
        table = TableId(*entry["table"])
        trace = Trace(self._spark, table, tuple(TraceColumn.from_json(c) for c in entry["columns"]))
        trace.captured_at = Lsn.parse(entry["captured_at"])
        known_since = min((s.since for c in trace.columns for s in c.spans), default=trace.captured_at)
        trace.rows_known = (
            TraceColumn.from_json(entry["rows_known"]) if "rows_known" in entry else rows_column(Span(known_since))
        )
        trace.relid, trace.membership, trace.key = entry["relid"], entry["membership"], tuple(entry.get("key", ()))
        version = entry["version"]
        if version is not None:
            segment = self._segment(trace, version, entry["rows"])
            trace.rebase(Base(frontier, (segment,), version, entry["rows"], entry["withdrawn"], _weight_of(entry)))
        else:
            trace.rebase(replace(EMPTY_BASE, frontier=frontier))
        return trace

    def _segment(self, trace: Trace, version: int, rows: int) -> Segment:
        """Return all rows of a version; they come into memory when somebody reads them."""
        return Segment(lambda: _persist(self._read(trace, version), rows)[0], rows)

    def _read(self, trace: Trace, version: int) -> DataFrame:
        """Return the rows of a version. Its files are known to delta-rs: reading Delta's log by Spark takes seconds
        after a start."""
        stored = DeltaTable(self._path(trace), version)
        schema = StructType.fromJson(json.loads(stored.schema().to_json()))
        files = stored.file_uris()
        return self._spark.read.schema(schema).parquet(*files) if files else self._spark.createDataFrame([], schema)

    def append(self, trace: Trace, frontier: Lsn) -> Base:
        """Append the trace's rows before `frontier` to its base; return the new base, which is not yet in use.

        Raises Infrastructure when another process writes to the Delta table at the same time.
        """
        with _refuse_other_writers(trace):
            return self._append(trace, frontier)

    def _append(self, trace: Trace, frontier: Lsn) -> Base:
        base = trace.base
        rows = trace.overlay(LsnRange(base.frontier, frontier))
        if not rows.num_rows:
            return replace(base, frontier=frontier)
        total = base.rows + rows.num_rows
        withdrawn = base.withdrawn + pc.sum(pc.less(rows[WEIGHT], 0)).as_py()
        weight = base.weight + pc.sum(rows[WEIGHT]).as_py()
        if base.segments and withdrawn > COMPACT_AT * total:
            return self._compact(trace, replace(base, frontier=frontier, weight=weight), trace.frame(rows))
        newest = open_newest(self._path(trace))
        if newest is None and base.version is not None:
            raise Infrastructure(f"the Delta table of the trace of {trace.table} is gone")
        if newest is not None:
            # An earlier attempt at this checkpoint may have added these rows before it failed.
            _restore(newest, base.version)
        group_rows = rows_per_group(rows)
        # By delta-rs: the rows are on the driver, and a Spark job would cost ten times as much.
        added_rows, properties = rows.drop_columns([LSN, SEQ]), group_properties(group_rows)
        if newest is None:
            create(self._path(trace), added_rows, writer_properties=properties, commit_properties=ONLY_NEXT)
        else:
            write_deltalake(
                newest,
                added_rows,
                mode="append" if base.segments else "overwrite",
                schema_mode="merge" if base.segments else "overwrite",
                writer_properties=properties,
                commit_properties=ONLY_NEXT,
            )
        # Not the newest version, which may be another writer's.
        stored = newest or DeltaTable(self._path(trace), 0)
        # Nobody has read the base: nobody needs the new rows in memory either. And its version, whose files will be
        # removed, is forgotten with it.
        is_unread = bool(base.segments) and not any(segment.is_loaded for segment in base.segments)
        added = None if is_unread else persist_segment(self._added_frame(trace, rows, stored, base), rows.num_rows)
        if is_scattered(stored):
            _tidy(trace, stored, group_rows)
        version = stored.version()
        segments = (
            (self._segment(trace, version, total),) if added is None else _merge_segments((*base.segments, added))
        )
        return Base(frontier, segments, version, total, withdrawn, weight)

    def _added_frame(self, trace: Trace, rows: pa.Table, stored: DeltaTable, base: Base) -> DataFrame:
        """Return the rows that were just appended; many bytes are read from their files, not held in the heap."""
        if not needs_file(self._spark, rows):
            return trace.frame(rows)
        earlier = set() if base.version is None else set(DeltaTable(self._path(trace), base.version).file_uris())
        columns = trace.columns[: rows.num_columns - len(STAMPED)]
        schema = parse_schema(ddl([column.type.spark_ddl for column in columns]))
        return self._spark.read.schema(schema).parquet(*(f for f in stored.file_uris() if f not in earlier))

    def _compact(self, trace: Trace, base: Base, added: DataFrame) -> Base:
        """Write the sum of the base and the added rows, each row once, in key order, as the next version of the Delta
        table. So each file holds a range of keys, which its statistics show."""
        newest = open_newest(self._path(trace))
        before = -1 if newest is None else newest.version()
        whole = _union_frames([*(segment.frame for segment in base.segments), added])
        net_rows = net_frame(whole)
        keys = [column_name(i) for i, column in enumerate(trace.columns) if column.is_open and column.name in trace.key]
        sorted_ = net_rows.coalesce(1).sortWithinPartitions(*keys) if keys else net_rows.coalesce(1)
        writer = sorted_.write.format("delta").mode("overwrite").option("overwriteSchema", True)
        writer.option("maxRecordsPerFile", ROWS_PER_FILE).save(self._path(trace))
        stored = DeltaTable(self._path(trace))
        if stored.version() != before + 1:
            # Spark commits after whatever is there: of two writers nobody knows whose version the newest one is.
            raise _other_writer(trace)
        _tidy(trace, stored)
        segment = persist_segment(self._read(trace, stored.version()), base.rows)
        return Base(base.frontier, (segment,), stored.version(), segment.rows, 0, base.weight)

    @staticmethod
    def entry(trace: Trace, base: Base) -> dict[str, Any]:
        """Return the entry of the trace in a manifest."""
        return {
            "table": [trace.table.schema, trace.table.name],
            "columns": [column.to_json() for column in trace.columns],
            "rows_known": trace.rows_known.to_json(),
            "captured_at": str(trace.captured_at),
            "relid": trace.relid,
            "membership": trace.membership,
            "key": list(trace.key),
            "version": base.version,
            "rows": base.rows,
            "withdrawn": base.withdrawn,
            "weight": base.weight,
        }


def _weight_of(entry: dict[str, Any]) -> int:
    """Return the sum of the weights of a base; earlier versions did not store it, and counted equal rows once."""
    return int(entry.get("weight", entry["rows"] - 2 * entry["withdrawn"]))


def _restore(stored: DeltaTable, version: int | None) -> None:
    """Make the rows of a version the current ones, if later versions exist."""
    if version is not None and stored.version() != version:
        stored.restore(version, commit_properties=ONLY_NEXT)


@contextmanager
def _refuse_other_writers(trace: Trace) -> Iterator[None]:
    """Raise Infrastructure when a commit inside the block is not the next version."""
    try:
        yield
    except CommitFailedError as error:
        raise _other_writer(trace) from error


def _other_writer(trace: Trace) -> Infrastructure:
    return Infrastructure(f"another process writes to the trace of {trace.table}")


def _tidy(trace: Trace, stored: DeltaTable, group_rows: int | None = None) -> None:
    """Compact the files of the version that was just written; raise Infrastructure when others have written since."""
    written = stored.version()
    optimize_and_vacuum(stored, RETENTION_HOURS, group_rows)
    if not holds_rows_of(stored, written):
        raise _other_writer(trace)


def persist_segment(frame: DataFrame, rows: int) -> Segment:
    """Persist a frame of about so many rows in Spark's memory, now."""
    return Segment(*_persist(frame, rows))


def _persist(frame: DataFrame, rows: int) -> tuple[DataFrame, int]:
    """Persist a frame of about so many rows, a large one in as many parts as there are cores; return it with the number
    of its rows."""
    parts = min(frame.sparkSession.sparkContext.defaultParallelism, 1 + rows // ROWS_PER_PART)
    parted = frame.coalesce(1) if parts == 1 else frame.repartition(parts)
    held = parted.persist(StorageLevel.MEMORY_AND_DISK)
    return held, held.count()


def _merge_segments(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return at most MAX_SEGMENTS segments; the first, which is by far the largest, stays as it is."""
    if len(segments) <= MAX_SEGMENTS:
        return segments
    return segments[0], persist_segment(_union_frames([segment.frame for segment in segments[1:]]), 0)


def _union_frames(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
