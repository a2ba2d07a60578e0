"""`python -m deploy.local up | down | status | psql | run`: the background stack of this checkout.

`up` starts `run`, the supervisor, detached from the terminal and returns when it is ready. The lock that a supervisor
holds shows that it is alive; a pid is not used, because another process may have it by now.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from deploy.local import process
from deploy.local.postgres import DEFAULT_MAJOR
from deploy.local.postgres_programs import programs
from deploy.local.process import StackError
from deploy.local.stack import Stack
from shared_schema.errors import TrickleError

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = CHECKOUT / ".stack"
ENV, STATE, LOCK, LOG = HOME / "env", HOME / "state.json", HOME / "lock", HOME / "supervisor.log"

TEND_EVERY_S = 0.5
DOWN_LIMIT_S = 240.0
"""Longer than the limits of all parts together. After it the supervisor itself is killed, and its children with it."""


def data_folder() -> Path:
    """Return `.stack/data`, or a folder named after this checkout that the server's user can enter."""
    inside = HOME / "data"
    if process.may_enter(inside, process.unprivileged_user()):
        return inside
    name = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]
    return process.own_folder_in_shared_tmp(f"pg-trickle-stack-{name}")


class Supervisor:
    """Holds the lock and runs the stack until SIGTERM or Ctrl-C."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ending = False

    def run(self) -> None:
        """Run the stack until a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        try:
            self._stack.start()
        except KeyboardInterrupt:
            return
        try:
            self._publish("ready")
            while not self._ending:
                self._stack.tend()
                self._publish("ready")
                time.sleep(TEND_EVERY_S)
        finally:
            ENV.unlink(missing_ok=True)
            self._stack.stop()

    def _publish(self, phase: str) -> None:
        text = self._stack.addresses.as_shell()
        if not ENV.exists() or ENV.read_text() != text:
            process.write_private(ENV, text)
        write_state(phase)

    def _end(self, _number: int, _frame: object) -> None:
        if self._ending:
            return
        self._ending = True
        if current_phase() == "starting":
            # The start has no loop that reads the flag.
            raise KeyboardInterrupt


def write_state(phase: str) -> None:
    """Write our pid and phase for `up` and `down`."""
    text = json.dumps({"pid": os.getpid(), "phase": phase})
    if not STATE.exists() or STATE.read_text() != text:
        process.write_private(STATE, text)


def current_phase() -> str:
    """Return the phase of the supervisor: `starting` or `ready`."""
    return str(process.read_json(STATE).get("phase", ""))


def take_lock() -> IO[str] | None:
    """Take the supervisor's lock; return None if a supervisor is alive."""
    HOME.mkdir(exist_ok=True)
    lock = open(LOCK, "w")  # noqa: SIM115  held for life
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def running() -> bool:
    """Return whether a supervisor of this checkout is alive."""
    if lock := take_lock():
        lock.close()
        return False
    return True


class LogFollower:
    """Prints new lines of the supervisor's log while a command waits for it."""

    def __init__(self) -> None:
        self._seen = LOG.stat().st_size if LOG.exists() else 0

    def show(self) -> None:
        """Print the lines that are new."""
        if LOG.exists() and LOG.stat().st_size > self._seen:
            with open(LOG, errors="replace") as log:
                log.seek(self._seen)
                click.echo(log.read(), nl=False)
                self._seen = log.tell()


@click.group()
def cli() -> None:
    """The background stack of this checkout."""


@cli.command()
@click.option("--pg-major", default=DEFAULT_MAJOR, envvar="PG_MAJOR", show_default=True, help="PostgreSQL 14 to 18.")
def up(pg_major: int) -> None:
    """Start the stack in the background; returns when a stream table can be created."""
    if running():
        _wait_ready(LogFollower(), None)
        click.echo(f"the stack is running already; its addresses are in {_shown(ENV)}")
        return
    follower = LogFollower()
    began = time.monotonic()
    HOME.mkdir(exist_ok=True)
    with open(LOG, "a") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "deploy.local", "run", "--pg-major", str(pg_major)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_ready(follower, supervisor)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        follower.show()
        raise
    click.echo(f"ready after {time.monotonic() - began:.0f} s; addresses are in {_shown(ENV)}, `make down` stops it")


@cli.command()
def down() -> None:
    """Stop the stack in order and wait; the data stay."""
    if not running():
        click.echo("the stack is not running")
        return
    follower = LogFollower()
    pid = int(process.read_json(STATE).get("pid", 0))
    if not pid:
        raise StackError("the stack is just starting", hint="try again in a moment")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_LIMIT_S
    while running():
        follower.show()
        if time.monotonic() > deadline:
            click.echo("it does not stop; killing it")
            os.kill(pid, signal.SIGKILL)
            deadline += DOWN_LIMIT_S
        time.sleep(0.1)
    follower.show()
    click.echo("stopped; the data stay for the next `make up`")


@cli.command()
def status() -> None:
    """Print whether the stack runs, and its addresses."""
    if not running():
        click.echo("the stack is not running")
        sys.exit(1)
    click.echo(f"the stack is {current_phase()}; addresses are in {_shown(ENV)}")


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1)
def psql(arguments: tuple[str, ...]) -> None:
    """Open psql on the running stack."""
    if not running() or not ENV.exists():
        raise StackError("the stack is not running", hint="make up")
    url = dict(line.partition("=")[::2] for line in ENV.read_text().splitlines())["DATABASE_URL"]
    program = str(programs(DEFAULT_MAJOR, None) / "psql")
    # Pass the password in the environment: other users can read a command line.
    os.execve(program, [program, *arguments], {**os.environ, **_libpq_environment(url)})


@cli.command()
@click.option("--pg-major", default=DEFAULT_MAJOR)
def run(pg_major: int) -> None:
    """Run the supervisor in the foreground."""
    lock = take_lock()
    if lock is None:
        raise StackError("the stack is running already", hint="make down")
    with lock:
        write_state("starting")
        folder = data_folder()
        try:
            Supervisor(Stack(folder, major=pg_major, say=click.echo)).run()
        finally:
            STATE.unlink(missing_ok=True)


def _wait_ready(follower: LogFollower, supervisor: subprocess.Popen[bytes] | None) -> None:
    while True:
        follower.show()
        state = process.read_json(STATE)
        # A killed supervisor leaves its state file behind, so the pid must be that of ours.
        if state.get("phase") == "ready" and (supervisor is None or state.get("pid") == supervisor.pid):
            return
        if supervisor and supervisor.poll() is not None and running():
            # Another process was faster.
            supervisor = None
        elif supervisor.poll() is not None if supervisor else not running():
            follower.show()
            click.echo("the stack did not start", err=True)
            sys.exit(1)
        time.sleep(0.1)


def _libpq_environment(url: str) -> dict[str, str]:
    from psycopg.conninfo import conninfo_to_dict

    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    return {names[key]: str(value) for key, value in conninfo_to_dict(url).items() if key in names}


def _shown(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(CHECKOUT))
    return str(path)


def main() -> None:
    """Run a command; print an expected error as one line and a hint."""
    try:
        cli.main(standalone_mode=False)
    except TrickleError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
