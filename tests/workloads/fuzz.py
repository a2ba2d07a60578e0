"""`python -m tests.workloads.fuzz --seed s --cases n` runs random workloads against the whole stack.

A failure (a difference, or a stream table that is suspended or was not compared) is shrunk to fewer stream tables and
fewer transactions and written to `scenarios/`. Every later test run replays it from there.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import psycopg

from deploy.local.stack import Addresses, Stack
from tests.fixtures.choice import server_folder
from tests.oracle import Judgement, judge
from tests.workloads.generator import PREFIX, generate
from tests.workloads.workload import Workload, parse

SCENARIOS = Path(__file__).with_name("scenarios")
SHRINK_LIMIT = 40
_numbers = itertools.count(1)


def play(addresses: Addresses, workload: Workload, *, judge_every: int = 4) -> Judgement:
    """Run a workload's transactions in order under unique table names and compare every few; then drop everything."""
    prefix = f"z{next(_numbers)}_"
    own = _rename(workload, prefix)
    names = [table.name for table in own.stream_tables]
    verdict = Judgement()
    with psycopg.connect(addresses.database_url, autocommit=True) as connection:
        connection.execute(own.tables.encode())
        try:
            own.create_stream_tables(connection)
            verdict = judge(addresses, names)
            for number, (_, text) in enumerate(own.transactions, 1):
                if not failed(own, verdict):
                    _attempt(connection, text)
                    if number % judge_every == 0 or number == len(own.transactions):
                        verdict = judge(addresses, names)
        finally:
            _drop(connection, names, prefix)
    return verdict


def _attempt(connection: psycopg.Connection[tuple[object, ...]], text: str) -> None:
    try:
        connection.execute(f"BEGIN; {text}; COMMIT".encode())
    except psycopg.errors.UniqueViolation:
        # Two rows moved to one key: the transaction is aborted.
        connection.execute("ROLLBACK")


def failed(workload: Workload, verdict: Judgement) -> bool:
    """Whether any of the workload's stream tables is not ACTIVE, not compared or not equal."""
    return not verdict.equal or verdict.tables != len(workload.stream_tables)


def _rename(workload: Workload, prefix: str) -> Workload:
    def new(text: str) -> str:
        return text.replace(PREFIX, prefix)

    return Workload(
        workload.name,
        new(workload.tables),
        tuple(replace(t, name=new(t.name), query=new(t.query)) for t in workload.stream_tables),
        tuple((weight, new(text)) for weight, text in workload.transactions),
    )


def _drop(connection: psycopg.Connection[tuple[object, ...]], names: Sequence[str], prefix: str) -> None:
    for name in reversed(names):
        found = connection.execute("SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", (name,))
        if found.rowcount:
            connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (name,))
    left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE %s AND relkind = 'r'", (f"{prefix}%",))
    for (table,) in left.fetchall():
        connection.execute(f'DROP TABLE "{table}"'.encode())


def shrink(workload: Workload, fails: Callable[[Workload], bool]) -> Workload:
    """Remove stream tables, then runs of transactions, while it still fails; at most SHRINK_LIMIT attempts."""
    budget = itertools.count()

    def still(smaller: Workload) -> bool:
        return next(budget) < SHRINK_LIMIT and fails(smaller)

    for table in reversed(workload.stream_tables):
        without = replace(workload, stream_tables=tuple(t for t in workload.stream_tables if t is not table))
        if without.stream_tables and not any(table.name in t.query for t in without.stream_tables) and still(without):
            workload = without
    size = max(1, len(workload.transactions) // 2)
    while size:
        at = 0
        while at < len(workload.transactions):
            kept = workload.transactions[:at] + workload.transactions[at + size :]
            if still(replace(workload, transactions=kept)):
                workload = replace(workload, transactions=kept)
            else:
                at += size
        size //= 2
    return workload


def as_text(workload: Workload, remark: str) -> str:
    """Return the workload as the text of a scenario file."""
    parts = [f"-- {line}" for line in [workload.name, *remark.splitlines()]]
    parts += ["", "-- @tables", workload.tables.strip()]
    for table in workload.stream_tables:
        parts += [f"-- @stream_table {table.name} {table.refresh_mode}", table.query]
    for weight, text in workload.transactions:
        parts += [f"-- @transaction {weight}", text]
    return "\n".join(parts) + "\n"


def write(folder: Path, workload: Workload, verdict: Judgement) -> Path:
    """Write a failure to a scenario file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{workload.name.replace(' ', '_')}.sql"
    path.write_text(as_text(workload, str(verdict)))
    return path


def scenarios() -> list[Path]:
    """Return the scenario files of all failures so far."""
    return sorted(SCENARIOS.glob("*.sql"))


def read(path: Path) -> Workload:
    """Read a scenario file."""
    return parse(path.stem, path.read_text())


@click.command()
@click.option("--seed", type=int, default=lambda: int(time.time()), show_default="the time")
@click.option("--cases", default=10, show_default=True)
@click.option("--minutes", type=float, default=60.0, show_default=True)
def main(seed: int, cases: int, minutes: float) -> None:
    """Search for a workload whose result differs."""
    click.echo(f"SEED={seed}")
    deadline = time.monotonic() + minutes * 60
    with server_folder("fuzz") as folder, Stack(folder, durable=False, say=lambda _: None) as stack:
        for case in range(seed, seed + cases):
            if time.monotonic() > deadline:
                click.echo(f"time is up before case {case}")
                break
            began, workload = time.monotonic(), generate(case)
            verdict = play(stack.addresses, workload, judge_every=8)
            click.echo(
                f"case {case}: {len(workload.stream_tables)} stream tables, {time.monotonic() - began:.0f} s: {verdict}"
            )
            if failed(workload, verdict):
                small = shrink(workload, lambda w: failed(w, play(stack.addresses, w, judge_every=1)))
                path = write(SCENARIOS, small, verdict)
                click.echo(f"shrunk to {path}")
                sys.exit(1)


if __name__ == "__main__":
    main()
