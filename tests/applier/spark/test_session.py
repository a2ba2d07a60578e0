"""What a Spark master says about the cores of this machine, and where Spark does not start because anybody could run
code."""

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
