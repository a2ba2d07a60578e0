"""The Java functions: compiled once without a JDK, callable in every mode of Spark, with PostgreSQL's errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.spark import java_functions
from applier.spark.jars import JarSet, ensure, find_java
from deploy.local.lock_jars import JUNIT_JARS

FUNCTIONS = java_functions.SOURCES / "io" / "pgtrickle" / "spark" / "functions"


def test_compiles_once_per_source_and_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "java"
    values = sources / "io" / "pgtrickle" / "spark" / "values"
    values.mkdir(parents=True)
    shutil.copy(java_functions.SOURCES / values.relative_to(sources) / "PgError.java", values)
    monkeypatch.setattr(java_functions, "SOURCES", sources)
    first = java_functions.functions_jar(tmp_path / "cache")
    made = first.stat().st_mtime_ns
    assert java_functions.functions_jar(tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == made
    other_lock = tmp_path / "compiler.jars.lock"
    other_lock.write_text(java_functions.COMPILER_JARS.lock.read_text() + "# another\n")
    with monkeypatch.context() as patch:
        patch.setattr(java_functions, "COMPILER_JARS", JarSet("compiler", other_lock))
        patch.setattr(java_functions, "compile_sources", lambda _sources, _path, classes: classes.mkdir())
        assert java_functions.functions_jar(tmp_path / "cache") != first
    (values / "Broken.java").write_text("package io.pgtrickle.spark.values; class Broken { java.util.List x; }")
    with pytest.raises(java_functions.NotCompiled, match=r"Broken[\s\S]*raw type"):
        java_functions.functions_jar(tmp_path / "cache")


def test_every_class_with_functions_is_registered() -> None:
    registered = (FUNCTIONS / "SqlFunctions.java").read_text()
    for source in FUNCTIONS.glob("*.java"):
        if re.search(r"^    @SqlFunction\(", source.read_text(), re.MULTILINE):
            assert f"{source.stem}.class" in registered, f"SqlFunctions does not list {source.stem}"


def test_junit(tmp_path: Path) -> None:
    """Compiles the Java tests with the Eclipse compiler and runs them; a Java developer runs `mvn test`."""
    tests = sorted((java_functions.MODULE / "src" / "test" / "java").rglob("*.java"))
    (junit,) = ensure(JUNIT_JARS)
    functions, spark = java_functions.functions_jar(), java_functions.spark_jars_folder()
    class_path = [functions, *sorted(spark.glob("*.jar"))]
    java_functions.compile_sources(tests, [junit, *class_path], tmp_path)
    command = [
        str(find_java()),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
    ]
    command += ["-jar", str(junit), "execute", "--class-path", os.pathsep.join(map(str, (tmp_path, *class_path)))]
    command += ["--scan-class-path", str(tmp_path), "--details", "summary", "--disable-banner"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert re.search(r"[1-9]\d+ tests successful", completed.stdout), completed.stdout


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
