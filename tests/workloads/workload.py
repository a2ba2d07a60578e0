"""Reads a workload from a plain SQL file and runs it. Comments mark its tables, stream tables and transactions.

    -- @tables                        run once
    -- @stream_table big DIFFERENTIAL    a query; the refresh mode is optional
    -- @transaction 3                 run repeatedly, three times as often as one with 1

Transactions use PostgreSQL's own `random()`, which is seeded before each one, so a seed repeats a run.
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
    """The content of a workload file."""

    name: str
    tables: str
    stream_tables: tuple[StreamTableQuery, ...]
    transactions: tuple[tuple[int, str], ...]
    fill: Callable[[psycopg.Connection[tuple[object, ...]]], None] | None = None
    """Loads rows that SQL does not generate."""

    def create_tables(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Create the tables with their first rows."""
        connection.execute("SELECT setseed(0.5)")
        connection.execute(self.tables.encode())
        if self.fill is not None:
            self.fill(connection)

    def create_stream_tables(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Create the stream tables in the order of the file, so that those of a chain find their sources."""
        for table in self.stream_tables:
            connection.execute(
                "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)",
                (table.name, table.query, table.refresh_mode),
            )

    def transaction(self, chance: random.Random) -> str:
        """Return a random transaction as a single simple query; some are rolled back."""
        weights = [weight for weight, _ in self.transactions]
        text = chance.choices([text for _, text in self.transactions], weights)[0]
        end = "ROLLBACK" if chance.random() < 0.05 else "COMMIT"
        return f"BEGIN; SELECT setseed({chance.uniform(-1, 1):.12f});\n{text};\n{end}"


def load(name: str) -> Workload:
    """Read the file of that name in this folder."""
    if name == "tpch":
        from tests.workloads.tpch import tpch

        return tpch()
    return parse(name, (HERE / f"{name}.sql").read_text())


def parse(name: str, text: str) -> Workload:
    """Split the text of a file into its parts."""
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
    """Return the names of all workloads."""
    return sorted(path.stem for path in HERE.glob("*.sql"))


@dataclass
class Writer:
    """Commits transactions of a workload on its own thread until stopped; reconnects while the server is down."""

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
                # A constraint of the workload's own tables failed: the transaction is aborted and must have no effect.
                self.refused.append(str(error).splitlines()[0])
                connection.execute("ROLLBACK")
