"""A stream table seen through a window -> its net delta: one Spark query, or none when nothing it reads has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pyarrow as pa
from psycopg.errors import DiskFull
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.apply.staging import StagedDelta, Staging
from applier.errors import CalculationError, Infrastructure, TargetError, TargetFull
from applier.expressions.lists import SAME_KEY
from applier.operators.incrementalize import delta, snapshot
from applier.operators.inputs import Side
from applier.operators.top_k import TIE
from applier.state.states import States
from applier.stream_table import StreamTable, TableDelta
from applier.trace.traces import WindowInputs
from applier.zset import net

PART_ROWS, FILL_PART_ROWS = 50_000, 20_000
"""Read per part, about. Those of a fill are smaller: the first one is what people see first."""

MAX_PARTS = 128


def compute(
    spark: SparkSession,
    table: StreamTable,
    inputs: WindowInputs,
    states: States | None = None,
    staging: Staging | None = None,
) -> TableDelta | StagedDelta | None:
    """The net difference over the window, None when it is proven empty. From ORIGIN it is the whole content.

    Without states everything is computed from the traces: for a window that is not the stream table's next. With
    `staging`, what may be large does not come to the driver.
    """
    window = inputs.window
    with (
        _told(table),
        nullcontext(inputs) if states is None else states.through(table, window, inputs) as known,
    ):
        text = delta(table.root, known) if window.old else snapshot(table.root, Side.AFTER, known)
        if text is None:
            return None
        if staging is not None and inputs.rows_read > staging.above:
            parts = min(MAX_PARTS, inputs.rows_read // (PART_ROWS if window.old else FILL_PART_ROWS) + 1)
            return staging.stage(table, window, spark.sql(text), parts, partial(_in_our_words, table))
        return TableDelta(window, net(spark.sql(text).toArrow()))


def whole(spark: SparkSession, table: StreamTable, inputs: WindowInputs) -> pa.Table:
    """Everything it should hold at the window's end."""
    with _told(table):
        return net(spark.sql(snapshot(table.root, Side.AFTER, inputs)).toArrow())


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
    if "psycopg.OperationalError" in str(error):
        return Infrastructure(f"the executors could not reach PostgreSQL to write {table}")
    if "psycopg.errors." in str(error):
        kind = str(error).split("psycopg.errors.", 1)[1].split(":", 1)[0]
        if kind == DiskFull.__name__:
            return TargetFull(
                f"{table} cannot be written: the disk is full", hint="make room: it goes on by itself then"
            )
        return TargetError(f"PostgreSQL refused the rows of {table}: {kind}", hint="correct the rows or the table")
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
