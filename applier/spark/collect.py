"""Rows of queries on the driver."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.spark.session import TIME_ZONE

MOST_PLANNED = 5_000
"""Rows that a query without a job may be made of; with more, the compiled code of a job is faster."""


def collect(frame: DataFrame) -> pa.Table:
    """All rows."""
    rows = rows_without_job(frame)
    return frame.toArrow() if rows is None else rows


def rows_without_job(frame: DataFrame) -> pa.Table | None:
    """All rows of projections and filters of rows on the driver, which Spark's optimizer computes by itself: without a
    job, which would cost more than all the rest of such a query. None when it is no such query, or of many rows."""
    session = frame.sparkSession
    file = Path(session.sparkContext._temp_dir or gettempdir(), f"planned-{uuid4().hex}")
    try:
        if _jvm(session).pgtrickle.Planned.write(frame._jdf, TIME_ZONE, MOST_PLANNED, str(file)):
            return pa.ipc.open_stream(file.read_bytes()).read_all()
        return None
    finally:
        file.unlink(missing_ok=True)


def collect_at_most(session: SparkSession, query: str, rows: int) -> pa.Table | None:
    """What the query returns; None when it is more than so many rows, and then little more has been collected.

    Each partition stops by itself. LIMIT would move all of them into one first, a stage that small queries feel, and
    another analysis of the query does not come for nothing either.
    """
    jvm, java = _jvm(session), session._jsparkSession
    catalyst = jvm.org.apache.spark.sql.catalyst
    limit = _object(catalyst.expressions, "Literal").apply(rows + 1)
    plan = catalyst.plans.logical.LocalLimit(limit, java.sessionState().sqlParser().parsePlan(query))
    limited = _object(jvm.org.apache.spark.sql.classic, "Dataset").ofRows(java, plan)
    found = collect(DataFrame(limited, session))
    return found if found.num_rows <= rows else None


def _jvm(session: SparkSession) -> Any:
    if session._jvm is None:
        raise AssertionError("the session has no JVM")
    return session._jvm


def _object(package: Any, name: str) -> Any:
    """A Scala object, by the name of its class."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
