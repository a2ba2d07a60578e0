"""Values that look alike and are not, that are equal and look different, or that are longer than usual: all sinks hold
what PostgreSQL holds, to the last character."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from psycopg.types.string import TextLoader

from deploy.local.stack import Stack
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]
Shown = Counter[tuple[Any, ...]]


def show(rows: Iterable[Sequence[Any]]) -> Shown:
    """Return rows in a form that tells 0 from -0 and 1.0 from 1.00; a numeric may be a number or its text."""
    return Counter(tuple(map(show_value, row)) for row in rows)


def show_value(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    return format(value, "f") if isinstance(value, Decimal) else value


@pytest.fixture
def exact(db: Connection) -> Connection:
    """`db`, which reads intervals as the text that PostgreSQL prints."""
    db.adapters.register_loader("interval", TextLoader)
    return db


class ExactReplay(oracle.TopicReplay):
    """Replays a topic; its rows are in the form of `show`."""

    def _apply(self, record: dict[str, Any], schema: dict[str, Any]) -> None:
        if record["op"] == "T":
            self.rows.clear()
            return
        row = tuple(map(show_value, record["row"].values()))
        self.rows[row] += 1 if record["op"] == "I" else -1
        assert self.rows[row] >= 0, f"{row} was withdrawn before it was there"


def create(db: Connection, tables: dict[str, str], refresh_mode: str = "AUTO") -> None:
    for name, query in tables.items():
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)", (name, query, refresh_mode))


def assert_exact(db: Connection, stack: Stack, *names: str, sinks: bool = False) -> None:
    """Compare PostgreSQL, and Delta and the replayed topic if asked for, with the query."""
    for name in names:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '180 s')", (name,))
        found = db.execute("SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", (name,))
        expected = show(db.execute(str(found.fetchall()[0][0]).encode()).fetchall())
        oracle.assert_same(expected, show(db.execute(f"TABLE {name}".encode()).fetchall()), f"{name} in PostgreSQL")
        if sinks:
            oracle.eventually(lambda n=name, e=expected: assert_downstream(stack, n, e), within_s=60)  # type: ignore[misc]


def assert_downstream(stack: Stack, name: str, expected: Shown) -> None:
    replay = ExactReplay(stack.addresses.kafka_bootstrap, f"trickle_out.public.{name}", "trickle_out.schemas")
    oracle.assert_same(expected, replay.catch_up(), f"the topic of {name}")
    try:
        stored = DeltaTable(f"{stack.addresses.delta_root}/public/{name}").to_pyarrow_table()
    except TableNotFoundError as error:
        raise AssertionError(f"{name} is not in Delta yet") from error
    oracle.assert_same(expected, show(zip(*stored.to_pydict().values(), strict=True)), f"{name} in Delta")


def test_zeros_of_both_signs_leave_as_they_came(db: Connection, stack: Stack) -> None:
    """A row with -0 that TRUNCATE, another copy or a compaction took away as 0 would stay behind as a phantom."""
    db.execute("CREATE TABLE zeros (id int PRIMARY KEY, g int, f float8, h float4)")
    fill = "INSERT INTO zeros SELECT i, i % 2, CASE i % 3 WHEN 0 THEN '-0'::float8 WHEN 1 THEN '0' ELSE i END, '-0'"
    db.execute(f"{fill} FROM generate_series(1, 12) i".encode())
    tables = {
        "zeros_all": "SELECT id, f, h FROM zeros",
        "zeros_bag": "SELECT f, h FROM zeros",
        "zeros_numbered": "SELECT id, f, row_number() OVER (PARTITION BY g ORDER BY id) AS n FROM zeros",
        "zeros_first": "SELECT id, f FROM zeros ORDER BY id LIMIT 4",
        "zeros_least": "SELECT g, min(f) AS low, max(h) AS high, count(*) AS n FROM zeros WHERE f = 0 GROUP BY g",
        "zeros_matched": "SELECT z.id, z.f FROM zeros z WHERE EXISTS"
        " (SELECT FROM zeros y WHERE y.id < z.id AND y.f::text = z.f::text)",
    }
    create(db, tables)
    assert_exact(db, stack, *(name for name in tables if name != "zeros_least"))
    db.execute("BEGIN; TRUNCATE zeros; INSERT INTO zeros VALUES (1, 1, '-0', '-0'), (2, 1, '0', '0'); COMMIT")
    assert_exact(db, stack, *(name for name in tables if name != "zeros_least"))
    db.execute("UPDATE zeros SET f = -f, h = -h")
    db.execute("INSERT INTO zeros VALUES (3, 0, '-0', '-0')")
    assert_exact(db, stack, *(name for name in tables if name != "zeros_least"))
    db.execute("DELETE FROM zeros WHERE id = 1")
    assert_exact(db, stack, *tables, sinks=True)
    db.execute("TRUNCATE zeros")
    assert_exact(db, stack, *tables)
    assert db.execute("SELECT count(*) FROM zeros_numbered").fetchone() == (0,)


def test_keys_that_are_equal_and_look_different(exact: Connection, stack: Stack) -> None:
    """An UPDATE from 1.0 to 1.00, or from 30 days to a month, replaces the row."""
    db = exact
    db.execute(
        "CREATE TABLE alike (k numeric PRIMARY KEY, v int);"
        "CREATE TABLE alike_spans (k interval PRIMARY KEY, v int);"
        "CREATE TABLE alike_zeros (k float8 PRIMARY KEY, v int)"
    )
    db.execute("INSERT INTO alike VALUES (1.0, 1), (2, 2); INSERT INTO alike_spans VALUES ('30 days', 1), ('1 h', 2)")
    db.execute("INSERT INTO alike_zeros VALUES ('-0', 1), (1, 2)")
    tables = {
        "alike_all": "SELECT k, v FROM alike",
        "alike_sums": "SELECT k, sum(v) AS v FROM alike GROUP BY k",
        "alike_spans_all": "SELECT k, v FROM alike_spans",
        "alike_zeros_all": "SELECT k, v FROM alike_zeros",
    }
    create(db, tables)
    create(db, {"alike_full": "SELECT k, v FROM alike"}, refresh_mode="FULL")
    names = [*tables, "alike_full"]
    assert_exact(db, stack, *names)
    db.execute("UPDATE alike SET k = 1.00 WHERE k = 1; UPDATE alike_spans SET k = '1 mon' WHERE k = '30 d'")
    db.execute("UPDATE alike_zeros SET k = '0' WHERE k = 0")
    assert_exact(db, stack, *names)
    db.execute(
        "UPDATE alike SET k = k * 1.0, v = v + 1; UPDATE alike_spans SET k = '29 d 24 h', v = 7 WHERE k = '30 d'"
    )
    db.execute("DELETE FROM alike_zeros WHERE k = 0; INSERT INTO alike_zeros VALUES ('-0', 5)")
    assert_exact(db, stack, *names, sinks=True)


def test_sums_of_more_than_38_digits(db: Connection, stack: Stack) -> None:
    """PostgreSQL's numeric has no limit of 38 digits, and neither have its sums."""
    db.execute("CREATE TABLE huge (id int PRIMARY KEY, g int, v numeric(38,18))")
    db.execute("INSERT INTO huge VALUES (1, 1, 9e19), (2, 1, 9e19), (3, 2, -1.5)")
    tables = {
        "huge_sums": "SELECT g, sum(v) AS total, avg(v) AS mean, count(*) AS n FROM huge GROUP BY g",
        "huge_total": "SELECT sum(v) AS total FROM huge",
        "huge_mixed": "SELECT g, sum(v) AS total, max(id) AS last FROM huge GROUP BY g",
        "huge_running": "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS so_far FROM huge",
        "huge_distinct": "SELECT g, sum(DISTINCT v) AS total FROM huge GROUP BY g",
        "huge_small": "SELECT g, count(*) AS n FROM huge GROUP BY g",
    }
    create(db, tables)
    assert_exact(db, stack, *tables)
    db.execute(
        "INSERT INTO huge SELECT i, i % 3, 99999999999999999999.123456789012345678 FROM generate_series(4, 40) i"
    )
    db.execute("UPDATE huge SET v = -v WHERE id % 7 = 0")
    assert_exact(db, stack, *tables)
    db.execute("DELETE FROM huge WHERE g = 1")
    assert_exact(db, stack, *tables, sinks=True)


def test_a_sum_that_outgrows_its_type_concerns_its_stream_table_alone(db: Connection, stack: Stack) -> None:
    """The digits of a product are estimated; where a sum of products needs more, one stream table says so."""
    db.execute("CREATE TABLE products (id int PRIMARY KEY, a numeric(19,0), b numeric(19,0))")
    db.execute("INSERT INTO products VALUES (1, 2, 3)")
    create(db, {"products_sum": "SELECT sum(a * b) AS total FROM products"}, refresh_mode="DIFFERENTIAL")
    create(db, {"products_count": "SELECT count(*) AS n FROM products"})
    assert_exact(db, stack, "products_sum", "products_count")
    db.execute("INSERT INTO products SELECT i, 9999999999999999999, 9999999999999999999 FROM generate_series(2, 4) i")
    assert_exact(db, stack, "products_count")
    found = "SELECT status, last_error_message FROM pgtrickle.pgt_status() WHERE name LIKE '%products_sum'"

    def says_so() -> None:
        row = db.execute(found.encode()).fetchall()[0]
        assert "38" in str(row[1]), row

    oracle.eventually(says_so, within_s=30)
    db.execute("DELETE FROM products WHERE id > 2")
    db.execute("SELECT pgtrickle.resume_stream_table('products_sum') FROM pgtrickle.pgt_stream_tables"
               " WHERE pgt_name = 'products_sum' AND status = 'SUSPENDED'")  # fmt: skip
    assert_exact(db, stack, "products_sum", "products_count", sinks=True)


STYLES = {
    "intervalstyle": "iso_8601",
    "datestyle": "SQL, DMY",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "timezone": "Asia/Tokyo",
}


@contextmanager
def styles_of_the_database(db: Connection, stack: Stack) -> Iterator[None]:
    with psycopg.connect(stack.postgres.url, autocommit=True) as admin:
        for setting, value in STYLES.items():
            admin.execute(f"ALTER DATABASE {db.info.dbname} SET {setting} = '{value}'".encode())
        try:
            yield
        finally:
            for setting in STYLES:
                admin.execute(f"ALTER DATABASE {db.info.dbname} RESET {setting}".encode())


def test_styles_of_the_database_reach_no_sink(db: Connection, stack: Stack) -> None:
    """Sessions that read rows back for Delta and the topic print them as all others do."""
    columns = "id, i, f, d, at, b, r, a"
    row = (
        "'1 mon 2 days 03:04:05', 0.1::float8 + 0.2::float8, '2024-02-01', '2024-02-03 12:00Z', '\\x00ff',"
        " tstzrange('2024-02-03 12:00Z', '2024-03-04 12:00Z'), ARRAY[0.1::float8 + 0.2::float8]"
    )
    with styles_of_the_database(db, stack):
        db.execute(
            "CREATE TABLE styled (id int PRIMARY KEY, i interval, f float8, d date, at timestamptz, b bytea,"
            " r tstzrange, a float8[])"
        )
        db.execute(f"INSERT INTO styled SELECT 1, {row}".encode())
        modes = {"styled_changes": "DIFFERENTIAL", "styled_full": "FULL"}
        for name, mode in modes.items():
            create(db, {name: f"SELECT {columns} FROM styled"}, mode)
        for change in (
            f"INSERT INTO styled SELECT i, {row} FROM generate_series(2, 5) i",
            "DELETE FROM styled WHERE id = 2; UPDATE styled SET i = i * 2 WHERE id = 3",
        ):
            for name in modes:
                db.execute("SELECT pgtrickle.wait_for(%s, timeout => '180 s')", (name,))
            db.execute(change.encode())
        # The test's own session has the styles that were in force when it began.
        printed = "id, i::text, f, d, at, b, r::text, a::text"
        expected = show(db.execute(f"SELECT {printed} FROM styled".encode()).fetchall())
        for name in modes:
            oracle.eventually(lambda n=name: assert_downstream(stack, n, expected), within_s=60)  # type: ignore[misc]
