"""A workload is a plain SQL file with marks in comments: its tables, its stream tables, its transactions.

    -- @tables                        run once
    -- @stream_table big DIFFERENTIAL    a query; the refresh mode is optional
    -- @transaction 3                 run again and again, three times as often as one with 1

A transaction's randomness is PostgreSQL's own `random()`, seeded before each one, so a seed repeats a run.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

HERE = Path(__file__).parent
_MARK = re.compile(r"^-- @(tables|stream_table|transaction)[ \t]*(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class StreamTableQuery:
    """One stream table of a workload."""

    name: str
    query: str
    refresh_mode: str


@dataclass(frozen=True)
class Workload:
    """What a file holds."""

    name: str
    tables: str
    stream_tables: tuple[StreamTableQuery, ...]
    transactions: tuple[tuple[int, str], ...]
    fill: Callable[[psycopg.Connection[tuple[object, ...]]], None] | None = None
    """For rows that are not made by SQL."""

    def create_tables(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Tables and their first rows."""
        connection.execute("SELECT setseed(0.5)")
        connection.execute(self.tables.encode())
        if self.fill is not None:
            self.fill(connection)

    def create_stream_tables(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """In the order of the file, so that chains find what they read."""
        for table in self.stream_tables:
            connection.execute(
                "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)",
                (table.name, table.query, table.refresh_mode),
            )

    def transaction(self, chance: random.Random) -> str:
        """One transaction as a single simple query, some of them rolled back."""
        weights = [weight for weight, _ in self.transactions]
        text = chance.choices([text for _, text in self.transactions], weights)[0]
        end = "ROLLBACK" if chance.random() < 0.05 else "COMMIT"
        return f"BEGIN; SELECT setseed({chance.uniform(-1, 1):.12f});\n{text};\n{end}"


def load(name: str) -> Workload:
    """The file of that name in this folder."""
    if name == "tpch":
        from tests.workloads.tpch import tpch

        return tpch()
    return parse(name, (HERE / f"{name}.sql").read_text())


def parse(name: str, text: str) -> Workload:
    """A file's text -> its parts."""
    tables, stream_tables, transactions = "", list[StreamTableQuery](), list[tuple[int, str]]()
    marks = list(_MARK.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : following.start() if following else len(text)].strip().rstrip(";")
        arguments = mark[2].split()
        match mark[1]:
            case "tables":
                tables += body + ";\n"
            case "stream_table":
                stream_tables.append(StreamTableQuery(arguments[0], body, [*arguments, "AUTO"][1]))
            case _:
                transactions.append((int(arguments[0]) if arguments else 1, body))
    return Workload(name, tables, tuple(stream_tables), tuple(transactions))


def names() -> list[str]:
    """Every workload there is."""
    return sorted(path.stem for path in HERE.glob("*.sql"))


@dataclass
class Writer:
    """Commits transactions of a workload on a thread of its own until stopped; a server that is away is waited for."""

    workload: Workload
    url: str
    seed: int
    pause_s: float = 0.05
    commits: int = 0
    refused: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Writer:
        self._thread = threading.Thread(target=self._run, name=f"writer of {self.workload.name}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        chance = random.Random(self.seed)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
                    self._write(connection, chance)
            except psycopg.OperationalError:
                time.sleep(0.2)

    def _write(self, connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
        while not self._stop.wait(self.pause_s):
            try:
                connection.execute(self.workload.transaction(chance).encode())
                self.commits += 1
            except psycopg.OperationalError:
                raise
            except psycopg.Error as error:
                # A constraint of the workload's own tables; the transaction is gone and nothing of it may be seen.
                self.refused.append(str(error).splitlines()[0])
                connection.execute("ROLLBACK")
