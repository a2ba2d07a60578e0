"""A stream table and its inputs over an LSN range in; its net delta or its full result, by one Spark query, out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from applier.arrange.inputs import TraceInputs
from applier.errors import CalculationError, Infrastructure
from applier.functions.aggregates.lists import SAME_KEY
from applier.operators.incrementalize import delta, snapshot
from applier.operators.support.inputs import Side
from applier.operators.top_k import TIE
from applier.plan.cardinality import bound_cardinality, may_shrink
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, StagedDelta
from applier.sinks.postgres.pg_errors import decode_from_executor
from applier.sinks.staging.staging import Staging
from applier.spark.collect import bytes_held, collect, collect_at_most
from applier.state.store import StateStore
from applier.trace.volume import ROW_BYTES
from applier.zset import ZSet, net
from shared_schema.lsn import ORIGIN, LsnRange

PART_ROWS, FILL_PART_ROWS = 50_000, 20_000
"""About how many rows are read per part. Parts of an initial fill are smaller: users see the first one earlier."""

MAX_PARTS, UNFORESEEN_PARTS = 128, 8
"""Most parts of a staged delta; and the number of parts where few rows are read and the result is large."""


def compute(
    spark: SparkSession,
    table: StreamTable,
    inputs: TraceInputs,
    states: StateStore | None = None,
    staging: Staging | None = None,
) -> ComputedDelta | None:
    """Return the net delta over the LSN range of the inputs; None when it is proven empty.

    A range that begins at ORIGIN gives the full result. Without `states` everything is computed from the traces: use
    that for a range that is not the stream table's next one. With `staging`, a large delta is not collected on the
    driver.
    """
    lsn_range = inputs.lsn_range
    plans = None if states is None else states.plans_of(table)
    # Whether the LSN range is small is decided over all relations that are read.
    inputs.take(table.sources)
    with (
        _translate_errors(table),
        nullcontext(inputs) if states is None else states.through(table, lsn_range, inputs) as known,
    ):
        result = delta(table.root, known, plans) if lsn_range.lower else snapshot(table.root, Side.AFTER, known)
        if result is None:
            return None
        rows = _collect_or_stage(spark, result, _estimate_size(table, lsn_range, inputs), staging)
        return rows if isinstance(rows, StagedDelta) else MemoryDelta(lsn_range, rows)


def compute_full(
    spark: SparkSession, table: StreamTable, inputs: TraceInputs, staging: Staging | None = None
) -> pa.Table | StagedDelta:
    """Return everything the stream table should hold at the upper end of the inputs' LSN range."""
    lsn_range = LsnRange(ORIGIN, inputs.lsn_range.upper)
    with _translate_errors(table):
        result = snapshot(table.root, Side.AFTER, inputs)
        return _collect_or_stage(spark, result, _estimate_size(table, lsn_range, inputs), staging)


def result_schema(spark: SparkSession, table: StreamTable, inputs: TraceInputs) -> pa.Schema:
    """Return the Arrow schema of the rows as Spark computes them; some PostgreSQL types would be read differently."""
    with _translate_errors(table):
        frame = spark.sql(snapshot(table.root, Side.AFTER, inputs).sql)
        return pa.schema([pa.field(field.name, to_arrow_type(field.dataType)) for field in frame.schema])


@dataclass(frozen=True)
class _SizeEstimate:
    """The rows that a query reads, and the most rows that it can return."""

    table: StreamTable
    lsn_range: LsnRange
    read: int
    """A large row counts as several."""
    most: float

    def parts(self, rows: int) -> int:
        """Return the number of parts for so many rows."""
        return min(MAX_PARTS, rows // (PART_ROWS if self.lsn_range.lower else FILL_PART_ROWS) + 1)


def _estimate_size(table: StreamTable, lsn_range: LsnRange, inputs: TraceInputs) -> _SizeEstimate:
    """Estimate by the changed rows; for a range that begins at ORIGIN by all rows."""
    read = sum(inputs.volume(source) for source in table.sources)
    result = bound_cardinality(table.root, lambda scan: inputs.extent(scan.table))
    return _SizeEstimate(table, lsn_range, read, result.changed if lsn_range.lower else result.held)


def _collect_or_stage(
    spark: SparkSession, zset: ZSet, size: _SizeEstimate, staging: Staging | None
) -> pa.Table | StagedDelta:
    """Collect the net rows on the driver; stage them in PostgreSQL when they are too many."""
    if staging is None:
        return net(collect(spark.sql(zset.sql)))
    translate = partial(_translate_error, size.table)
    if size.read <= staging.above:
        is_bounded = size.most <= staging.above
        rows = collect(spark.sql(zset.sql)) if is_bounded else collect_at_most(spark, zset.sql, staging.above)
        if rows is not None:
            return net(rows)
        return staging.stage(size.table, size.lsn_range, spark.sql(zset.sql), UNFORESEEN_PARTS, translate)
    if not may_shrink(size.table.root):
        return staging.stage(size.table, size.lsn_range, spark.sql(zset.sql), size.parts(size.read), translate)
    # Each part costs a fifth of a second. So many rows are read that Spark may hold the result once, to see its size.
    held = spark.sql(zset.sql).persist(StorageLevel.MEMORY_AND_DISK)
    with ExitStack() as on_error:
        on_error.callback(held.unpersist)
        rows_held = held.count()
        if max(rows_held, bytes_held(held) // ROW_BYTES) <= staging.above:
            return net(held.toArrow())
        parts = size.parts(rows_held)
        staged = staging.stage(size.table, size.lsn_range, held, parts, translate, release=held.unpersist)
        on_error.pop_all()
        return staged


@contextmanager
def _translate_errors(table: StreamTable) -> Iterator[None]:
    """Raise Spark's errors inside the block as errors of the applier."""
    try:
        yield
    except (Py4JNetworkError, PySparkException, Py4JJavaError) as error:
        raise _translate_error(table, error) from error


def _translate_error(table: StreamTable, error: BaseException) -> BaseException:
    match error:
        case Py4JNetworkError():
            return Infrastructure("the Spark driver has stopped")
        case PySparkException() | Py4JJavaError():
            problem = _first_line(error)
        case _:
            return error
    if TIE in problem:
        return CalculationError(f"the result of {table} is ambiguous: {TIE}", hint="add the primary key to ORDER BY")
    if SAME_KEY in problem:
        return CalculationError(f"the result of {table} is ambiguous: {SAME_KEY}", hint="add ORDER BY to the aggregate")
    if (from_executor := decode_from_executor(str(error))) is not None:
        return from_executor
    return CalculationError(
        f"the query of {table} fails on the data: {problem}",
        hint="PostgreSQL would reject it too; guard the expression (CASE, NULLIF) or correct the rows",
        log_text=f"the query of {table} fails on the data: {_before_values(problem)}",
    )


def _before_values(problem: str) -> str:
    """Return the words of a message before the first value, which begins with a quote, a digit or a sign."""
    words, value = re.match(r"""([^"'`\d+-]*)(.?)""", problem).groups()  # type: ignore[union-attr]
    return f"{words.rstrip(' :')} …" if value else words


def _first_line(error: PySparkException | Py4JJavaError) -> str:
    """Return the message in one line; an error during the broadcast of a join side arrives as a plain Java error."""
    if isinstance(error, PySparkException):
        return (error.getMessage() or str(error)).splitlines()[0]
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).splitlines()[0]
