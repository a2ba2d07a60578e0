"""The durable half of the traces: one Delta table per relation, one manifest that says which versions belong together.

Order of a checkpoint: append each relation's rows, then the manifest. A crash in between leaves versions that no
manifest names; loading restores the tables to the named versions, so they never count.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from applier.trace.columns import TraceColumn
from applier.trace.trace import Base, Trace
from applier.zset import WEIGHT
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.progress import Offsets
from shared_schema.table_schema import TableId
from shared_schema.topics import table_topic

log = logging.getLogger(__name__)

COMPACT_AT = 0.25
"""Rewrite a base once this share of its rows are withdrawals: until then they cost less than the rewrite."""


@dataclass(frozen=True)
class Manifest:
    """One checkpoint: every trace's Delta version at one frontier, and where Kafka goes on from there."""

    frontier: Lsn
    offsets: Offsets
    traces: list[dict[str, Any]]
    sinks: dict[str, dict[str, str]]
    """Stream table id -> sink -> the frontier of its last commit: what it holds is still right at `frontier`."""

    def to_json(self) -> dict[str, Any]:
        """For the catalog."""
        offsets = {t: {str(p): o for p, o in ps.items()} for t, ps in self.offsets.items()}
        return {"frontier": str(self.frontier), "offsets": offsets, "traces": self.traces, "sinks": self.sinks}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Manifest:
        """The inverse of to_json."""
        offsets = {t: {int(p): o for p, o in ps.items()} for t, ps in stored["offsets"].items()}
        return cls(Lsn.parse(stored["frontier"]), offsets, stored["traces"], stored["sinks"])


EMPTY_MANIFEST = Manifest(ORIGIN, {}, [], {})


class TraceStore:
    """Reads and writes the traces' Delta tables below one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = f"{root.rstrip('/')}/traces"

    def _path(self, trace: Trace) -> str:
        return f"{self._root}/{table_topic('t', trace.table)}"

    def load(self, manifest: Manifest) -> list[Trace]:
        """The traces as of a manifest."""
        return [self._load_one(manifest.frontier, entry) for entry in manifest.traces]

    def _load_one(self, frontier: Lsn, entry: dict[str, Any]) -> Trace:
        table = TableId(*entry["table"])
        trace = Trace(self._spark, table, tuple(TraceColumn.from_json(c) for c in entry["columns"]))
        trace.captured_at = Lsn.parse(entry["captured_at"])
        trace.relid, trace.membership = entry["relid"], entry["membership"]
        version = entry["version"]
        frame = None
        if version is not None:
            path = self._path(trace)
            if self._latest_version(path) != version:
                self._spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}").collect()
                version = self._latest_version(path)
            frame = self._read(path, version)
        trace.rebase(Base(frontier, frame, version, entry["rows"]))
        return trace

    def _latest_version(self, path: str) -> int:
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").select("version").collect()
        return int(history[0][0])

    def _read(self, path: str, version: int) -> DataFrame:
        frame = self._spark.read.format("delta").option("versionAsOf", version).load(path)
        frame = frame.coalesce(1).persist(StorageLevel.MEMORY_AND_DISK)
        frame.count()
        return frame

    def append(self, trace: Trace, frontier: Lsn) -> Base:
        """Write the trace's rows before `frontier` behind its base; return the new base, not yet in use."""
        base = trace.base
        rows = trace.overlay(Window(base.frontier, frontier))
        if not rows.num_rows:
            return replace(base, frontier=frontier)
        path = self._path(trace)
        added = trace.frame(rows)
        if base.frame is not None and self._withdrawn(base.frame, added) > COMPACT_AT:
            names = [name for name in added.columns if name != WEIGHT]
            whole = base.frame.unionByName(added, allowMissingColumns=True)
            netted = whole.groupBy(*names).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)
            writer = netted.coalesce(1).write.mode("overwrite").option("overwriteSchema", True)
        elif base.frame is not None:
            writer = added.coalesce(1).write.mode("append").option("mergeSchema", True)
        else:
            writer = added.coalesce(1).write.mode("overwrite").option("overwriteSchema", True)
        writer.format("delta").save(path)
        version = self._latest_version(path)
        frame = self._read(path, version)
        return Base(frontier, frame, version, frame.count())

    @staticmethod
    def _withdrawn(base: DataFrame, added: DataFrame) -> float:
        counts = (
            base.select(WEIGHT)
            .unionAll(added.select(WEIGHT))
            .agg(F.count(F.lit(1)), F.coalesce(F.sum(F.when(F.col(WEIGHT) < 0, 1)), F.lit(0)))
        )
        total, negative = counts.collect()[0]
        return float(negative) / max(1, int(total))

    @staticmethod
    def entry(trace: Trace, base: Base) -> dict[str, Any]:
        """The trace's line in a manifest."""
        return {
            "table": [trace.table.schema, trace.table.name],
            "columns": [column.to_json() for column in trace.columns],
            "captured_at": str(trace.captured_at),
            "relid": trace.relid,
            "membership": trace.membership,
            "version": base.version,
            "rows": base.rows,
        }
