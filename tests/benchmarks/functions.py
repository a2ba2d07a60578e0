"""Measures the cost of a function call per row and writes deploy/pages/costs.json, the input of the page on SQL.

`python -m tests.benchmarks.functions [regular expression of signatures]` runs each entry's first call over the rows of
the fuzz test, repeated, in one task with generated code. The cost is the CPU time of the task minus that of reading the
same columns. Rows with errors are excluded. Earlier measurements of other functions stay in the file.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from applier.plan.nodes import Project, Scan
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.session import spark_session
from applier.sql.plan_query import plan_query
from applier.sql.refusal import Refused
from deploy.local.postgres import Postgres
from deploy.pages import sql as page
from tests.applier.functions.frames import emit, fetch, frame
from tests.applier.functions.test_fuzz import Trial, _fill, _trials
from tests.fixtures.choice import server_folder

COPIES = 500
RUNS = 3
_groups = count()
COSTS = Path(page.__file__).with_name("costs.json")


def _nanoseconds(spark: SparkSession, rows: DataFrame) -> int:
    """Return the CPU time of the task, the best of several runs."""
    found = []
    for _ in range(RUNS):
        group = f"cost {next(_groups)}"
        spark.sparkContext.setJobGroup(group, group)
        rows.write.format("noop").mode("overwrite").save()
        found.append(_cpu_time(spark, group))
    return min(found)


def _cpu_time(spark: SparkSession, group: str) -> int:
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return sum(int(context.statusStore().lastStageAttempt(stage).executorCpuTime()) for stage in stages)


def _cost(connection: psycopg.Connection[Any], spark: SparkSession, trial: Trial) -> int | None:
    plan = plan_query(connection, f"SELECT {trial.guarded} AS r FROM fuzz", "public").plan.root
    if not isinstance(plan, Project) or not isinstance(plan.input, Scan):
        return None
    scan = plan.input
    read = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
    few = frame(spark, fetch(connection, sql.SQL("fuzz"), read), [t.spark for _, t in read])
    many = few.coalesce(1).crossJoin(spark.range(0, COPIES, 1, 1))
    calls = many.select(*(emit(e).alias("r") for e in plan.exprs))
    return _two_digits((_nanoseconds(spark, calls) - _nanoseconds(spark, many)) / (few.count() * COPIES))


def _two_digits(value: float) -> int:
    return max(0, int(float(f"{value:.1e}")))


def main() -> None:
    """Measure and write the file."""
    key_filter = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    first = {t.entry.signature: t for t in reversed(_trials()) if key_filter.search(t.entry.signature)}
    found: dict[str, int] = json.loads(COSTS.read_text())
    with server_folder("postgres") as folder, server_folder("spark") as scratch:
        spark = spark_session(ensure(SPARK_JARS), master="local[2]", driver_memory="1g", scratch=scratch)
        server = Postgres(folder, durable=False)
        server.start()
        with psycopg.connect(server.url, autocommit=True, options="-c TimeZone=UTC") as connection:
            _fill(connection, list(first.values()))
            for signature, trial in sorted(first.items()):
                try:
                    cost = _cost(connection, spark, trial)
                except Refused:
                    continue
                if cost is not None:
                    found[signature] = cost
        server.stop()
        spark.stop()
    COSTS.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n")


if __name__ == "__main__":
    main()
