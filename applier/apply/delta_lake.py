"""The Delta sink: many ticks of a stream table in one MERGE, off the tick's path.

The frontier lies in the commit itself: as the transaction version (a repeated write changes nothing) and, for people
and for time travel, in the commit's metadata as `pgtrickle_lsn`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from applier import metrics
from applier.apply.net_delta import net_rows
from applier.plan.nodes import fields
from applier.stream_table import StreamTable, TableDelta
from applier.zset import WEIGHT, column_name, column_names
from shared_schema.lsn import ORIGIN, Lsn, Window
from shared_schema.topics import escape_name

log = logging.getLogger(__name__)

_ACT = "__act"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_TXN = "spark.databricks.delta.write.txn"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class DeltaSink:
    """Keeps stream tables below one folder or URI: `<root>/<schema>/<name>`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # A session of its own: the transaction version is a session setting.
        self._spark = spark.newSession()
        self._root = root.rstrip("/")
        self._pending: dict[int, list[tuple[StreamTable, TableDelta]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._durable: dict[int, Lsn] = {}

    def path(self, table: StreamTable) -> str:
        """Where the stream table lies."""
        return f"{self._root}/{escape_name(table.table.schema)}/{escape_name(table.table.name)}"

    def frontier(self, table: StreamTable) -> Lsn:
        """The frontier of the newest commit of this stream table; ORIGIN when there is none."""
        if table.id not in self._durable:
            self._durable[table.id] = self._read_frontier(table)
        return self._durable[table.id]

    def _read_frontier(self, table: StreamTable) -> Lsn:
        path = self.path(table)
        if not DeltaTable.isDeltaTable(self._spark, path):
            return ORIGIN
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select("userMetadata").collect()
        notes = [json.loads(row[0]) for row in history if row[0] and "pgtrickle_lsn" in row[0]]
        # A folder left behind by a dropped stream table of the same name holds nothing of ours.
        return Lsn.parse(notes[0]["pgtrickle_lsn"]) if notes and notes[0]["pgt_id"] == table.id else ORIGIN

    def add(self, table: StreamTable, delta: TableDelta) -> None:
        """Queue a delta; it must begin where the last one queued ended."""
        with self._lock:
            self._pending[table.id].append((table, delta))

    def idle(self, table_id: int) -> bool:
        """Whether nothing is queued."""
        with self._lock:
            return not self._pending.get(table_id)

    def flush(self) -> None:
        """Write everything queued, one commit per stream table."""
        with self._lock:
            queued = {k: list(v) for k, v in self._pending.items() if v}
        for table_id, deltas in queued.items():
            table = deltas[-1][0]
            try:
                self._write(table, [delta for _, delta in deltas])
            except PySparkException as error:
                # The rows stay queued and no checkpoint passes them, so a later attempt finds everything.
                problem = (error.getMessage() or str(error)).splitlines()[0]
                log.exception("delta could not be written", extra={"table": str(table), "problem": problem[:300]})
                metrics.DELTA_FAILURES.inc()
                continue
            with self._lock:
                del self._pending[table_id][: len(deltas)]

    def forget(self, table_id: int) -> None:
        """A stream table was dropped."""
        with self._lock:
            self._pending.pop(table_id, None)

    def _write(self, table: StreamTable, deltas: list[TableDelta]) -> None:
        window = Window(deltas[0].window.old, deltas[-1].window.new)
        rows = net_rows(pa.concat_tables([d.rows for d in deltas]), len(table.columns))
        with self._commit(table, window.new):
            if not window.old:
                self._fill(table, rows)
            elif rows.num_rows:
                self._merge(table, rows)
        if rows.num_rows or not window.old:
            self._durable[table.id] = window.new
        log.info("delta written", extra={"table": str(table), "frontier": str(window.new), "rows": rows.num_rows})

    @contextmanager
    def _commit(self, table: StreamTable, frontier: Lsn) -> Iterator[None]:
        conf = self._spark.conf
        conf.set(f"{_TXN}AppId", f"pgtrickle-{table.id}")
        conf.set(f"{_TXN}Version", str(frontier.value))
        conf.set(_METADATA, json.dumps({"pgt_id": table.id, "pgtrickle_lsn": str(frontier)}))
        try:
            yield
        finally:
            for name in (f"{_TXN}AppId", f"{_TXN}Version", _METADATA):
                conf.unset(name)

    def _frame(self, table: StreamTable, rows: pa.Table) -> DataFrame:
        """The rows under positional names in the types the Delta table has."""
        frame = self._spark.createDataFrame(rows)
        types = [field.type.spark for field in fields(table.plan.root)]
        columns = [F.col(column_name(i)).cast(t).alias(column_name(i)) for i, t in enumerate(types)]
        return frame.select(*columns, WEIGHT)

    def _copies(self, frame: DataFrame, width: int) -> DataFrame:
        """Each row as often as its weight says."""
        return (
            frame.where(F.col(WEIGHT) > 0)
            .select(*column_names(width), F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(WEIGHT))).alias(_ACT))
            .drop(_ACT)
        )

    def _fill(self, table: StreamTable, rows: pa.Table) -> None:
        width = len(table.columns)
        named = self._copies(self._frame(table, rows), width).toDF(*[c.name for c in table.columns])
        writer = named.coalesce(1).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if any(_NEEDS_MAPPING.intersection(c.name) for c in table.columns):
            # Not every reader understands column mapping, so only names that Parquet refuses ask for it.
            writer = writer.option("delta.columnMapping.mode", "name")
        writer.save(self.path(table))

    def _merge(self, table: StreamTable, rows: pa.Table) -> None:
        width = len(table.columns)
        target = DeltaTable.forPath(self._spark, self.path(table))
        touched = self._frame(table, rows)
        names = [c.name for c in table.columns]
        if table.key is None:
            touched = self._with_final_counts(target.toDF().toDF(*column_names(width)), touched, width)
        leaving = touched.select(*column_names(width), F.lit("D").alias(_ACT))
        if table.key is not None:
            leaving = touched.where(F.col(WEIGHT) < 0).select(*column_names(width), F.lit("D").alias(_ACT))
        arriving = self._copies(touched, width).select(*column_names(width), F.lit("I").alias(_ACT))
        # An arriving row never matches, so it is inserted; a leaving one removes every copy there is.
        quoted = [f"t.`{n.replace('`', '``')}` <=> s.{column_name(i)}" for i, n in enumerate(names)]
        condition = f"s.{_ACT} = 'D' AND " + " AND ".join(quoted)
        values: dict[str, str | Column] = {
            f"`{n.replace('`', '``')}`": F.col(f"s.{column_name(i)}") for i, n in enumerate(names)
        }
        (
            target.alias("t")
            .merge(leaving.unionAll(arriving).alias("s"), condition)
            .whenMatchedDelete()
            .whenNotMatchedInsert(condition=f"s.{_ACT} = 'I'", values=values)
            .execute()
        )

    @staticmethod
    def _with_final_counts(held: DataFrame, touched: DataFrame, width: int) -> DataFrame:
        """For rows that may repeat: the weight becomes how many copies there must be afterwards."""
        names = column_names(width)
        same = [F.col(f"h.{n}").eqNullSafe(F.col(f"d.{n}")) for n in names]
        condition = same[0]
        for more in same[1:]:
            condition = condition & more
        joined = touched.alias("d").join(held.withColumn("__here", F.lit(1)).alias("h"), condition, "left")
        counted = joined.groupBy(
            *[F.col(f"d.{n}").alias(n) for n in names], F.col(f"d.{WEIGHT}").alias("__change")
        ).agg(F.count(F.col("h.__here")).alias("__held"))
        final = counted.select(*names, (F.col("__held") + F.col("__change")).alias(WEIGHT))
        # Collected: a MERGE whose source reads its own target cannot be planned.
        return touched.sparkSession.createDataFrame(final.toArrow(), final.schema)
