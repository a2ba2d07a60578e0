"""Spark does not start where anybody who reaches its ports could run code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    ended = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert "refused: Spark master spark://127.0.0.1:9 has no secret" in ended.stdout, ended.stdout + ended.stderr
    assert "spark.authenticate.secret" in ended.stdout
