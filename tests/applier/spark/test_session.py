"""What a Spark master says about the cores of this machine; where Spark does not start because anybody could run
code; a JVM that is launched ahead and cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from applier.spark.session import count_cores


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("spark://host:7077", 7),
        ("local-cluster[2,1,1024]", 7),
    ],
)
def test_the_cores_of_a_master(master: str, cores: int) -> None:
    assert count_cores(master, elsewhere=7) == cores


STARTS = """
import sys
from pathlib import Path
from applier.spark.session import spark_session
from shared_schema.errors import SettingsError
try:
    spark_session([], master="spark://127.0.0.1:9", scratch=Path(sys.argv[1]))
except SettingsError as error:
    print("refused:", error.problem, error.hint)
"""


def test_a_cluster_without_a_secret_is_refused(tmp_path: Path) -> None:
    line = [sys.executable, "-c", STARTS, str(tmp_path)]
    # The secret of this machine's own Spark, if it has one, does not count.
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    ended = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert "refused: Spark master spark://127.0.0.1:9 has no secret" in ended.stdout, ended.stdout + ended.stderr
    assert "spark.authenticate.secret" in ended.stdout


AHEAD = """
import pathlib, sys, threading
from applier.spark.jars import JavaMissing
from applier.spark.session import launch_jvm_ahead, spark_session
launch_jvm_ahead(master="local[1]", driver_memory="1g")
try:
    spark_session([], master="local[1]", scratch=pathlib.Path(sys.argv[1]))
except JavaMissing as error:
    print(error.problem, [thread.name for thread in threading.enumerate()])
"""


def test_the_error_of_a_jvm_that_is_launched_ahead(tmp_path: Path) -> None:
    """It is raised where the session is needed, as without the thread."""
    completed = subprocess.run(
        [sys.executable, "-c", AHEAD, tmp_path],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"JAVA_HOME ({tmp_path}) holds no bin/java ['MainThread']" in completed.stdout, completed.stderr
