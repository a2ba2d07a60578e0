"""A million rows change at once: all three places are equal, and the applier's own memory hardly grows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from deploy.local.stack import Stack
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

MOST_MB = 300


@contextmanager
def growth_of(pid: int) -> Iterator[list[float]]:
    """Yield a list that receives the largest growth of the process in megabytes."""

    def resident() -> float:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    before, most, stop = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            most[0] = max(most[0], resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        stop.set()
        watcher.join()


def assert_everywhere(db: Connection, stack: Stack, query: str, rows: int) -> None:
    """Compare the rows in PostgreSQL; in the other two places, the frontier and one checksum over all rows."""
    db.execute("SELECT pgtrickle.wait_for('product', timeout => '15 min')")
    different = (
        f"SELECT count(*) FROM ((TABLE product EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL TABLE product)) d"
    )
    assert db.execute(different.encode()).fetchone() == (0,)
    expected = db.execute("SELECT count(*), sum(v)::int8 FROM product").fetchall()[0]
    assert expected[0] == rows

    def in_delta() -> None:
        try:
            table = DeltaTable(f"{stack.addresses.delta_root}/public/product").to_pyarrow_table(columns=["v"])
        except TableNotFoundError as error:
            raise AssertionError("it is not in Delta yet") from error
        assert (table.num_rows, sum(table["v"].to_pylist())) == expected

    oracle.eventually(in_delta, within_s=300)


@pytest.mark.skipif(not os.environ.get("PG_TRICKLE_LONG_TESTS"), reason="long: PG_TRICKLE_LONG_TESTS")
@pytest.mark.timeout(3600)
def test_a_million_rows_by_a_thousand(db: Connection, stack: Stack) -> None:
    db.execute("CREATE TABLE few (id int PRIMARY KEY, k int); CREATE TABLE fewer (id int PRIMARY KEY, k int, v int)")
    db.execute("INSERT INTO few SELECT i, 1 FROM generate_series(1, 1000) i")
    db.execute("INSERT INTO fewer SELECT i, 1, i FROM generate_series(1, 1000) i")
    query = "SELECT a.id AS l, b.id AS r, b.v FROM few a JOIN fewer b ON b.k = a.k"
    with growth_of(stack.binaries["applier"].pid) as filled:
        db.execute("SELECT pgtrickle.create_stream_table('product', %s, refresh_mode => 'DIFFERENTIAL')", (query,))
        assert_everywhere(db, stack, query, 1_000_000)
    print(f"filled: the applier grew by {filled[0]:.0f} MB", flush=True)
    for mode in ("DIFFERENTIAL", "FULL"):
        db.execute("SELECT pgtrickle.alter_stream_table('product', refresh_mode => %s)", (mode,))
        with growth_of(stack.binaries["applier"].pid) as changed:
            db.execute("UPDATE fewer SET v = v + 1")
            assert_everywhere(db, stack, query, 1_000_000)
        print(f"{mode}, 2 000 000 net rows: the applier grew by {changed[0]:.0f} MB", flush=True)
        executed = db.execute(
            "SELECT action, rows_inserted FROM pgtrickle.get_refresh_history('product', 1)"
        ).fetchone()
        assert executed == (mode, 1_000_000)
        assert changed[0] < MOST_MB
    replay = oracle.TopicReplay(stack.addresses.kafka_bootstrap, "trickle_out.public.product", "trickle_out.schemas")
    oracle.eventually(
        lambda: oracle.assert_same(oracle.in_postgres(db, "product"), replay.catch_up(), "topic"), within_s=600
    )
    assert filled[0] < MOST_MB
