"""The Java functions: compiled once without a JDK, callable in every mode of Spark, with PostgreSQL's errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.spark import java_functions


def test_compiles_once_per_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "pgtrickle"
    sources.mkdir()
    shutil.copy(java_functions.SOURCES / "PgError.java", sources)
    monkeypatch.setattr(java_functions, "SOURCES", sources)
    first = java_functions.functions_jar(tmp_path / "cache")
    made = first.stat().st_mtime_ns
    assert java_functions.functions_jar(tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == made
    (sources / "Broken.java").write_text("package pgtrickle; class Broken { int x = ; }")
    with pytest.raises(java_functions.NotCompiled, match="Broken"):
        java_functions.functions_jar(tmp_path / "cache")


def test_functions_are_called_and_skip_null(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT pg_numeric_div(x, '3') FROM VALUES ('1'), (CAST(NULL AS string)), ('10000000000') AS t(x)"
    ).collect()
    assert [row[0] for row in rows] == ["0.33333333333333333333", None, "3333333333.33333333"]
    with pytest.raises(Exception, match="PostgreSQL would report: division by zero"):
        spark.sql("SELECT pg_numeric_div('1', '0')").collect()


def test_functions_are_there_in_a_cloned_session(spark: SparkSession) -> None:
    clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    assert clone.sql("SELECT pg_numeric_sqrt('2')").collect() == [("1.414213562373095",)]
