"""A Spark result too large for the driver in; a staged delta, which executors COPY into tables of PostgreSQL, out.

One part per Spark partition, with all rows of a key in one part. A part is created and filled in one transaction and
named after the task attempt: of a task that ran twice only the first part is read. Parts of a progressive stream table
are merged while others are still computed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window as Over

from applier.catalog.database import Connection, connect
from applier.plan.stream_table import StreamTable
from applier.sinks.net_delta import ACT, DELETE, INSERT, UPDATE
from applier.sinks.postgres import copy_text
from applier.sinks.postgres.pg_errors import (
    bisect_rejected,
    encode_for_driver,
    is_about_rows,
    row_identity,
    to_refresh_error,
)
from applier.sinks.staging.staged_delta import (
    NUMBERS,
    OLD_IMAGE,
    STAGED_PREFIX,
    STAGED_SCHEMA,
    PartQueue,
    StagedDelta,
    StagedPart,
    create_part_template,
    own_prefix,
)
from applier.spark.net_frame import net_frame
from applier.spark.session import stand_back
from applier.zset import WEIGHT, column_name, column_names
from shared_schema.connections import connect_with_statement
from shared_schema.lsn import LsnRange

log = logging.getLogger(__name__)

STAGING_LOOK_EVERY_S = 0.05

COPY_ROWS = 16_384
"""Rows per COPY: a row that PostgreSQL rejects is among the last ones, which are still in memory."""


def _nothing() -> None:
    """There is nothing to release."""


@dataclass(frozen=True)
class Staging:
    """The database in which deltas are staged, and the number of rows above which they are."""

    url: str
    above: int = 200_000

    def stage(
        self,
        table: StreamTable,
        lsn_range: LsnRange,
        frame: DataFrame,
        parts: int,
        translate_error: Callable[[BaseException], BaseException],
        *,
        release: Callable[[], object] = _nothing,
    ) -> StagedDelta:
        """Start to COPY the frame, a Z-set that need not be net, and return at once; `translate_error` turns an error
        of Spark into one of the applier, `release` is called when the frame is no longer needed."""
        schema = pa.schema([*(_arrow_field(frame, i) for i in range(len(table.columns))), pa.field(WEIGHT, pa.int64())])
        staged = StagedDelta(lsn_range, table, self.url, schema, parts if table.key != () else 1)
        net = _net(frame, table, fill=staged.is_fill, parts=parts)
        with connect(self.url) as connection:
            copier = _Copier(
                self.url, table, next(NUMBERS), create_part_template(connection, table), own_prefix(self.url)
            )
            connection.execute(
                copier.lines("CREATE UNLOGGED TABLE {} (part int, name text, rows int8, came int8, left_ int8)")
            )
        arguments = (net, copier, staged.part_queue, translate_error, release)
        threading.Thread(target=_run, args=arguments, name="staging", daemon=True).start()
        return staged


def _arrow_field(frame: DataFrame, ordinal: int) -> pa.Field:
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.field(column_name(ordinal), to_arrow_type(frame.schema[ordinal].dataType))


def _net(frame: DataFrame, table: StreamTable, *, fill: bool, parts: int) -> DataFrame:
    """Sum the weights per row, drop zeros, add the action of each row; all rows of a key are in one partition."""
    names = column_names(len(table.columns))
    key = names if table.key is None else [column_name(i) for i in table.key]
    spread = frame.repartition(parts, *key) if key else frame.repartition(1)
    net = net_frame(spread).withColumnRenamed(WEIGHT, "n")
    if table.key is None or fill:
        return net.withColumn(ACT, F.lit(INSERT))
    both = F.sum("n").over(Over.partitionBy(*key) if key else Over.partitionBy(F.lit(1)))
    act = (
        F.when((both == 0) & (F.col("n") > 0), UPDATE)
        .when((both == 0) & (F.col("n") < 0), OLD_IMAGE)
        .otherwise(F.when(F.col("n") > 0, INSERT).otherwise(DELETE))
    )
    return net.withColumn(ACT, act)


@dataclass(frozen=True)
class _Copier:
    """Copies one partition, on an executor."""

    url: str
    table: StreamTable
    number: int
    """Number of the delta: the delta that a sink missed and a new one may be staged at the same time."""
    template: str
    prefix: str = STAGED_PREFIX

    def lines(self, statement: str) -> sql.Composed:
        """Return a statement on the table in which each partition writes one line: the name and counts of its part."""
        return sql.SQL(statement).format(
            sql.Identifier(STAGED_SCHEMA, f"{self.prefix}{self.table.id}_lines_{self.number}")
        )

    def copy(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy the rows into a part and write its line, in one transaction."""
        context = TaskContext.get()
        if context is None:
            raise AssertionError("not on an executor")
        rows: pa.Table | None = None
        try:
            with self._connect() as connection, connection.transaction(), connection.cursor() as cursor:
                part = StagedPart(f"{self.prefix}{self.table.id}_{context.taskAttemptId()}", 0, 0, 0)
                cursor.execute(part.drop)
                cursor.execute(sql.SQL("CREATE UNLOGGED TABLE {} {}").format(part.table, sql.SQL(self.template)))
                for rows in _pieces(batches):
                    self._copy(cursor, part, rows)
                    part = _add_counts(part, rows)
                cursor.execute(sql.SQL("ANALYZE {}").format(part.table))
                line = (context.partitionId(), part.name, part.rows, part.inserted, part.deleted)
                cursor.execute(self.lines("INSERT INTO {} VALUES (%s, %s, %s, %s, %s)"), line)
        except psycopg.Error as error:
            row = self._find_rejected(rows) if rows is not None and is_about_rows(error) else None
            raise encode_for_driver(to_refresh_error(error, self.table, row)) from None
        yield pa.RecordBatch.from_arrays([pa.array([context.partitionId()], pa.int32())], names=["part"])

    def _connect(self) -> Connection:
        return connect_with_statement(self.url, application_name="pg-trickle-applier staging")

    @staticmethod
    def _copy(cursor: psycopg.Cursor[tuple[object, ...]], part: StagedPart, rows: pa.Table) -> None:
        with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT csv, FREEZE)").format(part.table)) as copy:
            copy.write(copy_text.encode_csv(rows))

    def _find_rejected(self, rows: pa.Table) -> str | None:
        """Return the identity of the row that PostgreSQL rejects."""
        trial = StagedPart(f"{self.prefix}{self.table.id}_trial_{threading.get_native_id()}", 0, 0, 0)
        with self._connect() as connection:

            def is_accepted(some: pa.Table) -> bool:
                try:
                    with connection.transaction(force_rollback=True), connection.cursor() as cursor:
                        cursor.execute(
                            sql.SQL("CREATE UNLOGGED TABLE {} {}").format(trial.table, sql.SQL(self.template))
                        )
                        self._copy(cursor, trial, some)
                except psycopg.Error:
                    return False
                return True

            return None if is_accepted(rows) else row_identity(self.table, bisect_rejected(rows, is_accepted))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        for start in range(0, batch.num_rows, COPY_ROWS):
            yield pa.Table.from_batches([batch.slice(start, COPY_ROWS)])


def _add_counts(part: StagedPart, rows: pa.Table) -> StagedPart:
    weights = rows["n"].to_pylist()
    inserted = part.inserted + sum(n for n in weights if n > 0)
    deleted = part.deleted - sum(n for n in weights if n < 0)
    return replace(part, rows=part.rows + rows.num_rows, inserted=inserted, deleted=deleted)


def _run(
    net: DataFrame,
    copier: _Copier,
    part_queue: PartQueue,
    translate_error: Callable[[BaseException], BaseException],
    release: Callable[[], object],
) -> None:
    """Run the job; add each part to the queue when its line appears. Spark itself reports only the end of all parts."""
    seen: set[int] = set()
    try:
        with (
            connect(copier.url) as connection,
            ThreadPoolExecutor(1, "staging", stand_back, (net.sparkSession,)) as spark,
        ):
            job = spark.submit(net.mapInArrow(copier.copy, "part int").count)
            running = True
            while running:
                # Checked before the lines are read: after the job has ended there are no new ones.
                running = bool(wait([job], STAGING_LOOK_EVERY_S).not_done)
                for number, *line in connection.execute(copier.lines("SELECT * FROM {}")).fetchall():
                    if number not in seen:
                        seen.add(int(str(number)))
                        part = StagedPart(str(line[0]), *(int(str(n)) for n in line[1:]))
                        if not part_queue.add(part):
                            connection.execute(part.drop)
            connection.execute(copier.lines("DROP TABLE {}"))
            job.result()
        part_queue.end()
    except BaseException as error:
        # The reader of the parts raises it.
        part_queue.end(translate_error(error))
    finally:
        release()
