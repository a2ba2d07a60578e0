"""Deltas that bypass the driver: executors COPY them, PostgreSQL merges them, the other sinks stream them."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from applier.catalog.install import install_catalog
from applier.errors import TargetDiverged, TargetError
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import Delta, MemoryDelta, OutboxDelta, StagedDelta
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.kafka.delta_rows import delta_change_rows
from applier.sinks.outbox_delta import OUTBOX_ROWS
from applier.sinks.postgres.full_diff import FullResult
from applier.sinks.postgres.merge_parts import can_merge_in_any_order
from applier.sinks.postgres.pg_errors import decode_from_executor
from applier.sinks.staging.staged_delta import STAGED_PREFIX, drop_leftovers
from applier.sinks.staging.staging import Staging
from applier.spark.collect import collect_at_most
from shared_schema.change_row import Op
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.sinks.growth import growth
from tests.applier.sinks.stream_tables import (
    Bag,
    Connection,
    committed,
    delta,
    early_parts,
    executed,
    held,
    make,
    sink,
    zset,
)

NOW = datetime(2024, 2, 29, tzinfo=UTC)
LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
COLUMNS = {"a": "int", "b": "text", "n": "numeric(10,2)", "at": "timestamptz"}


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection


def zframe(spark: SparkSession, table: StreamTable, weights: Bag) -> DataFrame:
    ddl = ", ".join(f"c{i} {c.type.spark_ddl}" for i, c in enumerate(table.columns))
    return spark.createDataFrame(zset(table, weights), f"{ddl}, __w bigint")


def staged(url: str, table: StreamTable, frame: DataFrame, lsn_range: tuple[int, int], parts: int = 3) -> StagedDelta:
    return Staging(url).stage(
        table,
        LsnRange(Lsn(lsn_range[0]), Lsn(lsn_range[1])),
        frame,
        parts,
        lambda error: decode_from_executor(str(error)) or error,
    )


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
    to, delta_sink = sink(database), DeltaSink(str(tmp_path), database, merge_rows=5)
    # Rows that were inserted and deleted again do not arrive anywhere.
    passing = Counter({row(99, "passing"): 1})
    came = (
        zframe(spark, table, first)
        .union(zframe(spark, table, passing))
        .union(zframe(spark, table, Counter({row(99, "passing"): -1})))
    )
    leases = ExitStack()
    fill = leases.enter_context(staged(database, table, came, (0, 10)).lease())
    to.apply(table, fill, NOW, executed("fill"))
    assert held(db, table) == first
    assert Counter(r.values for r in delta_change_rows(table, fill, number=1, empty_first=False)) == first
    delta_sink.queue.add(table, fill)
    delta_sink.flush()
    weights = Counter(SECOND)
    weights.subtract(first)
    change = leases.enter_context(staged(database, table, zframe(spark, table, weights), (10, 20), parts=2).lease())
    to.apply(table, change, NOW, executed("changes"))
    assert held(db, table) == SECOND
    replayed = Counter(first)
    updates = 0
    for change_row in delta_change_rows(table, change, number=1, empty_first=False):
        replayed[change_row.values or ()] += 1 if change_row.op is Op.INSERT else -1
        updates += change_row.changed is not None
    assert +replayed == SECOND and (updates > 0) == (key is not None)
    delta_sink.queue.add(table, change)
    delta_sink.flush()
    assert in_delta(delta_sink, table) == SECOND
    # Too large to be merged in memory: written again with the rows of PostgreSQL.
    newest = DeltaTable(delta_sink.path(table)).history(1)[0]
    assert (newest["operation"], newest["pgtrickle_lsn"]) == ("WRITE", "0/14")
    assert DeltaSink(str(tmp_path)).frontier(table) == Lsn(20)
    assert count_staging_tables(db) > 0
    leases.close()
    assert count_staging_tables(db) == 0
    assert db.execute("SELECT frontier::text FROM pgtrickle.pgt_frontiers").fetchone() == ("0/14",)
    with pytest.raises(TargetDiverged):
        to.apply(table, staged(database, table, zframe(spark, table, weights), (20, 30)), NOW, executed("changes"))
    drop_leftovers(database)
    assert count_staging_tables(db) == 0


def in_delta(delta_sink: DeltaSink, table: StreamTable) -> Bag:
    stored = DeltaTable(delta_sink.path(table)).to_pyarrow_table()
    return Counter(zip(*[c.to_pylist() for c in stored.columns], strict=True))


def test_a_large_change_of_a_delta_table(db: Connection, database: str, tmp_path: Path) -> None:
    """Pure insertions are appended; PostgreSQL's rows are used only if the applier alone wrote them."""
    table = make(db, "st", {"a": "int", "b": "text"}, (0,))
    to, delta_sink = sink(database), DeltaSink(str(tmp_path), database, merge_rows=5)
    states: list[Bag] = [Counter(), *(Counter({(i, f"{i % n}"): 1 for i in range(10 * n)}) for n in (1, 2, 3, 4))]

    def written(number: int) -> MemoryDelta:
        change = delta(table, states[number - 1], states[number], (10 * number - 10, 10 * number))
        to.apply(table, change, NOW, executed("changes"))
        return change

    def step(number: int) -> list[str]:
        delta_sink.queue.add(table, written(number))
        assert delta_sink.flush() == []
        assert in_delta(delta_sink, table) == states[number]
        newest = DeltaTable(delta_sink.path(table)).history(1)[0]
        assert newest["pgtrickle_lsn"] == str(Lsn(10 * number))
        return [newest["operation"], newest.get("operationParameters", {}).get("mode", "")]

    assert step(1) == ["WRITE", "ErrorIfExists"]
    states[2] = states[1] + Counter({(i, "more"): 1 for i in range(100, 120)})
    assert step(2) == ["WRITE", "Append"]
    assert step(3) == ["WRITE", "Overwrite"]
    # A trigger of the user may have changed the rows.
    db.execute("CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    db.execute("CREATE TRIGGER see AFTER UPDATE ON st FOR EACH ROW EXECUTE FUNCTION see()")
    assert step(4)[0] == "MERGE"
    db.execute("DROP TRIGGER see ON st")
    # PostgreSQL is already ahead by a delta that is passed on only after the table was written again.
    states += [Counter({(i, "a"): 1 for i in range(12)}), Counter({(i, "b"): 1 for i in range(12)})]
    late = [written(5), written(6)]
    for change in late:
        delta_sink.queue.add(table, change)
        assert delta_sink.flush() == []
        assert in_delta(delta_sink, table) == states[6] and delta_sink.frontier(table) == Lsn(60)
        assert delta_sink.queue.is_idle(table.id)


def test_a_full_result_by_executors(db: Connection, database: str, spark: SparkSession) -> None:
    """A full refresh whose rows never come to the driver: neither they nor the difference."""
    for key in ((0,), None):
        table = make(db, "st", COLUMNS, key)
        first = FIRST if key else Counter({r: 1 + i % 3 for i, r in enumerate(FIRST)})
        second = SECOND if key else Counter({r: 1 + i % 2 for i, r in enumerate(SECOND)})
        to = sink(database, driver_rows=5)
        to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
        whole = staged(database, table, zframe(spark, table, second), (0, 20))
        with FullResult(LsnRange(Lsn(10), Lsn(20)), whole).lease() as contents:
            made = to.replace(table, contents, NOW, executed("full"), acknowledged=Lsn(10))
        assert held(db, table) == second
        assert isinstance(made, StagedDelta) and made.has_deletions
        weights = Counter(second)
        weights.subtract(first)
        kept = committed(database).pending_deltas(table, Lsn(10))
        with made.lease():
            for one in (made, *kept):
                assert Counter(dict(rows_of(one))) == Counter({r: n for r, n in weights.items() if n})
        assert count_staging_tables(db) == 0
        db.execute("SELECT pgtrickle.drop_stream_table('st')")


def rows_of(change: Delta) -> list[tuple[tuple[object, ...], int]]:
    return [(tuple(values), n) for *values, n in zip(*[c.to_pylist() for c in change.rows.columns], strict=True)]


@pytest.mark.parametrize(
    ("wholesale", "change", "expected"),
    [
        (False, "ALTER TABLE st ADD CONSTRAINT small CHECK (b < 100)", "a = 17 .*check violation, constraint small"),
        (True, "CREATE UNIQUE INDEX once ON st (b)", "a = 17 .*unique violation, constraint once"),
        # The executors have already found it.
        (False, "ALTER TABLE st ALTER b TYPE smallint", "a = 17 .*numeric value out of range"),
    ],
    ids=["merged", "compared", "copied"],
)
def test_a_refused_row_of_a_staged_delta_is_named_by_its_key(
    db: Connection, database: str, spark: SparkSession, wholesale: bool, change: str, expected: str
) -> None:
    table = make(db, "st", {"a": "int", "b": "int"}, (0,))
    to = sink(database, 4, driver_rows=5)
    first: Bag = Counter({(i, i): 1 for i in range(10)})
    to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    db.execute(change.encode())
    bad = 3 if "UNIQUE" in change else 70_000
    second = first + Counter({(i, i): 1 for i in range(30, 50)}) + Counter({(17, bad): 1})
    weights = Counter(second)
    weights.subtract(Counter() if wholesale else first)
    rows = staged(database, table, zframe(spark, table, weights), (0 if wholesale else 10, 20))
    with pytest.raises(TargetError, match=expected) as refusal:
        if wholesale:
            to.replace(table, FullResult(LsnRange(Lsn(10), Lsn(20)), rows), NOW, executed("full"))
        else:
            to.apply(table, rows, NOW, executed("changes"))
    assert str(bad) not in refusal.value.problem.replace("a = 17", "")
    rows.lease().close()


def test_a_query_that_returns_more_than_it_reads_is_not_collected(spark: SparkSession) -> None:
    query = "SELECT l.id, r.id AS other FROM range(100) l CROSS JOIN range(100) r"
    found = collect_at_most(spark, query, 10_000)
    assert found is not None and found.num_rows == 10_000
    assert collect_at_most(spark, query, 9_999) is None


@pytest.mark.parametrize("unique", [False, True])
def test_a_change_is_merged_part_by_part_unless_the_users_constraints_forbid_it(
    db: Connection, database: str, spark: SparkSession, unique: bool
) -> None:
    """Names move from key to key: with a unique index on them, deletions must come first, in all parts."""
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
    with to.session.connection.cursor() as cursor:
        assert can_merge_in_any_order(cursor, table, change) is not unique
    # Rows first, in parallel to the ticks; then the frontier.
    early_parts(database).apply(table, change)
    assert change.applied == (40, 40) and held(db, table) == second
    state = (
        "SELECT f.frontier::text, s.partial_until::text FROM pgtrickle.pgt_stream_tables s"
        " JOIN pgtrickle.pgt_frontiers f USING (pgt_id)"
    )
    assert db.execute(state).fetchone() == ("0/A", "0/14")
    to.apply(table, change, NOW, executed("changes"))
    assert held(db, table) == second
    assert db.execute(state).fetchone() == ("0/14", None)
    change.lease().close()


def test_two_deltas_of_a_stream_table_at_the_same_time(db: Connection, database: str, spark: SparkSession) -> None:
    """As after a crash: a delta that a sink missed, and a later one."""
    table = make(db, "st", {"a": "int"}, (0,))
    rows: list[Bag] = [Counter({(i,): 1 for i in range(start, start + 50)}) for start in (0, 100)]
    both = [staged(database, table, zframe(spark, table, bag), (10, 20)) for bag in rows]
    # The topic and Delta read each of them and do not wait for one another.
    with ThreadPoolExecutor(4) as readers:
        found = list(readers.map(lambda delta: Counter((a,) for a in delta.rows["c0"].to_pylist()), both * 2))
    assert found == rows * 2
    for one in both:
        one.lease().close()
    assert count_staging_tables(db) == 0


def count_staging_tables(db: Connection) -> int:
    found = db.execute(
        "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s)", (STAGED_PREFIX,)
    )
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
    """2 000 000 rows with PG_TRICKLE_LONG_TESTS; progressive, observed by another session."""
    rows = 2_000_000 if LONG else 50_000
    table = make(db, "st", {"a": "int", "b": "text"}, (0,), visibility="progressive")

    # As from a source that was already read: only the write to PostgreSQL is measured.
    def frame(rows: int) -> DataFrame:
        return spark.sql(f"SELECT CAST(id AS int) AS c0, repeat('x', 40) AS c1, 1L AS __w FROM range({rows})")

    # Nor the start of a session that was not used before.
    first = make(db, "first", {"a": "int", "b": "text"}, (0,))
    sink(database).apply(first, staged(database, first, frame(100), (0, 10)), NOW, executed("fill"))
    seen: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        with psycopg.connect(database, autocommit=True) as other:
            while not seen and not stop.wait(0.02):
                if other.execute("SELECT EXISTS (SELECT FROM st)").fetchone() == (True,):
                    seen.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with growth() as grown:
        began = time.monotonic()
        fill = staged(database, table, frame(rows), (0, 10), parts=max(4, rows // 20_000))
        sink(database).apply(table, fill, NOW, executed("fill"))
        took = time.monotonic() - began
    stop.set()
    watcher.join()
    assert db.execute("SELECT count(*) FROM st").fetchone() == (rows,)
    assert grown[0] < 300, f"the driver grew by {grown[0]:.0f} MB"
    share = (seen[0] - began) / took
    print(f"{rows} rows in {took:.1f} s, first seen after {share:.0%}, driver grew by {grown[0]:.0f} MB")
    # The short form ends before Spark's own warm-up is over.
    assert not LONG or share < 0.1
    fill.lease().close()


@pytest.mark.timeout(1200 if LONG else 120)
def test_a_large_change_leaves_the_driver_alone(
    db: Connection, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Every row is updated, as a delta that executors stage and as a full result that PostgreSQL compares; each sink
    receives it. 2 000 000 rows with PG_TRICKLE_LONG_TESTS."""
    rows, room, parts = (2_000_000, 200_000, 16) if LONG else (3_000, 500, 2)
    table = make(db, "st", {"a": "int", "b": "text"}, (0,))
    to, delta_sink = sink(database, driver_rows=room), DeltaSink(str(tmp_path), database, merge_rows=room)

    def frame(text: str, weight: int) -> DataFrame:
        columns = f"CAST(id AS int) AS c0, concat(repeat('{text}', 40), id) AS c1, {weight}L AS __w"
        return spark.sql(f"SELECT {columns} FROM range({rows})")

    def handed_on(change: Delta, text: str) -> None:
        """Pass the delta on to the topic and to Delta."""
        assert isinstance(change, StagedDelta)
        sent = sum(1 for _ in delta_change_rows(table, change, number=1, empty_first=False))
        assert sent == (rows if change.is_fill else 2 * rows)
        delta_sink.queue.add(table, change)
        assert delta_sink.flush() == [] and delta_sink.queue.is_idle(table.id)
        right = f"SELECT count(*), bool_and(b = repeat('{text}', 40) || a) FROM st"
        assert db.execute(right.encode()).fetchone() == (rows, True)
        stored = DeltaTable(delta_sink.path(table))
        assert stored.count() == rows
        assert stored.history(1)[0]["pgtrickle_lsn"] == str(change.lsn_range.upper)

    def measured(what: str, text: str, change: Callable[[], Delta]) -> None:
        with growth() as grown:
            began = time.monotonic()
            with change().lease() as made:
                handed_on(made, text)
            print(f"{what} of {rows} rows: {time.monotonic() - began:.1f} s, driver grew by {grown[0]:.0f} MB")
        assert grown[0] < 300, f"the driver grew by {grown[0]:.0f} MB"

    def filled() -> Delta:
        fill = staged(database, table, frame("x", 1), (0, 10), parts=parts)
        to.apply(table, fill, NOW, executed("fill"))
        return fill

    def changed() -> Delta:
        change = staged(database, table, frame("x", -1).union(frame("y", 1)), (10, 20), parts=parts)
        to.apply(table, change, NOW, executed("changes"))
        return change

    def replaced() -> Delta:
        whole = staged(database, table, frame("z", 1), (0, 30), parts=parts).wait_for_all()
        with FullResult(LsnRange(Lsn(20), Lsn(30)), whole).lease() as contents:
            return to.replace(table, contents, NOW, executed("full"), acknowledged=Lsn(20))

    measured("a fill", "x", filled)
    measured("a change", "y", changed)
    measured("a replacement", "z", replaced)
    with growth() as grown:
        # As after a crash: the outbox is read again, some rows at a time.
        [kept] = committed(database).pending_deltas(table, Lsn(20))
        assert isinstance(kept, OutboxDelta) is (2 * rows > OUTBOX_ROWS)
        assert sum(1 for _ in delta_change_rows(table, kept, number=1, empty_first=False)) == 2 * rows
    assert grown[0] < 300, f"the driver grew by {grown[0]:.0f} MB"


def test_staged_keys_that_are_equal_and_look_different(db: Connection, database: str, spark: SparkSession) -> None:
    """Spark puts 1.0 and 1.00 into different parts: the deletion of one comes before the insertion of the other."""
    table = make(db, "st", {"n": "numeric", "f": "float8", "v": "int"}, (0, 1))
    ones = [f"{i}.0" for i in range(1, 30)]
    first: Bag = Counter({(n, -0.0, 1): 1 for n in ones})
    second: Bag = Counter({(n + "0", -0.0, 1): 1 for n in ones[:20]} | {(n, -0.0, 2): 1 for n in ones[20:]})
    third: Bag = Counter({(n + "0", 0.0, 1): 1 for n in ones[:20]})
    to = sink(database)
    with staged(database, table, zframe(spark, table, first), (0, 10)).lease() as fill:
        to.apply(table, fill, NOW, executed("fill"))
    for number, (old, new) in enumerate([(first, second), (second, third)], start=1):
        came, left = zframe(spark, table, new), zframe(spark, table, Counter({row: -1 for row in old}))
        with staged(database, table, came.union(left), (number * 10, number * 10 + 10), parts=4).lease() as change:
            to.apply(table, change, NOW, executed("changes"))
        assert sorted(map(repr, held(db, table))) == sorted(map(repr, new))


def test_staged_rows_are_printed_by_the_pins(
    db: Connection, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    """What the database or the role says about styles does not reach what other sinks read."""
    name = db.info.dbname
    for setting, value in (
        ("intervalstyle", "iso_8601"),
        ("datestyle", "SQL, DMY"),
        ("extra_float_digits", "-15"),
        ("bytea_output", "escape"),
        ("timezone", "Asia/Tokyo"),
    ):
        db.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'".encode())
    columns = {"i": "interval", "f": "float8", "d": "date", "at": "timestamptz", "b": "bytea", "r": "daterange"}
    table = make(db, "st", columns, None)
    at = datetime(2024, 2, 29, 12, tzinfo=UTC)
    values = ("1 mon 2 days 03:04:05", 0.1 + 0.2, at.date(), at, b"\x00\xff", "[2024-01-02,2024-03-04)")
    rows: Bag = Counter({values: 2})
    with staged(database, table, zframe(spark, table, rows), (0, 10)).lease() as fill:
        sink(database).apply(table, fill, NOW, executed("fill"))
        assert [r.values for r in delta_change_rows(table, fill, number=1, empty_first=False)] == [values, values]
        delta_sink = DeltaSink(str(tmp_path), database, merge_rows=0)
        delta_sink.queue.add(table, fill)
        delta_sink.flush()
    stored = DeltaTable(delta_sink.path(table)).to_pyarrow_table().to_pylist()
    assert [tuple(row.values()) for row in stored] == [values, values]
    whole = committed(database).target_rows(table, LsnRange(Lsn(0), Lsn(10)))
    assert [tuple(row.values()) for row in whole.rows.to_pylist()] == [(*values, 2)]
