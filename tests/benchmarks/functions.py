"""What a call of each function costs per row -> deploy/pages/costs.json, from which the page on SQL is made.

`python -m tests.benchmarks.functions`: every entry's first call over the rows of the fuzz test, repeated, in one task
with generated code; what reading the same columns costs is taken off. Rows that are errors are left out.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from applier.definition import define
from applier.definition.refusal import Refused
from applier.jars import SPARK_JARS, ensure
from applier.plan.nodes import Project, Scan
from applier.session import spark_session
from deploy.local.postgres import Postgres
from deploy.pages import sql as page
from tests.applier.expressions.frames import emit, fetch, frame
from tests.applier.expressions.test_fuzz import Trial, _fill, _trials
from tests.fixtures.choice import server_folder

COPIES = 400
RUNS = 3
COSTS = Path(page.__file__).with_name("costs.json")


def _seconds(rows: DataFrame) -> float:
    """The best of some runs."""
    found = []
    for _ in range(RUNS):
        start = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        found.append(time.perf_counter() - start)
    return min(found)


def _cost(connection: psycopg.Connection[Any], spark: SparkSession, trial: Trial) -> int | None:
    plan = define(connection, f"SELECT {trial.guarded} AS r FROM fuzz", "public").plan.root
    if not isinstance(plan, Project) or not isinstance(plan.input, Scan):
        return None
    scan = plan.input
    read = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
    few = frame(spark, fetch(connection, sql.SQL("fuzz"), read), [t.spark for _, t in read])
    many = few.coalesce(1).crossJoin(spark.range(0, COPIES, 1, 1))
    calls = many.select(*(emit(e).alias("r") for e in plan.exprs))
    return _two_digits(1e9 * (_seconds(calls) - _seconds(many)) / (few.count() * COPIES))


def _two_digits(value: float) -> int:
    return max(0, int(float(f"{value:.1e}")))


def main() -> None:
    """Measure, and write the file."""
    first = {t.entry.signature: t for t in reversed(_trials())}
    found: dict[str, int] = {}
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
    COSTS.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
