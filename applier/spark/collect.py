"""A Spark query in, its rows as an Arrow table on the driver out."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.spark.session import TIME_ZONE

MAX_ROWS_WITHOUT_JOB = 5_000
"""Most rows that a query without a job may read; with more, the compiled code of a job is faster."""


def collect(frame: DataFrame) -> pa.Table:
    """Return all rows."""
    rows = rows_without_job(frame)
    return frame.toArrow() if rows is None else rows


def rows_without_job(frame: DataFrame) -> pa.Table | None:
    """Return all rows without a Spark job; None when the query needs one or reads many rows.

    It works for projections and filters of rows that are on the driver: Spark's optimizer computes those itself. A job
    would cost more than the rest of such a query.
    """
    session = frame.sparkSession
    file = Path(session.sparkContext._temp_dir or gettempdir(), f"planned-{uuid4().hex}")
    try:
        if _jvm(session).LocalRows.write(frame._jdf, TIME_ZONE, MAX_ROWS_WITHOUT_JOB, str(file)):
            return pa.ipc.open_stream(file.read_bytes()).read_all()
        return None
    finally:
        file.unlink(missing_ok=True)


def collect_at_most(session: SparkSession, query: str, rows: int) -> pa.Table | None:
    """Return the rows of a query; None when it has more than `rows`, and then few more have been collected.

    Each partition stops on its own. LIMIT would first move all of them into one partition, a stage that slows small
    queries down, and would need another analysis of the query.
    """
    jvm, java = _jvm(session), session._jsparkSession
    catalyst = jvm.org.apache.spark.sql.catalyst
    limit = _scala_object(catalyst.expressions, "Literal").apply(rows + 1)
    plan = catalyst.plans.logical.LocalLimit(limit, java.sessionState().sqlParser().parsePlan(query))
    limited = _scala_object(jvm.org.apache.spark.sql.classic, "Dataset").ofRows(java, plan)
    found = collect(DataFrame(limited, session))
    return found if found.num_rows <= rows else None


def _jvm(session: SparkSession) -> Any:
    if session._jvm is None:
        raise AssertionError("the session has no JVM")
    return session._jvm


def _scala_object(package: Any, name: str) -> Any:
    """Return a Scala object by the name of its class."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def bytes_held(frame: DataFrame) -> int:
    """Return the size of a persisted frame in memory or on Spark's disk, as Spark measured it."""
    plan = frame.select("*")._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))
