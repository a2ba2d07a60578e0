"""Starts the embedded stack in a folder of its own, runs the shop, shows it live, checks it, cleans up.

Exit code 0 when every stream table equals its query in PostgreSQL, in Delta and on its topic, else 1.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from applier.refresh.check import CheckResult, check_stream_table
from deploy.demo import sinks
from deploy.demo.shop import CUSTOMERS, ORDERS, STREAM_TABLES, TABLES, Writer, open_shop
from deploy.local.stack import Stack
from shared_schema.errors import TrickleError
from shared_schema.table_schema import TableId

SECONDS = float(os.environ.get("DEMO_SECONDS", "60"))
TRANSACTIONS_PER_SECOND = 20.0
CHECK_EVERY_S = 15.0
SHOW_ROWS = 4
DELTA_LIMIT_S = 60.0
"""Delta is written in the background, later than PostgreSQL and the topic."""

Connection = psycopg.Connection[tuple[object, ...]]


def main() -> int:
    """Run the whole demo."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="pg-trickle-demo-", ignore_cleanup_errors=True) as folder:
            # An unprivileged PostgreSQL must be able to enter.
            Path(folder).chmod(0o755)
            with Stack(Path(folder), durable=False, say=lambda line: console.print(f"  {line}", style="dim")) as stack:
                console.print(f"stack is up after {time.monotonic() - started:.0f} s")
                return run_shop(console, stack)
    except TrickleError as error:
        console.print(f"error: {error.problem}\nhint: {error.hint}", style="red")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130


def run_shop(console: Console, stack: Stack) -> int:
    """Load the shop, create stream tables, write, show, check."""
    url = stack.addresses.database_url
    with open_shop(url) as connection:
        console.print(f"loading {CUSTOMERS} customers and {ORDERS} orders")
        connection.execute(TABLES.encode())
        for name, query in STREAM_TABLES.items():
            console.print(f"SELECT pgtrickle.create_stream_table('{name}', $$\n    {query}$$);", style="cyan")
            connection.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (name, query))
        filling = time.monotonic()
        for name in STREAM_TABLES:
            connection.execute("SELECT pgtrickle.wait_for(%s, timeout => '5 min')", (name,))
        console.print(f"all three are filled after {time.monotonic() - filling:.1f} s; now {SECONDS:.0f} s of writing")
        writer = Writer(url, TRANSACTIONS_PER_SECOND)
        threads = writer.start()
        try:
            checks = watch(console, connection, writer)
        finally:
            writer.stop()
            for thread in threads:
                thread.join()
        if writer.error is not None:
            console.print(f"the writer failed: {writer.error}", style="red")
            return 1
        checks += [check_stream_table(connection, TableId("public", name)) for name in STREAM_TABLES]
        places = compare_sinks(connection, stack)
        return summary(console, writer, checks, places)


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Group], None]]:
    """Yield a function that shows the current state: in place on a terminal, otherwise as lines from time to time."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield live.update
    else:
        last = [-10.0]

        def print_now_and_then(picture: Group) -> None:
            if time.monotonic() - last[0] >= 10:
                last[0] = time.monotonic()
                console.print(picture)

        yield print_now_and_then


def watch(console: Console, connection: Connection, writer: Writer) -> list[CheckResult]:
    """Show live rows and freshness until the time is over; compare with PostgreSQL while the writer continues."""
    checks: list[CheckResult] = []
    end = time.monotonic() + SECONDS
    next_check = time.monotonic() + CHECK_EVERY_S

    with shown(console) as show:
        while time.monotonic() < end and writer.error is None:
            if time.monotonic() >= next_check:
                checks += [check_stream_table(connection, TableId("public", name)) for name in STREAM_TABLES]
                next_check = time.monotonic() + CHECK_EVERY_S
            show(picture(connection, writer, checks, end - time.monotonic()))
            time.sleep(0.25)
    return checks


def picture(connection: Connection, writer: Writer, checks: list[CheckResult], left_s: float) -> Group:
    """Return the current rows and freshness as a table."""
    tables = Table(title=f"{writer.commits} commits, {writer.rows} rows written, {left_s:.0f} s to go")
    for heading in ("stream table", "rows", "frontier", "staleness", "checks"):
        tables.add_column(heading, justify="right" if heading == "rows" else "left")
    status = connection.execute(
        "SELECT pgt_name, frontier::text, round(extract(epoch FROM staleness), 2)::text"
        " FROM pgtrickle.pg_stat_stream_tables ORDER BY 1"
    ).fetchall()
    for name, frontier, staleness in status:
        count = connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone()
        of_table = [c for c in checks if c.table.name == name]
        verdict = f"{sum(c.equal for c in of_table)} of {len(of_table)} equal" if of_table else "-"
        tables.add_row(str(name), str(count[0] if count else 0), str(frontier), f"{staleness} s", verdict)
    rows = Table(title="revenue_by_segment")
    for heading in ("segment", "orders", "revenue"):
        rows.add_column(heading, justify="left" if heading == "segment" else "right")
    query = f"SELECT segment, orders, revenue FROM revenue_by_segment ORDER BY revenue DESC LIMIT {SHOW_ROWS}"
    for row in connection.execute(query.encode()).fetchall():
        rows.add_row(*[str(value) for value in row])
    return Group(tables, rows)


def compare_sinks(connection: Connection, stack: Stack) -> dict[tuple[str, str], bool]:
    """Compare Delta and the replayed topic with PostgreSQL, after the writer has ended."""
    outcome = {}
    for name in STREAM_TABLES:
        expected = sinks.in_postgres(connection, name)
        outcome[name, "topic"] = sinks.on_topic(stack.addresses.kafka_bootstrap, name) == expected
        deadline = time.monotonic() + DELTA_LIMIT_S
        while not (same := sinks.in_delta(stack.addresses.delta_root, name) == expected):
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        outcome[name, "Delta"] = same
    return outcome


def summary(console: Console, writer: Writer, checks: list[CheckResult], places: dict[tuple[str, str], bool]) -> int:
    """Print the summary; return exit code 0 if everything was equal."""
    table = Table(title="summary")
    for heading in ("stream table", "rows", "PostgreSQL", "Delta", "topic"):
        table.add_column(heading, justify="right" if heading == "rows" else "left")
    all_equal = True
    for name in STREAM_TABLES:
        of_table = [c for c in checks if c.table.name == name]
        equal = sum(c.equal for c in of_table)
        all_equal &= equal == len(of_table) and places[name, "Delta"] and places[name, "topic"]
        marks = ["equal" if places[name, place] else "DIFFERENT" for place in ("Delta", "topic")]
        table.add_row(name, str(of_table[-1].rows), f"{equal} of {len(of_table)} checks equal", *marks)
    console.print(table)
    if writer.latencies_s:
        ordered = sorted(writer.latencies_s)
        p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        console.print(
            f"{writer.commits} commits, {writer.rows} rows; from commit to visible in the joined stream table:"
            f" median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, {len(ordered)} probes"
        )
    console.print("every stream table equals its query" if all_equal else "A STREAM TABLE DIFFERS FROM ITS QUERY")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
