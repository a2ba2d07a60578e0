"""One embedded PostgreSQL server: takes a folder, gives a running server and its URL.

The folder holds the cluster, the log, and `postgres.json` with port and password. Starting again on the same folder
continues with the same data and, if it is still free, the same port; also after a crash. It listens on the loopback
address only. As root the server runs as `nobody`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

from deploy.local import process
from deploy.local.postgres_programs import MAJORS, programs
from deploy.local.process import StackError

DEFAULT_MAJOR = 18

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
    "max_prepared_transactions": "10",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}

_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}
"""For tests: the data survive a crash of any process, but not of the machine."""

START_LIMIT_S = 60.0
"""Crash recovery replays at most max_wal_size (1 GB)."""

ORPHANS_LIMIT_S = 10.0
"""Backends notice quickly that their postmaster was killed, unless they are in a long computation."""


class Postgres(process.Keeper):
    """A server that ends with this process."""

    def __init__(self, folder: Path, *, major: int = DEFAULT_MAJOR, durable: bool = True) -> None:
        if major not in MAJORS:
            raise StackError(f"there is no embedded PostgreSQL {major}", hint=f"choose one of {sorted(MAJORS)}")
        self.folder = folder.absolute()
        self.log = self.folder / "postgres.log"
        self.user = process.unprivileged_user()
        self.major = major
        self.environment: dict[str, str] = {}
        """More environment variables of the server."""
        self._settings = _SETTINGS if durable else _SETTINGS | _NOT_DURABLE
        self._durable = durable
        self._port = 0
        self._password = ""
        self._bin = Path()

    @property
    def url(self) -> str:
        """Return the superuser's libpq URL of the database `postgres`."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the superuser's libpq URL of a database."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{quote(database, safe='')}"

    def bin(self, name: str) -> Path:
        """Return the path of a program of this version: psql, pg_dump, pgbench, pg_recvlogical, …"""
        found = (self._bin if self._bin.name else programs(self.major, self.user)) / name
        # Some versions have no client programs; those of the newest version work with all servers.
        return found if found.exists() else programs(DEFAULT_MAJOR, self.user) / name

    def start(self) -> None:
        """Create the cluster if there is none, start, and return when connections are accepted."""
        if self.running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if not process.may_enter(self.folder, self.user):
            raise StackError(f"the user that is to run PostgreSQL may not enter {self.folder}")
        self._bin = programs(self.major, self.user)
        if not self._cluster.exists():
            self._create()
        self._check_version()
        _end_orphans(self._cluster)
        known = process.read_json(self._identity)
        self._password = known["password"]
        self._port = process.free_port(known.get("port"))
        self._remember()
        self._child = process.spawn(
            self._command(),
            log=self.log,
            user=self.user,
            death_signal=signal.SIGQUIT,
            env=_environment() | self.environment,
            cwd=self._home,
        )
        process.wait_until(self._answers, self._child, name="PostgreSQL", limit_s=START_LIMIT_S)

    def stop(self) -> None:
        """Shut down fast: sessions are terminated, everything committed is on disk."""
        self._end((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))

    def crash(self) -> None:
        """Shut down immediately; the next start recovers from the log."""
        self._end((signal.SIGQUIT, 10.0))

    def restart(self, immediate: bool = False) -> None:
        """Stop (or crash) and start on the same data."""
        if immediate:
            self.crash()
        else:
            self.stop()
        self.start()

    @property
    def _home(self) -> Path:
        return self.folder / "postgres"

    @property
    def _cluster(self) -> Path:
        return self._home / "data"

    @property
    def _identity(self) -> Path:
        return self.folder / "postgres.json"

    def _command(self) -> list[str]:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self.bin("postgres")), "-D", str(self._cluster), "-p", str(self._port), *options]

    def _remember(self) -> None:
        process.write_private(self._identity, json.dumps({"port": self._port, "password": self._password}))

    def _create(self) -> None:
        self._password = secrets.token_urlsafe(24)
        self._home.mkdir(mode=0o700, exist_ok=True)
        unfinished, password_file = self._home / "data.new", self._home / "password"
        shutil.rmtree(unfinished, ignore_errors=True)
        process.write_private(password_file, self._password)
        if self.user:
            os.chown(self._home, self.user.uid, self.user.gid)
            os.chown(password_file, self.user.uid, self.user.gid)
        command = [str(self.bin("initdb")), "-D", str(unfinished), "-U", "postgres", f"--pwfile={password_file}"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        command += [] if self._durable else ["--no-sync"]
        child = process.spawn(command, log=self.log, user=self.user, env=_environment(), cwd=self._home)
        if child.wait():
            raise StackError(f"initdb failed:\n{child.last_words()}", hint=f"see {self.log}")
        password_file.unlink()
        self._remember()
        unfinished.rename(self._cluster)

    def _check_version(self) -> None:
        found = (self._cluster / "PG_VERSION").read_text().strip()
        if found != str(self.major):
            raise StackError(
                f"the data in {self.folder} are of PostgreSQL {found}, not {self.major}",
                hint="choose that version, or another folder",
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _environment() -> dict[str, str]:
    # Without the caller's PG* variables, and with messages in English.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _end_orphans(cluster: Path) -> None:
    """After `kill -9` of a postmaster: wait for its backends, and drop its lock file if its pid is now another's.

    Every process of a server has the cluster as its working folder.
    """
    if not Path("/proc/self/cwd").exists():
        return
    lock = cluster / "postmaster.pid"
    deadline = time.monotonic() + ORPHANS_LIMIT_S
    while pids := _processes_in(cluster):
        if _postmaster_pid(lock) in pids:
            raise StackError(f"a PostgreSQL server already runs on {cluster}", hint="stop it first")
        if time.monotonic() > deadline:
            for pid in pids:
                _kill(pid)
        time.sleep(0.02)
    lock.unlink(missing_ok=True)


def _postmaster_pid(lock: Path) -> int:
    try:
        return int(lock.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return 0


def _processes_in(folder: Path) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(folder):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
