"""Refreshes whose delta has more rows than the driver accepts, however few rows they read."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from applier.catalog.install import install_catalog
from applier.refresh.compute import UNFORESEEN_PARTS
from applier.sinks.staging.staging import Staging
from tests.benchmarks.laboratory import Laboratory
from tests.fixtures.postgres import PostgresServer

QUERY = "SELECT a.id AS l, b.id AS r, b.v FROM a JOIN b ON b.k = a.k"


def test_few_rows_that_match_many(spark: SparkSession, database: str, postgres: PostgresServer, tmp_path: Path) -> None:
    if postgres.major < 18:
        pytest.skip("the changes of a statement are read by RETURNING old and new, which PostgreSQL 18 has")
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE a (id int PRIMARY KEY, k int)")
        connection.execute("CREATE TABLE b (id int PRIMARY KEY, k int, v int)")
        connection.execute("INSERT INTO a SELECT i, 1 FROM generate_series(1, 20) i")
        connection.execute("INSERT INTO b SELECT i, 1, 0 FROM generate_series(1, 20) i")
        lab = Laboratory(connection, database, spark, tmp_path)
        for table in ("a", "b"):
            lab.capture(table)
        lab.create("st", QUERY)
        lab.tick("st")
        lab.staging = Staging(database, above=50)
        # Each changed row is deleted and inserted with each of its 20 matches.
        for changed, parts in ((1, 0), (5, UNFORESEEN_PARTS)):
            lab.change("b", f"UPDATE b SET v = v + 1 WHERE id <= {changed}")
            lab.step()
            assert lab.tick("st").rows == 40 * changed
            found = connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'pgt\\_staged\\_%'").fetchone()
            assert found == (parts,)
        assert not lab.differences("st", QUERY)
