"""Long runs: each one stores one result when it ends, and the result is shown with its age."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.long import __main__ as long
from tests.long.results import Result, read, table, write
from tests.long.runs import RUNS, Run


def run(script: str, limit_minutes: int = 1) -> Run:
    return Run("it", (sys.executable, "-u", "-c", script), "something", limit_minutes)


def test_a_run_is_recorded_with_its_closing_line_and_seed(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    passed = long.execute(run("print('FUZZ_SEED=7'); print('=== 3 passed in 2s ==='); print()"), results)
    assert (passed.passed, passed.said) == (True, "3 passed in 2s, FUZZ_SEED=7")
    failed = long.execute(run("print('1 failed, SEED=9'); raise SystemExit(1)"), results)
    assert (failed.passed, failed.said) == (False, "1 failed, SEED=9")
    # Only the last result is stored.
    assert read(results) == {"it": failed}


def test_a_run_over_its_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "END_S", 0.2)
    script = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('on', flush=True); time.sleep(99)"
    )
    assert not long.execute(run(script, limit_minutes=0), tmp_path / "results.json").passed
    assert "no end" in read(tmp_path / "results.json")["it"].said


def test_the_age_is_shown(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    write(Result("corpus", True, "2026-11-01T10:00:00+00:00", "abc1234", 9, "10 passed"), results)
    write(Result("soak", False, "2026-11-15T10:00:00+00:00", "abc1234+", None, "grows"), results)
    lines = {line.split()[0]: line for line in table(read(results), datetime(2026, 11, 16, 11, tzinfo=UTC))}
    assert list(lines) == [run.name for run in RUNS]
    assert lines["fuzz"].split() == ["fuzz", "never"]
    assert "passed  2026-11-01  15 days ago" in lines["corpus"] and lines["corpus"].endswith("10 passed")
    assert "FAILED  2026-11-15    1 day ago  abc1234+  grows" in lines["soak"]


def test_only_existing_runs_have_results() -> None:
    assert set(read()) <= {run.name for run in RUNS}


def test_every_run_names_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    named = {argument.partition("::")[0] for each in RUNS for argument in each.command if argument.startswith("tests/")}
    assert named
    assert [path for path in sorted(named) if not (root / path).exists()] == []
