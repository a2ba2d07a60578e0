"""`make test-long` executes the long runs one after the other, or those that ONLY names.

Each result is written to `results.json` when its run ends; `make test` shows the results with their age.
The exit code is 1 when a run failed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.long.results import RESULTS, Result, read, table, write
from tests.long.runs import RUNS, Run

ROOT = Path(__file__).resolve().parents[2]

END_S = 60.0
"""How long a run may take after an interrupt to stop its servers."""

_SEED = re.compile(r"\w*SEED=\d+")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([run.name for run in RUNS]))
@click.option("--show", is_flag=True, help="Only show the last results.")
def main(names: tuple[str, ...], show: bool) -> None:
    """Execute the long runs."""
    chosen = [] if show else [run for run in RUNS if not names or run.name in names]
    failed = [run.name for run in chosen if not execute(run).passed]
    click.echo("\n".join(["", *table(read())]))
    sys.exit(1 if failed else 0)


def execute(run: Run, results: Path = RESULTS) -> Result:
    """Execute a run until it ends or reaches its time limit; print its output and return its result."""
    click.echo(f"--- {run.name}: {run.proves} (at most {run.limit_minutes} minutes)")
    commit, began, date = _commit(results), time.monotonic(), datetime.now(UTC)
    last, seeds = deque[str](maxlen=1), list[str]()
    process = subprocess.Popen(
        run.command,
        cwd=ROOT,
        env=_environment() | dict(run.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    limit = _Limit(process, run.limit_minutes * 60)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            click.echo(line, nl=False)
            if line.strip():
                last.append(line.strip().strip("= "))
            seeds += _SEED.findall(line)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        limit.cancel()
    said = [f"no end after {run.limit_minutes} minutes"] if limit.over else [*last]
    said += [seed for seed in dict.fromkeys(seeds) if seed not in " ".join(said)]
    result = Result(
        run.name,
        passed=code == 0 and not limit.over,
        date=date.isoformat(timespec="seconds"),
        commit=commit,
        seconds=round(time.monotonic() - began),
        said=", ".join(said),
    )
    write(result, results)
    return result


class _Limit:
    """Ends the process when its time is over."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self.over = False
        self._process = process
        self._timer = threading.Timer(seconds, self._end_process)
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _end_process(self) -> None:
        self.over = True
        _end(self._process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the command and the processes that it started."""
    for number, patience_s in ((signal.SIGINT, END_S), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _environment() -> dict[str, str]:
    """Return the environment without the variables that `make` sets for its children: a run is not one of them."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def _commit(results: Path) -> str:
    """Return the commit that is tested, with a `+` when files other than the results are not committed."""

    def git(*arguments: str) -> str:
        completed = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return completed.stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(f"long/{results.name}")]
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


if __name__ == "__main__":
    main()
