"""Deltas that do not come to the driver: executors COPY them, PostgreSQL merges them, the other sinks stream them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from applier.apply.delta_lake import DeltaSink
from applier.apply.parts import any_order
from applier.apply.staging import PREFIX, StagedDelta, Staging
from applier.errors import TargetDiverged
from applier.install import install
from applier.publish.change_rows import change_rows
from applier.stream_table import StreamTable
from shared_schema.change_row import Op
from shared_schema.lsn import Lsn, Window
from tests.applier.apply.stream_tables import Bag, Connection, executed, held, make, sink, zset

NOW = datetime(2024, 2, 29, tzinfo=UTC)
LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
COLUMNS = {"a": "int", "b": "text", "n": "numeric(10,2)", "at": "timestamptz"}


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install(connection)
        yield connection


def zframe(spark: SparkSession, table: StreamTable, weights: Bag) -> DataFrame:
    ddl = ", ".join(f"c{i} {c.type.spark_ddl}" for i, c in enumerate(table.columns))
    return spark.createDataFrame(zset(table, weights), f"{ddl}, __w bigint")


def staged(url: str, table: StreamTable, frame: DataFrame, window: tuple[int, int], parts: int = 3) -> StagedDelta:
    return Staging(url, 2).stage(table, Window(Lsn(window[0]), Lsn(window[1])), frame, parts, lambda error: error)


def row(a: int | None, b: str | None) -> tuple[object, ...]:
    return (a, b, None, datetime(2024, 1, 1, tzinfo=UTC))


FIRST: Bag = Counter({row(i, f"{i}") if i else row(None, "null"): 1 for i in range(40)})
SECOND: Bag = Counter({row(i, f"{i % 7}") if i % 5 else row(i, None): 1 for i in range(20, 60)} | {row(None, "now"): 1})


@pytest.mark.parametrize(
    ("key", "visibility"), [((0,), "transactional"), (None, "progressive")], ids=["keyed", "keyless_progressive"]
)
def test_a_staged_fill_and_a_staged_change(
    db: Connection, database: str, spark: SparkSession, tmp_path: Path, key: tuple[int, ...] | None, visibility: str
) -> None:
    table = make(db, "st", COLUMNS, key, visibility=visibility)
    first = FIRST if key else Counter({r: 1 + i % 3 for i, r in enumerate(FIRST)})
    to, delta_sink = sink(database), DeltaSink(str(tmp_path))
    # Rows that came and went do not arrive anywhere.
    passing = Counter({row(99, "passing"): 1})
    came = (
        zframe(spark, table, first)
        .union(zframe(spark, table, passing))
        .union(zframe(spark, table, Counter({row(99, "passing"): -1})))
    )
    fill = staged(database, table, came, (0, 10))
    to.apply(table, fill, NOW, executed("fill"))
    assert held(db, table) == first
    assert Counter(r.values for r in change_rows(table, fill, empty_first=False)) == first
    delta_sink.add(table, fill)
    delta_sink.flush()
    weights = Counter(SECOND)
    weights.subtract(first)
    change = staged(database, table, zframe(spark, table, weights), (10, 20), parts=2)
    to.apply(table, change, NOW, executed("changes"))
    assert held(db, table) == SECOND
    replayed = Counter(first)
    updates = 0
    for told in change_rows(table, change, empty_first=False):
        replayed[told.values or ()] += 1 if told.op is Op.INSERT else -1
        updates += told.changed is not None
    assert +replayed == SECOND and (updates > 0) == (key is not None)
    delta_sink.add(table, change)
    delta_sink.flush()
    stored = DeltaTable(delta_sink.path(table)).to_pyarrow_table()
    assert Counter(zip(*[c.to_pylist() for c in stored.columns], strict=True)) == SECOND
    for one in (fill, change):
        one.release()
    assert left_behind(db) == 0
    assert db.execute("SELECT frontier::text FROM pgtrickle.pgt_frontiers").fetchone() == ("0/14",)
    with pytest.raises(TargetDiverged):
        to.apply(table, staged(database, table, zframe(spark, table, weights), (20, 30)), NOW, executed("changes"))
    Staging(database, 1).clear()
    assert left_behind(db) == 0


@pytest.mark.parametrize("unique", [False, True])
def test_a_change_is_merged_part_by_part_unless_the_users_constraints_forbid_it(
    db: Connection, database: str, spark: SparkSession, unique: bool
) -> None:
    """Names move from key to key: with a unique index upon them what leaves must leave first, in all parts."""
    table = make(db, "st", {"a": "int", "b": "text"}, (0,), visibility="progressive")
    first: Bag = Counter({(i, f"name {i}"): 1 for i in range(40)})
    second: Bag = Counter({(i + 100, f"name {i}"): 1 for i in range(40)})
    to = sink(database)
    to.apply(table, staged(database, table, zframe(spark, table, first), (0, 10)), NOW, executed("fill"))
    if unique:
        db.execute("CREATE UNIQUE INDEX ON st (b)")
    weights = Counter(second)
    weights.subtract(first)
    change = staged(database, table, zframe(spark, table, weights), (10, 20))
    with to._database.connection.cursor() as cursor:
        assert any_order(cursor, table, change) is not unique
    # Rows first, beside the ticks; then the frontier.
    beside = sink(database)
    beside.apply_ahead(table, change)
    assert change.applied == (40, 40) and held(db, table) == second
    state = (
        "SELECT f.frontier::text, s.partial_until::text FROM pgtrickle.pgt_stream_tables s"
        " JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
    )
    assert db.execute(state).fetchone() == ("0/A", "0/14")
    to.apply(table, change, NOW, executed("changes"))
    assert held(db, table) == second
    assert db.execute(state).fetchone() == ("0/14", None)
    change.release(all_readers=True)


def test_two_deltas_of_a_stream_table_at_the_same_time(db: Connection, database: str, spark: SparkSession) -> None:
    """As after a crash: what a sink missed, and what came since."""
    table = make(db, "st", {"a": "int"}, (0,))
    rows: list[Bag] = [Counter({(i,): 1 for i in range(start, start + 50)}) for start in (0, 100)]
    both = [staged(database, table, zframe(spark, table, bag), (10, 20)) for bag in rows]
    # Each is read by the topic and by Delta, which do not wait for one another.
    with ThreadPoolExecutor(4) as readers:
        found = list(readers.map(lambda delta: Counter((a,) for a in delta.rows["c0"].to_pylist()), both * 2))
    assert found == rows * 2
    for delta in both:
        delta.release(all_readers=True)
    assert left_behind(db) == 0


def left_behind(db: Connection) -> int:
    found = db.execute("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s)", (PREFIX,))
    return int(str(found.fetchall()[0][0]))


def test_what_fails_on_an_executor_is_raised_where_the_rows_are_awaited(
    db: Connection, database: str, spark: SparkSession
) -> None:
    table = make(db, "st", {"a": "int"}, (0,))
    broken = spark.sql("SELECT CAST(1 / (id - 5) AS int) AS c0, 1L AS __w FROM range(10)")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sink(database).apply(table, staged(database, table, broken, (0, 10)), NOW, executed("fill"))
    assert db.execute("SELECT count(*) FROM st").fetchone() == (0,)


def test_a_large_fill_leaves_the_driver_alone_and_is_seen_early(
    db: Connection, database: str, spark: SparkSession
) -> None:
    """2 000 000 rows with PG_TRICKLE_LONG_TESTS; progressive, watched from outside."""
    rows = 2_000_000 if LONG else 50_000
    table = make(db, "st", {"a": "int", "b": "text"}, (0,), visibility="progressive")
    # As from a source that was read already: what is measured is the way into PostgreSQL.
    frame = spark.sql(f"SELECT CAST(id AS int) AS c0, repeat('x', 40) AS c1, 1L AS __w FROM range({rows})")
    before, peak, first_seen = resident_mb(), 0.0, 0.0
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak, first_seen
        with psycopg.connect(database, autocommit=True) as other:
            while not stop.wait(0.02):
                peak = max(peak, resident_mb())
                if not first_seen and other.execute("SELECT EXISTS (SELECT FROM st)").fetchone() == (True,):
                    first_seen = time.monotonic()

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    fill = staged(database, table, frame, (0, 10), parts=max(4, rows // 20_000))
    sink(database).apply(table, fill, NOW, executed("fill"))
    took = time.monotonic() - began
    stop.set()
    watcher.join()
    assert db.execute("SELECT count(*) FROM st").fetchone() == (rows,)
    assert peak - before < 300, f"the driver grew by {peak - before:.0f} MB"
    share = (first_seen - began) / took
    print(f"{rows} rows in {took:.1f} s, first seen after {share:.0%}, driver grew by {peak - before:.0f} MB")
    # The short form is over before Spark's own start-up is out of the way.
    assert not LONG or share < 0.1
    fill.release(all_readers=True)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
