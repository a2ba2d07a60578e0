"""Rows that Spark computes while planning equal those that its jobs return, in all types, and need no job."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from applier.spark import collect as collect_module
from applier.spark.collect import collect, collect_at_most
from applier.spark.session import count_jobs
from applier.spark.views import create_view

VALUES = {
    "boolean": [True, None, False],
    "smallint": [1, None, -32768],
    "int": [1, None, -(1 << 31)],
    "bigint": [1, None, -(1 << 63)],
    "float": [1.5, None, float("-inf")],
    "double": [1.5, None, -0.0],
    "decimal(38,2)": [Decimal("1.50"), None, Decimal("-" + "9" * 36 + ".99")],
    "string": ["", None, "\u00e9\U0001f600"],
    "binary": [b"", None, b"\x00\xff"],
    "date": [date(1, 1, 1), None, date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), None, datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), None, datetime(2024, 2, 29, 1, 2, 3, 4)],
    "array<string>": [["a", None], None, []],
    "struct<a:int,b:string>": [{"a": 1, "b": None}, None, {"a": None, "b": "x"}],
}


@pytest.fixture
def view(spark: SparkSession) -> str:
    columns = {f"c{i}": values for i, values in enumerate(VALUES.values())}
    kinds = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return create_view(spark.createDataFrame(pa.Table.from_pylist(rows), kinds))


def _jobless(spark: SparkSession, query: str) -> pa.Table:
    before = count_jobs(spark)
    found = collect(spark.sql(query))
    assert count_jobs(spark) == before
    return found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {0}",
        "SELECT c2 + 1 AS a, concat(c7, c7) AS b, c6 FROM (SELECT * FROM {0} WHERE c1 > 0)",
        "SELECT c2, c7 FROM {0} WHERE c2 IS NULL UNION ALL SELECT 7, 'seven' FROM {0} UNION ALL SELECT c2, c7 FROM {0}",
        "SELECT * FROM {0} WHERE false",
        "SELECT timestamp_micros(9223372036854775807L) AS far FROM {0}",
    ],
)
def test_rows_are_those_of_a_job(spark: SparkSession, view: str, query: str) -> None:
    text = query.format(view)
    assert _jobless(spark, text).equals(spark.sql(text).toArrow())


def test_what_must_be_run_is_run(spark: SparkSession, view: str) -> None:
    found = collect(spark.sql(f"SELECT count(*) AS n, max(c2) AS m FROM {view}"))
    assert found.to_pylist() == [{"n": 3, "m": 1}]


def test_many_rows_are_sent_by_a_job(spark: SparkSession, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_module, "MAX_ROWS_WITHOUT_JOB", 2)
    before = count_jobs(spark)
    assert collect(spark.sql(f"SELECT c2 FROM {view}")).num_rows == 3
    assert count_jobs(spark) == before + 1


def test_at_most(spark: SparkSession, view: str) -> None:
    for rows, expected in ((3, 3), (2, None)):
        for query in (f"SELECT c2 FROM {view}", f"SELECT DISTINCT c2 FROM {view}"):
            found = collect_at_most(spark, query, rows)
            assert (None if found is None else found.num_rows) == expected


def test_an_error_of_the_data_is_raised_as_one(
    spark: SparkSession, view: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the caller gets it: PySpark would also log it, with the values of the row."""
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        collect(spark.sql(f"SELECT 1 / (c2 - 1) AS a FROM {view}"))
    assert "DIVIDE_BY_ZERO" not in capfd.readouterr().err
