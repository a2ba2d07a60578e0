"""Stores the bases of the traces: one Delta table per relation, and one manifest that names their versions.

Order of a checkpoint: append the rows of each relation, then write the manifest. A crash in between leaves versions
that no manifest names; loading restores the tables to the named versions, so the others never count.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from applier.catalog.checkpoints import Manifest, refuse_unknown_form
from applier.spark.delta_files import is_scattered, optimize_and_vacuum
from applier.trace.align import LSN, SEQ
from applier.trace.columns import TraceColumn
from applier.trace.segment import Segment
from applier.trace.trace import EMPTY_BASE, Base, Trace
from applier.zset import WEIGHT, column_name
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId
from shared_schema.topics import table_topic

log = logging.getLogger(__name__)

RETENTION_HOURS = 24
"""How long files of older versions stay: the last manifest and running refreshes may still need them."""

MAX_SEGMENTS = 4
"""Each segment is a task of every query that reads the relation."""

ROWS_PER_PART = 250_000
"""For fewer rows a second task costs more than it saves."""

ROWS_PER_FILE = 1_000_000

COMPACT_AT = 0.25
"""A base is rewritten once this fraction of its rows has negative weights; before that a rewrite costs more."""


class TraceStore:
    """Reads and writes the Delta tables of the traces below one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = f"{root.rstrip('/')}/traces"

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
        trace.relid, trace.membership, trace.key = entry["relid"], entry["membership"], tuple(entry.get("key", ()))
        version = entry["version"]
        if version is not None:
            stored = DeltaTable(self._path(trace))
            if stored.version() != version:
                stored.restore(version)
            segment = self._read(trace, stored.version(), entry["rows"])
            trace.rebase(Base(frontier, (segment,), stored.version(), entry["rows"], entry["withdrawn"]))
        else:
            trace.rebase(replace(EMPTY_BASE, frontier=frontier))
        return trace

    def _read(self, trace: Trace, version: int, rows: int) -> Segment:
        stored = self._spark.read.format("delta").option("versionAsOf", version).load(self._path(trace))
        return persist_segment(stored, rows)

    def append(self, trace: Trace, frontier: Lsn) -> Base:
        """Append the trace's rows before `frontier` to its base; return the new base, which is not yet in use."""
        base = trace.base
        rows = trace.overlay(LsnRange(base.frontier, frontier))
        if not rows.num_rows:
            return replace(base, frontier=frontier)
        added = trace.frame(rows)
        total = base.rows + rows.num_rows
        withdrawn = base.withdrawn + pc.sum(pc.less(rows[WEIGHT], 0)).as_py()
        if base.segments and withdrawn > COMPACT_AT * total:
            return self._compact(trace, replace(base, frontier=frontier), added)
        # By delta-rs: the rows are on the driver, and a Spark job would cost ten times as much.
        write_deltalake(
            self._path(trace),
            rows.drop_columns([LSN, SEQ]),
            mode="append" if base.segments else "overwrite",
            schema_mode="merge" if base.segments else "overwrite",
        )
        stored = DeltaTable(self._path(trace))
        if is_scattered(stored):
            optimize_and_vacuum(stored, RETENTION_HOURS)
        version = stored.version()
        return Base(
            frontier,
            _merge_segments((*base.segments, persist_segment(added, rows.num_rows))),
            version,
            total,
            withdrawn,
        )

    def _compact(self, trace: Trace, base: Base, added: DataFrame) -> Base:
        """Write the sum of the base and the added rows, each row once, in key order, as the next version of the Delta
        table. So each file holds a range of keys, which its statistics show."""
        whole = _union_frames([*(segment.frame for segment in base.segments), added])
        names = [name for name in whole.columns if name != WEIGHT]
        net_rows = whole.groupBy(*names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)
        keys = [column_name(i) for i, column in enumerate(trace.columns) if column.is_open and column.name in trace.key]
        sorted_ = net_rows.coalesce(1).sortWithinPartitions(*keys) if keys else net_rows.coalesce(1)
        writer = sorted_.write.format("delta").mode("overwrite").option("overwriteSchema", True)
        writer.option("maxRecordsPerFile", ROWS_PER_FILE).save(self._path(trace))
        stored = DeltaTable(self._path(trace))
        optimize_and_vacuum(stored, RETENTION_HOURS)
        segment = self._read(trace, stored.version(), base.rows)
        return Base(base.frontier, (segment,), stored.version(), segment.rows, 0)

    @staticmethod
    def entry(trace: Trace, base: Base) -> dict[str, Any]:
        """Return the entry of the trace in a manifest."""
        return {
            "table": [trace.table.schema, trace.table.name],
            "columns": [column.to_json() for column in trace.columns],
            "captured_at": str(trace.captured_at),
            "relid": trace.relid,
            "membership": trace.membership,
            "key": list(trace.key),
            "version": base.version,
            "rows": base.rows,
            "withdrawn": base.withdrawn,
        }


def persist_segment(frame: DataFrame, rows: int) -> Segment:
    """Persist a frame of about so many rows in Spark's memory; a large one in as many parts as there are cores."""
    parts = min(frame.sparkSession.sparkContext.defaultParallelism, 1 + rows // ROWS_PER_PART)
    parted = frame.coalesce(1) if parts == 1 else frame.repartition(parts)
    held = parted.persist(StorageLevel.MEMORY_AND_DISK)
    return Segment(held, held.count())


def _merge_segments(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return at most MAX_SEGMENTS segments; the first, which is by far the largest, stays as it is."""
    if len(segments) <= MAX_SEGMENTS:
        return segments
    return segments[0], persist_segment(_union_frames([segment.frame for segment in segments[1:]]), 0)


def _union_frames(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
