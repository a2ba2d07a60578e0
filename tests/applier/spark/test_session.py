"""What a Spark master says about the cores of this machine; a JVM that is launched ahead and cannot be."""

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
