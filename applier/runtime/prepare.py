"""A machine in; out come the jars of Spark, the jar of our functions and an archive of the JVM's classes.

Without them the first start has to fetch and compile, and every start is slower (see `spark/class_archive.py`).
"""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from applier.spark.class_archive import archive_path, make_at_exit
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.session import class_path, spark_session

EXIT_S = 300
"""How long the JVM may take to exit; writing the archive takes some seconds."""

KEPT_S = 14 * 86_400
"""Older archives are deleted: they may no longer be in use."""

_QUERIES = (
    "SELECT b, sum(a) AS s, count(*) AS n, min(d) AS d FROM t WHERE a > 0 GROUP BY b HAVING count(*) > 0",
    "SELECT /*+ BROADCAST(t) */ t.b, u.d FROM t JOIN (SELECT * FROM t UNION ALL SELECT * FROM t) u ON t.a = u.a",
    "SELECT t.b FROM t LEFT ANTI JOIN (SELECT a FROM t GROUP BY a) u ON t.a <=> u.a",
    "SELECT b, row_number() OVER (PARTITION BY b ORDER BY a) AS n, stack(2, a, d, a, -d) AS (p, q) FROM t",
    "SELECT b, collect_list(struct(a, d)) AS l, max_by(a, d) AS m FROM t GROUP BY b",
    "SELECT CASE WHEN a > 1 THEN concat(b, 'x') END AS c, CAST(d * 2 AS decimal(38,2)) AS e FROM t WHERE b IS NOT NULL",
)


_READER_JARS = ("kafka-clients-", "spark-sql-kafka-", "spark-token-provider-kafka-", "commons-pool2-")

_UNUSED = ("/shaded/", "/producer/", "/streams/", "/connect/", "module-info")


def prepare_start(say: Callable[[str], None]) -> Path | None:
    """Make what is missing; return the archive, or None when this Java writes none."""
    jars = ensure(SPARK_JARS)
    archive = archive_path(class_path(jars))
    if archive.exists():
        return archive
    say("preparing Spark's classes (once, about a minute)")
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        new_archive = Path(scratch) / archive.name
        _use_spark(jars, Path(scratch), make_at_exit(new_archive))
        if not new_archive.exists():
            say("this Java writes no archive of its classes: starts do not become faster")
            return None
        os.replace(new_archive, archive)
    _delete_old_archives(archive.parent)
    return archive


def _delete_old_archives(folder: Path) -> None:
    """Archives are large, and old jars may no longer be in use; without its archive a start is only slower."""
    for old in folder.glob("classes-*.jsa"):
        if old.stat().st_mtime < time.time() - KEPT_S:
            old.unlink(missing_ok=True)


def _use_spark(jars: list[Path], scratch: Path, java_options: str) -> None:
    """Start a JVM, run a little of everything that the applier runs, and end it."""
    spark = spark_session(jars, scratch=scratch, java_options=java_options)
    _run_sample_work(spark, scratch)
    _load_reader(spark, jars)
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        raise AssertionError("the session has no JVM")
    gateway.shutdown()
    # The JVM exits when its standard input is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_S)


def _run_sample_work(spark: SparkSession, scratch: Path) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "y", None], "d": pa.array([1, 2, 3], pa.decimal128(12, 2))})
    for held in (False, True):
        frame = spark.createDataFrame(rows)
        (frame.persist() if held else frame).createOrReplaceTempView("t")
        for query in _QUERIES:
            spark.sql(query).toArrow()
    folder = str(scratch / "delta")
    spark.table("t").write.format("delta").save(folder)
    spark.read.format("delta").option("versionAsOf", 0).load(folder).persist().count()
    kafka = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "nothing"}
    spark.readStream.format("kafka").options(**kafka).load()
    stream = spark.readStream.format("rate").load().writeStream.format("noop").trigger(once=True)
    stream.option("checkpointLocation", str(scratch / "checkpoint")).start().awaitTermination(60)


def _load_reader(spark: SparkSession, jars: list[Path]) -> None:
    """Load the classes that read Kafka, where no broker is: each start of the reader needs some two thousand."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        if not jar.name.startswith(_READER_JARS):
            continue
        with zipfile.ZipFile(jar) as opened:
            names = [name for name in opened.namelist() if name.endswith(".class")]
        for name in names:
            if name.startswith("META-INF/") or any(part in name for part in _UNUSED):
                continue
            # Some need libraries that are not there: then nothing uses them either.
            with suppress(Py4JJavaError):
                jvm.java.lang.Class.forName(name.removesuffix(".class").replace("/", "."), False, loader)
