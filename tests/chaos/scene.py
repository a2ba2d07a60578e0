"""The environment of faults: a stack whose programs reach PostgreSQL through a proxy, and the run's random numbers."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from deploy.local.stack import Stack
from tests.chaos.clock import COMPILER, Clock
from tests.chaos.proxy import Proxy
from tests.workloads.workload import Workload

Connection = psycopg.Connection[tuple[object, ...]]

_ERROR = re.compile(r"^error: (.*)$", re.MULTILINE)


class ProxiedStack(Stack):
    """The programs reach PostgreSQL through `proxy`, oracle and writers directly; all parts use `clock`."""

    proxy: Proxy | None = None

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.clock = Clock(self.folder)

    def _start(self) -> None:
        if COMPILER:
            self.clock.build()
        self.postgres.environment = self.kafka.environment = self.clock.environment
        super()._start()

    def _configure(self) -> None:
        super()._configure()
        url = urlsplit(self.addresses.database_url)
        if self.proxy is None:
            self.proxy = Proxy(url.port or 0)
        near = urlunsplit(url._replace(netloc=f"{url.netloc.rpartition(':')[0]}:{self.proxy.port}"))
        for binary in self.binaries.values():
            binary.settings |= {"PG_TRICKLE_DATABASE_URL": near, **self.clock.environment}


@dataclass
class Scene:
    """What a fault can use."""

    stack: ProxiedStack
    chance: random.Random
    workload: Workload

    def pause(self, low: float = 0.1, high: float = 4.0) -> None:
        """Sleep for a random time."""
        time.sleep(self.chance.uniform(low, high))

    @contextmanager
    def database(self) -> Iterator[Connection]:
        """Yield a connection that does not use the proxy."""
        with psycopg.connect(self.stack.addresses.database_url, autocommit=True) as connection:
            yield connection

    def ends_with(self, part: str, limit_s: float = 120.0) -> str:
        """Wait until a program exits by itself; return its one-line error message. A traceback is a failure."""
        binary = self.stack.binaries[part]
        until(lambda: not binary.running, f"{part} should have ended", limit_s)
        words = binary.last_words()
        found = _ERROR.findall(words)
        if binary.exit_code != 1 or not found or "Traceback" in words:
            raise AssertionError(f"{part} ended with code {binary.exit_code} and these words:\n{words}")
        return str(found[-1])

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """Stop a part with SIGSTOP during the block: it does not respond, and its connections stay open."""
        group = os.getpgid(self.stack.parts[part].pid)
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)


def until(condition: Callable[[], bool], what: str, limit_s: float) -> None:
    """Poll until the condition is true; fail after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {limit_s:.0f} s")
        time.sleep(0.1)
