"""A stream table seen through a window -> its net delta: one Spark query, or none when nothing it reads has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.errors import CalculationError, Infrastructure
from applier.operators.incrementalize import delta, snapshot
from applier.operators.inputs import Side
from applier.operators.top_k import TIE
from applier.state.states import States
from applier.stream_table import StreamTable, TableDelta
from applier.trace.traces import WindowInputs
from applier.zset import net


def compute(
    spark: SparkSession, table: StreamTable, inputs: WindowInputs, states: States | None = None
) -> TableDelta | None:
    """The net difference over the window, None when it is proven empty. From ORIGIN it is the whole content.

    Without states everything is computed from the traces: for a window that is not the stream table's next.
    """
    window = inputs.window
    with (
        _told(table),
        nullcontext(inputs) if states is None else states.through(table, window, inputs) as known,
    ):
        text = delta(table.root, known) if window.old else snapshot(table.root, Side.AFTER, known)
        return None if text is None else TableDelta(window, net(spark.sql(text).toArrow()))


def whole(spark: SparkSession, table: StreamTable, inputs: WindowInputs) -> pa.Table:
    """Everything it should hold at the window's end."""
    with _told(table):
        return net(spark.sql(snapshot(table.root, Side.AFTER, inputs)).toArrow())


@contextmanager
def _told(table: StreamTable) -> Iterator[None]:
    """Spark's errors in our words."""
    try:
        yield
    except Py4JNetworkError as error:
        raise Infrastructure("the Spark driver is gone") from error
    except (PySparkException, Py4JJavaError) as error:
        problem = _problem(error)
        if TIE in problem:
            raise CalculationError(
                f"the result of {table} is not decided: {TIE}", hint="add the primary key to ORDER BY"
            ) from error
        raise CalculationError(
            f"the query of {table} fails on the data: {problem}",
            hint="PostgreSQL would refuse it too; guard the expression (CASE, NULLIF) or correct the rows",
        ) from error


def _problem(error: PySparkException | Py4JJavaError) -> str:
    """What went wrong in one line; an error while a side of a join is broadcast arrives as a plain Java one."""
    if isinstance(error, PySparkException):
        return (error.getMessage() or str(error)).splitlines()[0]
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.toString()).splitlines()[0]
