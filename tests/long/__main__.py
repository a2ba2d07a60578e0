"""`make test-long`: what does not fit into `make test`, one after the other, or those that ONLY names.

Each result is in `results.json` when its run ends; `make test` shows them with their age. Exit code 1 when one failed.
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
"""After an interrupt a run may take its servers down."""

_SEED = re.compile(r"\w*SEED=\d+")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([run.name for run in RUNS]))
@click.option("--show", is_flag=True, help="Only what is known.")
def main(names: tuple[str, ...], show: bool) -> None:
    """Run them."""
    chosen = [] if show else [run for run in RUNS if not names or run.name in names]
    failed = [run.name for run in chosen if not execute(run).passed]
    click.echo("\n".join(["", *table(read())]))
    sys.exit(1 if failed else 0)


def execute(run: Run, results: Path = RESULTS) -> Result:
    """To its end or its limit; what it says is passed on."""
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
    late = _Limit(process, run.limit_minutes * 60)
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
        late.cancel()
    said = [f"no end after {run.limit_minutes} minutes"] if late.over else [*last]
    said += [seed for seed in dict.fromkeys(seeds) if seed not in " ".join(said)]
    result = Result(
        run.name,
        passed=code == 0 and not late.over,
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
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _ring(self) -> None:
        self.over = True
        _end(self._process)


def _end(process: subprocess.Popen[str]) -> None:
    """The command and what it started."""
    for number, patience_s in ((signal.SIGINT, END_S), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _environment() -> dict[str, str]:
    """Without what `make` tells its children: a run of ours is no part of it."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def _commit(results: Path) -> str:
    """Of the tree that is tested; `+` when it has changes of its own, the results apart."""

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return asked.stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(f"long/{results.name}")]
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


if __name__ == "__main__":
    main()
