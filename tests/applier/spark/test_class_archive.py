"""The archive of Spark's classes is used if it exists, and another Java or jar has another archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.spark.class_archive import archive_path, use_archive
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.session import class_path


def test_other_jars_are_another_archive(tmp_path: Path) -> None:
    """Jars moved, changed or written again: Java would silently ignore the archive of the old ones."""
    ours, spark = tmp_path / "ours.jar", tmp_path / "spark"
    spark.mkdir()
    for jar in (ours, spark / "core.jar"):
        jar.write_bytes(b"1")

    def archive(spark: Path) -> Path:
        return archive_path([ours], spark=spark, cache=tmp_path)

    seen = [archive(spark)]
    assert archive(spark) == seen[0]
    (spark / "core.jar").write_bytes(b"12")
    seen.append(archive(spark))
    os.utime(ours, (1, 1))
    seen.append(archive(spark))
    seen.append(archive(spark.rename(tmp_path / "moved")))
    assert len(set(seen)) == len(seen)


def test_without_an_archive_there_is_nothing_to_begin_with(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    assert use_archive(archive) == ""
    archive.touch()
    assert str(archive) in use_archive(archive)


def test_a_session_begins_with_the_archive(spark: SparkSession) -> None:
    """Runs before the command's test, which may create an archive that this session could not start with."""
    archive = archive_path(class_path(ensure(SPARK_JARS)))
    if not archive.exists():
        pytest.skip("`pg-trickle-applier prepare` was not run; `make test` does")
    assert spark._jvm is not None
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.timeout(900)
def test_the_command_leaves_an_archive() -> None:
    """`make test` creates it before the tests begin, so it is only checked; otherwise it takes a minute here."""
    program = Path(sys.executable).with_name("pg-trickle-applier")
    completed = subprocess.run([program, "prepare"], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    last = completed.stdout.splitlines()[-1]
    assert Path(last) == archive_path(class_path(ensure(SPARK_JARS))) and Path(last).stat().st_size > 0
