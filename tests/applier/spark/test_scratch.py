"""Scratch folders are removed when their process ends, or at the next start if it was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from applier.spark.scratch import Scratch

HOLD = """
import sys
from pathlib import Path
from applier.spark.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]), "x")
(scratch.path / "data").write_text("d")
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_the_next_start_removes_the_folder_of_a_killed_process(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    left = Path(other.stdout.readline().strip())
    own = Scratch(tmp_path, "x")
    assert (left / "data").exists(), "its owner lives"
    other.kill()
    other.wait()
    unlocked = tmp_path / "pg-trickle-x-new"
    unlocked.mkdir()
    again = Scratch(tmp_path, "x")
    assert not left.exists()
    assert own.path.exists() and unlocked.exists()
    own.remove()
    again.remove()
    assert not own.path.exists() and not again.path.exists()
