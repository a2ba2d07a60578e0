"""A stream table and a window -> its net delta: one Spark action, or none when nothing it reads has changed."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from applier.apply.net_delta import net_rows
from applier.errors import CalculationError, Infrastructure
from applier.operators.incrementalize import delta, snapshot
from applier.operators.inputs import Side
from applier.stream_table import StreamTable, TableDelta
from applier.trace.traces import Traces, WindowInputs
from shared_schema.lsn import Window


def compute(table: StreamTable, traces: Traces, window: Window) -> TableDelta | None:
    """The net difference over the window, None when it is proven empty. From ORIGIN it is the whole content."""
    inputs = WindowInputs(traces, window, table.sources)
    try:
        frame = delta(table.plan.root, inputs) if window.old else snapshot(table.plan.root, Side.AFTER, inputs)
        return None if frame is None else TableDelta(window, _collect(table, frame))
    except Py4JNetworkError as error:
        raise Infrastructure("the Spark driver is gone") from error
    except PySparkException as error:
        problem = (error.getMessage() or str(error)).splitlines()[0]
        raise CalculationError(
            f"the query of {table} fails on the data: {problem}",
            hint="PostgreSQL would refuse it too; guard the expression (CASE, NULLIF) or correct the rows",
        ) from error


def _collect(table: StreamTable, frame: DataFrame) -> pa.Table:
    return net_rows(frame.toArrow(), len(table.columns))
