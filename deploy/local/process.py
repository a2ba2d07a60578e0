"""Child processes that end with their parent, and their folders and ports.

Signals: a child has a session of its own, so Ctrl-C reaches only the parent, which then stops its children in order.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_schema.errors import TrickleError

PORTS = range(15_000, 32_000)
"""Below the range that Linux uses for outgoing connections, so a port stays free while its owner restarts."""

SHARED_TMP = Path("/var/tmp")
"""It survives a reboot, and every user may enter it."""


class StackError(TrickleError):
    """A part of the embedded stack could not be started or stopped."""


@dataclass(frozen=True, slots=True)
class User:
    """The user that a child process runs as."""

    uid: int
    gid: int


def unprivileged_user() -> User | None:
    """Return the user for programs that refuse to run as root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as error:
        raise StackError(
            "PostgreSQL does not run as root and there is no user `nobody`", hint="run this as an ordinary user"
        ) from error
    return User(entry.pw_uid, entry.pw_gid)


class Child(subprocess.Popen[bytes]):
    """A child process, and the position in its log where its output begins."""

    log: Path
    log_from: int = 0

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its output, for an error message."""
        with open(self.log, errors="replace") as log:
            log.seek(self.log_from)
            return "\n".join(log.read().splitlines()[-lines:])


class Keeper:
    """Holds at most one child process; `start` of a subclass sets it."""

    _child: Child | None = None

    @property
    def running(self) -> bool:
        """Return whether the process is alive."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id; 0 if it does not run."""
        return self._child.pid if self.running and self._child else 0

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._end()

    def _end(self, *signals: tuple[signal.Signals, float]) -> None:
        if self._child is not None:
            stop(self._child, *signals)


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    user: User | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Child:
    """Start a child whose output is appended to `log` and that gets `death_signal` when this process dies.

    Call it from the main thread: to Linux the parent is the thread that forked.
    """
    who = user or User(-1, -1)
    wrapper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("child.py"))]
    wrapper += [str(who.uid), str(who.gid), str(int(death_signal)), str(os.getpid())]
    log_from = log.stat().st_size if log.exists() else 0
    # A server's log may quote statements, so only we may read it.
    with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        child = Child(
            [*wrapper, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        child.log, child.log_from = log, log_from
        return child


def stop(child: Child, *signals: tuple[signal.Signals, float]) -> int:
    """Send each signal and wait up to its limit in seconds, then send SIGKILL; return the exit code."""
    for number, limit_s in (*signals, (signal.SIGKILL, 10.0)):
        if child.poll() is None:
            child.send_signal(number)
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            continue
    raise StackError(f"process {child.pid} cannot be killed", hint="is its disk or network file system hanging?")


def free_port(preferred: int | None = None) -> int:
    """Return a free port of the loopback address; the preferred one if it is free."""
    for port in [*([preferred] if preferred else []), *random.sample(PORTS, 200)]:
        with socket.socket() as probe:
            # As servers do: ignore connections of the last owner in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StackError("there is no free port on the loopback address", hint="stop some of the servers on this machine")


def port_open(port: int) -> bool:
    """Return whether a process accepts connections on this port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def may_enter(folder: Path, user: User | None) -> bool:
    """Return whether the modes of a folder and its parents let the user enter; True for None, the current user."""
    if user is None:
        return True
    existing = [path for path in (folder, *folder.parents) if path.exists()]
    return all(_allows(path, user, stat.S_IXOTH) for path in existing)


def may_read_tree(folder: Path, user: User | None) -> bool:
    """Return whether the user may enter a folder and read everything below it."""
    if user is None:
        return True
    if not may_enter(folder.resolve(), user):
        return False
    for parent, _folders, files in os.walk(folder):
        if not _allows(Path(parent), user, stat.S_IROTH | stat.S_IXOTH):
            return False
        if not all(_allows(Path(parent, name), user, stat.S_IROTH) for name in files):
            return False
    return True


def _allows(path: Path, user: User, wanted: int) -> bool:
    """Return whether the user has the permission bits `wanted` (given as for others), as owner, group or other."""
    status = path.stat()
    shift = 6 if status.st_uid == user.uid else 3 if status.st_gid == user.gid else 0
    return status.st_mode >> shift & wanted == wanted


def own_folder_in_shared_tmp(name: str) -> Path:
    """Return our folder below a world-writable folder; refuse one that belongs to another user."""
    folder = SHARED_TMP / name
    try:
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise StackError(f"{folder} belongs to another user", hint="remove it") from None
    return folder


def write_private(path: Path, text: str) -> None:
    """Write a file atomically that only we may read."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, {} if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def wait_until(ready: Callable[[], bool], child: Child, *, name: str, limit_s: float, every_s: float = 0.03) -> None:
    """Poll `ready()` until it is true; raise StackError with the end of the log if the child dies or time runs out."""
    deadline = time.monotonic() + limit_s
    while not ready():
        dead = child.poll() is not None
        if dead or time.monotonic() > deadline:
            problem = (
                f"ended with code {child.returncode} while starting" if dead else f"not ready after {limit_s:.0f} s"
            )
            raise StackError(f"{name} {problem}:\n{child.last_words()}", hint=f"see {child.log}")
        time.sleep(every_s)
