"""Jars and a scratch folder in, the configured SparkSession out: the only place that builds one.

Time zone UTC everywhere (otherwise Delta verifies every commit again), ANSI arithmetic (overflow raises as in
PostgreSQL), decimals that never lose digits silently, and settings for small queries: few partitions, no adaptive
execution, a heap that does not have to grow.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import java_import
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import IllegalArgumentException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from applier.spark.class_archive import archive_path, use_archive
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.java_functions import functions_jar
from shared_schema.errors import SettingsError

TIME_ZONE = "UTC"

LOG_LEVEL = "FATAL"
"""Of Spark itself. An error of a task names the values that it failed on; it reaches us as an exception anyway."""

_USELESS_RULES = (
    "org.apache.spark.sql.delta.metric.OptimizeConditionalIncrementMetric",
    "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
    "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
    "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
)
"""Rules of Spark's optimizer that do nothing for our queries: they took a fifth of its time."""

_DUPLICATE_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark logs every error of a query before it raises it, in its own form and with values of rows. And when two
threads fail for the first time at the same moment, one of these may become an ordinary logger, which raises
TypeError."""


def class_path(jars: Sequence[Path]) -> list[Path]:
    """Return the jars that a JVM needs besides Spark itself."""
    return [*jars, functions_jar()]


_launch: threading.Thread | None = None
_launch_error: list[BaseException] = []


def launch_jvm_ahead(*, master: str, driver_memory: str) -> None:
    """Launch the JVM of a local session on a thread of its own, while this process still imports its modules.

    `spark_session` waits for it, and raises its error.
    """
    global _launch  # noqa: PLW0603  there is one JVM per process, as PySpark has it
    if not master.startswith("local"):
        return

    def launch() -> None:
        try:
            options = SparkConf(loadDefaults=False)
            for name, value in _launch_options(class_path(ensure(SPARK_JARS)), master, driver_memory, "").items():
                options.set(name, value)
            # As SparkContext does it, which takes over what it finds here.
            SparkContext._gateway = launch_gateway(options)  # type: ignore[no-untyped-call]
            SparkContext._jvm = SparkContext._gateway.jvm
        except BaseException as error:
            _launch_error.append(error)

    _prepare_environment(master)
    _launch = threading.Thread(target=launch, name="jvm")
    _launch.start()


def _await_launch() -> None:
    if _launch is not None:
        _launch.join()
    if _launch_error:
        raise _launch_error[0]


def _prepare_environment(master: str) -> None:
    os.environ["TZ"] = TIME_ZONE
    if master.startswith("local"):
        # Executors run our Python when they COPY a large delta; on a cluster the operator installs it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _launch_options(all_jars: Sequence[Path], master: str, driver_memory: str, java_options: str) -> dict[str, str]:
    """Return the options that a JVM must be launched with."""
    common = (
        f"-Duser.timezone={TIME_ZONE} -XX:+UseParallelGC -XX:ReservedCodeCacheSize=256m "
        f"-Dlog4j2.level={LOG_LEVEL} -Dio.netty.tryReflectionSetAccessible=true"
    )
    options = {"spark.driver.memory": driver_memory, "spark.driver.extraJavaOptions": common}
    if master.startswith("local"):
        # The driver is the only JVM, and its own classpath is faster than Spark's mutable loader.
        options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, all_jars))
        options["spark.driver.extraJavaOptions"] += f" {java_options or use_archive(archive_path(all_jars))}"
    return options


def spark_session(
    jars: Sequence[Path],
    *,
    master: str = "local[*]",
    driver_memory: str = "2g",
    scratch: Path,
    java_options: str = "",
) -> SparkSession:
    """Start (or return the running) session with Kafka, Avro, Delta and our own functions on its classpath.

    Without `java_options` the JVM uses the archive of its classes, if there is one. Raises SettingsError for a cluster
    that has no secret.
    """
    _prepare_environment(master)
    _await_launch()
    all_jars = class_path(jars)
    options = {
        **_launch_options(all_jars, master, driver_memory, java_options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Others can reach Spark's ports: users of the machine, or of the network. Locally, on YARN and on Kubernetes
        # Spark makes the secret itself. In a cluster of its own the operator sets one, for all processes.
        "spark.authenticate": "true",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        # Our plans already have the constraints it infers; for columns computed from each other it takes forever.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.optimizer.excludedRules": ",".join(_USELESS_RULES),
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "2",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "64m",
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # How much data the optimizer itself may evaluate, without compiled code: a job is faster for more.
        "spark.sql.execution.arrow.localRelationThreshold": "256k",
        # The files of a trace are looked at one after the other: a job for that costs more.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": "io.pgtrickle.spark.streaming.MemoryCheckpoint",
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
    if master.startswith("local"):
        # The driver cannot lose contact with itself; only a clock that is set forward makes it look so.
        options["spark.storage.blockManagerHeartbeatTimeoutMs"] = str(365 * 86_400_000)
    else:
        options["spark.jars"] = ",".join(map(str, all_jars))
    builder = SparkSession.builder.appName("pg-trickle-applier").master(master)
    for name, value in options.items():
        builder = builder.config(name, value)
    for name in _DUPLICATE_ERROR_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        session: SparkSession = builder.getOrCreate()
    except (Py4JJavaError, IllegalArgumentException) as error:
        if "spark.authenticate.secret" not in str(error):
            raise
        raise SettingsError(
            f"Spark master {master} has no secret: anybody who reaches its ports could run code",
            hint="set spark.authenticate true and spark.authenticate.secret in spark-defaults.conf of the cluster and "
            "of the applier (SPARK_CONF_DIR)",
        ) from error
    session.sparkContext.setLogLevel(LOG_LEVEL)
    _register_functions(session)
    return session


def _register_functions(session: SparkSession) -> None:
    jvm: Any = session._jvm
    # A name that is not imported costs a round trip for each of its packages, at every use.
    for name in ("SqlFunctions", "LocalRows"):
        java_import(jvm, f"io.pgtrickle.spark.functions.{name}")
    jvm.SqlFunctions.register(session._jsparkSession)


def drop_checkpoint(session: SparkSession, folder: str) -> None:
    """Forget the checkpoint of a streaming query that has ended. It is in memory: no start reads an older one."""
    jvm: Any = session._jvm
    jvm.io.pgtrickle.spark.streaming.MemoryCheckpoint.drop(folder)


def count_cores(master: str, *, elsewhere: int) -> int:
    """Return how many tasks run at the same time under a local master; `elsewhere` for a cluster, which may grow."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", master)
    if found is None:
        return elsewhere
    return os.cpu_count() or 1 if found[1] == "*" else int(found[1] or 1)


def stand_back(session: SparkSession) -> None:
    """Let the Spark jobs of this thread share the cores with those of ticks; else a job goes before all later ones."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", "beside")


def count_jobs(session: SparkSession) -> int:
    """Return how many Spark jobs this session has started so far, those of background threads included."""
    return int(session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
