"""The only builder of a SparkSession.

Time zone UTC everywhere (otherwise Delta verifies every commit again), ANSI arithmetic (overflow raises as in
PostgreSQL), decimals that never lose digits silently, and the small-window profile: few partitions, no adaptive
execution, a heap that does not have to grow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from applier.spark.class_archive import archive_path, use_archive
from applier.spark.java_functions import functions_jar

TIME_ZONE = "UTC"

_IDLE_RULES = (
    "org.apache.spark.sql.delta.metric.OptimizeConditionalIncrementMetric",
    "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
    "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
    "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
)
"""Of Spark's optimizer, of no use to our texts: they took a fifth of its time."""

_ERRORS_TOLD_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark logs every error of a query before it raises it: in a form of its own, with values of rows. And where two
threads fail first at the same moment one of these may become an ordinary logger, which raises TypeError instead."""


def class_path(jars: Sequence[Path]) -> list[Path]:
    """What a JVM needs besides Spark itself."""
    return [*jars, functions_jar()]


def spark_session(
    jars: Sequence[Path],
    *,
    master: str = "local[*]",
    driver_memory: str = "2g",
    scratch: Path,
    java_options: str = "",
) -> SparkSession:
    """Start (or return the running) session with Kafka, Avro, Delta and our own functions on its classpath.

    Without options of its own the JVM begins with the archive of its classes, if there is one.
    """
    os.environ["TZ"] = TIME_ZONE
    if master.startswith("local"):
        # Executors run Python of ours when they COPY a large delta; on a cluster it is the operator who installs it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    of_every_jvm = (
        f"-Duser.timezone={TIME_ZONE} -XX:+UseParallelGC -XX:ReservedCodeCacheSize=256m "
        "-Dlog4j2.level=ERROR -Dio.netty.tryReflectionSetAccessible=true"
    )
    options = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": of_every_jvm,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        # What it infers our plans say already; over columns that are computed from each other it takes forever.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.optimizer.excludedRules": ",".join(_IDLE_RULES),
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "2",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "64m",
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Rows that the optimizer may compute with, by itself and uncompiled: many are better left to a job.
        "spark.sql.execution.arrow.localRelationThreshold": "256k",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "5",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.locality.wait": "0",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.optimizeWrite.enabled": "false",
        "spark.databricks.delta.autoCompact.enabled": "false",
        "spark.databricks.delta.maxCommitAttempts": "20",
        "spark.databricks.delta.properties.defaults.checkpointInterval": "100",
        "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "4",
    }
    joined = class_path(jars)
    if master.startswith("local"):
        # The driver is the only JVM, and its own classpath is faster than Spark's mutable loader.
        options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, joined))
        options["spark.driver.extraJavaOptions"] += f" {java_options or use_archive(archive_path(joined))}"
        # Nor can it lose touch with itself; only a clock that is set ahead makes it seem so.
        options["spark.storage.blockManagerHeartbeatTimeoutMs"] = str(365 * 86_400_000)
    else:
        options["spark.jars"] = ",".join(map(str, joined))
    builder = SparkSession.builder.appName("pg-trickle-applier").master(master)
    for name, value in options.items():
        builder = builder.config(name, value)
    for name in _ERRORS_TOLD_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session._jvm.pgtrickle.Functions.register(session._jsparkSession)  # type: ignore[union-attr]
    return session


def count_jobs(session: SparkSession) -> int:
    """How many Spark jobs this session has begun so far, those of background threads included."""
    return int(session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
