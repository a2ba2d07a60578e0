"""Runs one of our two programs as a child process: settings in the environment, readiness over HTTP."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local import process
from deploy.local.process import StackError

STOP_LIMIT_S = 90.0
"""A program finishes its current tick or transaction, and Spark needs time to shut down."""

READY_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: a console script in the interpreter's folder, and the module that it needs."""

    name: str
    script: str
    module: str
    launcher: tuple[str, ...] = ()
    """Another command to run instead."""

    @property
    def exists(self) -> bool:
        """Return whether this checkout has the program."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        return [*(self.launcher or (str(Path(sys.executable).with_name(self.script)),)), *arguments]


CDC = Program("cdc", "pg-trickle-cdc", "cdc_consumer.cli")
APPLIER = Program("applier", "pg-trickle-applier", "applier.cli")


class Binary(process.Keeper):
    """Runs `<program> run`; every restart uses the same metrics port."""

    def __init__(self, program: Program, log: Path, *, metrics_port: int) -> None:
        self.program = program
        self.log = log
        self.settings: dict[str, str] = {}
        self.metrics_port = metrics_port

    @property
    def metrics(self) -> str:
        """Return the URL of the metrics page."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the last run; None while it runs."""
        return self._child.poll() if self._child else None

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._child.last_words() if self._child else ""

    @property
    def ready(self) -> bool:
        """Return whether the program reports that it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def start(self) -> None:
        """Start the program without waiting."""
        if not self.running:
            self._child = process.spawn(self.program.command("run"), log=self.log, env=self._environment())

    def wait_ready(self, limit_s: float = READY_LIMIT_S) -> None:
        """Wait until it is ready; raise StackError with the end of its log if it is not in time."""
        if self._child is None:
            raise StackError(f"{self.program.script} was not started")
        process.wait_until(lambda: self.ready, self._child, name=self.program.script, limit_s=limit_s, every_s=0.2)

    def run_once(self, *arguments: str) -> None:
        """Run another command of the program to its end; raise StackError if it fails."""
        child = process.spawn(self.program.command(*arguments), log=self.log, env=self._environment())
        if code := child.wait():
            command = " ".join([self.program.script, *arguments])
            raise StackError(f"`{command}` ended with code {code}:\n{child.last_words()}", hint=f"see {self.log}")

    def stop(self) -> None:
        """Send SIGTERM and wait."""
        self._end((signal.SIGTERM, STOP_LIMIT_S))

    def _environment(self) -> dict[str, str]:
        own: Mapping[str, str] = {
            "PG_TRICKLE_METRICS_HOST": "127.0.0.1",
            "PG_TRICKLE_METRICS_PORT": str(self.metrics_port),
        }
        return {**os.environ, **self.settings, **own}
