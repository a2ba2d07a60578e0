"""A stream table seen through a window -> its net delta: one Spark query, or none when nothing it reads has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from applier.arrange.inputs import TraceInputs
from applier.errors import CalculationError, Infrastructure
from applier.functions.aggregates.lists import SAME_KEY
from applier.operators.incrementalize import delta, snapshot
from applier.operators.support.inputs import Side
from applier.operators.top_k import TIE
from applier.plan.cardinality import bound_cardinality
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.postgres.pg_errors import decode_from_executor
from applier.sinks.staging.staged_delta import Delta, StagedDelta
from applier.sinks.staging.staging import Staging
from applier.spark.collect import collect, collect_at_most
from applier.state.store import StateStore
from applier.zset import net
from shared_schema.lsn import ORIGIN, LsnRange

PART_ROWS, FILL_PART_ROWS = 50_000, 20_000
"""Read per part, about. Those of a fill are smaller: the first one is what people see first."""

MAX_PARTS, UNFORESEEN_PARTS = 128, 8
"""At most; and where few rows are read and come to many."""


def compute(
    spark: SparkSession,
    table: StreamTable,
    inputs: TraceInputs,
    states: StateStore | None = None,
    staging: Staging | None = None,
) -> Delta | None:
    """The net difference over the window, None when it is proven empty. From ORIGIN it is the whole content.

    Without states everything is computed from the traces: for a window that is not the stream table's next. With
    `staging`, what is large does not come to the driver.
    """
    lsn_range = inputs.lsn_range
    with (
        _told(table),
        nullcontext(inputs) if states is None else states.through(table, lsn_range, inputs) as known,
    ):
        text = delta(table.root, known) if lsn_range.lower else snapshot(table.root, Side.AFTER, known)
        if text is None:
            return None
        rows = _few_or_staged(spark, text, _asked(table, lsn_range, inputs), staging)
        return rows if isinstance(rows, StagedDelta) else MemoryDelta(lsn_range, rows)


def compute_full(
    spark: SparkSession, table: StreamTable, inputs: TraceInputs, staging: Staging | None = None
) -> pa.Table | StagedDelta:
    """Everything it should hold at the window's end."""
    lsn_range = LsnRange(ORIGIN, inputs.lsn_range.upper)
    with _told(table):
        text = snapshot(table.root, Side.AFTER, inputs)
        return _few_or_staged(spark, text, _asked(table, lsn_range, inputs), staging)


def result_schema(spark: SparkSession, table: StreamTable, inputs: TraceInputs) -> pa.Schema:
    """Of its rows as Spark computes them; PostgreSQL's own types would be read otherwise here and there."""
    with _told(table):
        frame = spark.sql(snapshot(table.root, Side.AFTER, inputs))
        return pa.schema([pa.field(field.name, to_arrow_type(field.dataType)) for field in frame.schema])


@dataclass(frozen=True)
class _Asked:
    """Whose rows, over which window, how many are read for them, and how many there may be."""

    table: StreamTable
    lsn_range: LsnRange
    read: int
    most: float

    @property
    def parts(self) -> int:
        return min(MAX_PARTS, self.read // (PART_ROWS if self.lsn_range.lower else FILL_PART_ROWS) + 1)


def _asked(table: StreamTable, lsn_range: LsnRange, inputs: TraceInputs) -> _Asked:
    """From ORIGIN on everything is read and may come."""
    read = [inputs.extent(source) for source in table.sources]
    result = bound_cardinality(table.root, lambda scan: inputs.extent(scan.table))
    if lsn_range.lower:
        return _Asked(table, lsn_range, int(sum(extent.changed for extent in read)), result.changed)
    return _Asked(table, lsn_range, int(sum(extent.held for extent in read)), result.held)


def _few_or_staged(spark: SparkSession, text: str, asked: _Asked, staging: Staging | None) -> pa.Table | StagedDelta:
    """Net rows on the driver, or in PostgreSQL where there are too many of them."""
    if staging is None:
        return net(collect(spark.sql(text)))
    parts = asked.parts
    if asked.read <= staging.above:
        bounded = asked.most <= staging.above
        few = collect(spark.sql(text)) if bounded else collect_at_most(spark, text, staging.above)
        if few is not None:
            return net(few)
        parts = UNFORESEEN_PARTS
    told = partial(_in_our_words, asked.table)
    return staging.stage(asked.table, asked.lsn_range, spark.sql(text), parts, told)


@contextmanager
def _told(table: StreamTable) -> Iterator[None]:
    try:
        yield
    except (Py4JNetworkError, PySparkException, Py4JJavaError) as error:
        raise _in_our_words(table, error) from error


def _in_our_words(table: StreamTable, error: BaseException) -> BaseException:
    match error:
        case Py4JNetworkError():
            return Infrastructure("the Spark driver is gone")
        case PySparkException() | Py4JJavaError():
            problem = _problem(error)
        case _:
            return error
    if TIE in problem:
        return CalculationError(f"the result of {table} is not decided: {TIE}", hint="add the primary key to ORDER BY")
    if SAME_KEY in problem:
        return CalculationError(
            f"the result of {table} is not decided: {SAME_KEY}", hint="add ORDER BY to the aggregate"
        )
    if (told := decode_from_executor(str(error))) is not None:
        return told
    return CalculationError(
        f"the query of {table} fails on the data: {problem}",
        hint="PostgreSQL would refuse it too; guard the expression (CASE, NULLIF) or correct the rows",
    )


def _problem(error: PySparkException | Py4JJavaError) -> str:
    """What went wrong in one line; an error while a side of a join is broadcast arrives as a plain Java one."""
    if isinstance(error, PySparkException):
        return (error.getMessage() or str(error)).splitlines()[0]
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).splitlines()[0]
