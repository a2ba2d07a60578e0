"""Refreshes whose delta has more rows than the driver accepts, however few rows they read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from applier.refresh.computing.compute import UNFORESEEN_PARTS
from applier.sinks.staging.staging import Staging
from tests.benchmarks.laboratory import Laboratory

STAGED = "SELECT count(*) FROM pg_class WHERE relname LIKE 'pgt\\_staged\\_%'"

QUERY = "SELECT a.id AS l, b.id AS r, b.v FROM a JOIN b ON b.k = a.k"


def test_few_rows_that_match_many(open_laboratory: Callable[..., Laboratory], database: str) -> None:
    lab = open_laboratory(
        "CREATE TABLE a (id int PRIMARY KEY, k int)",
        "CREATE TABLE b (id int PRIMARY KEY, k int, v int)",
        "INSERT INTO a SELECT i, 1 FROM generate_series(1, 20) i",
        "INSERT INTO b SELECT i, 1, 0 FROM generate_series(1, 20) i",
    )
    lab.create("st", QUERY)
    lab.tick("st")
    lab.staging = Staging(database, above=50)
    # Each changed row is deleted and inserted with each of its 20 matches.
    for changed, parts in ((1, 0), (5, UNFORESEEN_PARTS)):
        lab.change("b", f"UPDATE b SET v = v + 1 WHERE id <= {changed}")
        lab.step()
        assert lab.tick("st").rows == 40 * changed
        assert lab.connection.execute(STAGED).fetchone() == (parts,)
    assert not lab.differences("st", QUERY)


@pytest.mark.parametrize(("groups", "parts"), [(7, 0), (90, 1)])
def test_many_rows_with_a_small_result_need_no_parts(
    open_laboratory: Callable[..., Laboratory], database: str, spark: SparkSession, groups: int, parts: int
) -> None:
    query = f"SELECT id % {groups} AS g, count(*) AS n, max(v) AS most FROM b WHERE id > 0 GROUP BY 1"
    lab = open_laboratory(
        "CREATE TABLE a AS SELECT 1 AS id",
        "CREATE TABLE b (id int PRIMARY KEY, v int)",
        "INSERT INTO b SELECT i, i FROM generate_series(1, 100) i",
    )
    lab.create("st", query)
    lab.staging = Staging(database, above=50)
    held = spark.sparkContext._jsc.sc().getPersistentRDDs().size()
    assert lab.tick("st").rows == groups
    assert lab.connection.execute(STAGED).fetchone() == (parts,)
    assert not lab.differences("st", query)
    lab.change("b", "UPDATE b SET v = -v")
    lab.step()
    assert lab.tick("st").rows == 2 * groups
    assert not lab.differences("st", query)
    # Only the state of the stream table may stay in Spark's memory, and that is small.
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() <= held + 1
