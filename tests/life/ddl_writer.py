"""Writes rows in a session of its own while DDL runs: random statements, as fast as they are answered.

    with writer.writing():
        …  # DDL

After the block no statement of it is under way, so what follows is a quiet moment.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.life.ddl_actions import Catalog, some_rows
from tests.life.ddl_world import World


class Writer:
    """A thread with its own connection; it rests until it is asked to write."""

    def __init__(self, url: str, world: World, seed: int, major: int) -> None:
        self._url = url
        self._world = world
        self._rng = random.Random(f"writer {seed}")
        self._major = major
        self.statements = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write rows while the block runs."""
        stop = threading.Event()
        thread = threading.Thread(target=self._write, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _write(self, stop: threading.Event) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            # A deadlock with DDL ends; a table whose lock somebody keeps is left alone.
            connection.execute("SET lock_timeout = '2 s'")
            catalog = Catalog(connection, self._rng, self._world, self._major)
            while not stop.is_set():
                try:
                    text = some_rows(catalog)
                    if text is not None:
                        connection.execute(text.encode())
                        self.statements += 1
                except psycopg.OperationalError as error:
                    if connection.closed:
                        return
                    if not isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
                        raise
                except psycopg.Error:
                    # What it writes to was altered meanwhile.
                    continue
