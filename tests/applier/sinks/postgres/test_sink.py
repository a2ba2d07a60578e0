"""The PostgreSQL sink alone: any contents and batch size, with and without MERGE, by key and by counting duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from applier.catalog.install import install_catalog
from applier.errors import GroupCommitRefused, TargetDiverged, TargetError
from applier.sinks.delta import MemoryDelta, StagedDelta
from applier.sinks.postgres.full_diff import FullResult
from applier.zset import net
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.sinks.stream_tables import Bag, Connection, committed, delta, executed, held, make, sink, zset

COLUMNS = {"a": "int", "b": "text", "f": "float8", "n": "numeric", "j": "json"}
NOW = datetime(2024, 2, 29, tzinfo=UTC)
PG14 = 140_000


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection


keys = st.one_of(st.none(), st.integers(0, 5))
rest = st.tuples(
    st.sampled_from([None, "", "x", 'q",\n\\.']),
    st.sampled_from([None, 0.5, float("inf")]),
    st.sampled_from([None, "1.0", "1.00", "NaN"]),
    st.sampled_from([None, '{"a" : 1}']),
)
keyed_states = st.dictionaries(keys, rest, max_size=6).map(lambda d: Counter((k, *v) for k, v in d.items()))
bag_states = st.lists(st.tuples(keys, rest).map(lambda t: (t[0], *t[1])), max_size=8).map(Counter)


@pytest.mark.parametrize("server", [None, PG14], ids=["merge", "without_merge"])
@pytest.mark.parametrize("key", [(0,), None], ids=["keyed", "keyless"])
def test_any_states_in_any_batches(
    db: Connection, database: str, key: tuple[int, ...] | None, server: int | None
) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        states=st.lists(bag_states if key is None else keyed_states, min_size=1, max_size=4),
        size=st.sampled_from([1, 2, 100]),
        visibility=st.sampled_from(["transactional", "progressive"]),
        wholesale=st.lists(st.booleans(), min_size=4, max_size=4),
        driver_rows=st.sampled_from([1, 100]),
    )
    def check(states: list[Bag], size: int, visibility: str, wholesale: list[bool], driver_rows: int) -> None:
        db.execute("SELECT pgtrickle.drop_stream_table('st') WHERE to_regclass('st') IS NOT NULL")
        table = make(db, "st", COLUMNS, key, visibility=visibility)
        to = sink(database, size, server, driver_rows=driver_rows)
        before: Bag = Counter()
        for number, (after, at_once) in enumerate(zip(states, wholesale, strict=False)):
            lsn_range = number * 10, number * 10 + 10
            if at_once and number:
                full_result = contents(zset(table, after), *lsn_range)
                made = to.replace(table, full_result, NOW, executed("test"), acknowledged=Lsn(0))
                expected = bag_of(delta(table, before, after, lsn_range).rows)
                assert bag_of(made.rows) == expected
                assert isinstance(made, StagedDelta) is (expected.total() > driver_rows)
                # Held in the outbox for a sink that has none of it yet.
                kept = [d for d in committed(database).pending_deltas(table, Lsn(0)) if d.lsn_range == made.lsn_range]
                assert sum((bag_of(d.rows) for d in kept), Counter()) == expected
                made.lease().close()
            else:
                to.apply(table, delta(table, before, after, lsn_range), NOW, executed("test"))
            assert held(db, table) == after
            before = after
        frontier = db.execute("SELECT frontier::text FROM pgtrickle.pgt_frontiers").fetchall()
        assert frontier == [(str(Lsn(len(states) * 10)),)]

    check()


def contents(rows: pa.Table | sql.Identifier, old: int, new: int) -> FullResult:
    return FullResult(LsnRange(Lsn(old), Lsn(new)), rows)


def bag_of(rows: object) -> Counter[str]:
    return Counter(str(row) for row in zip(*[c.to_pylist() for c in rows.columns], strict=True))  # type: ignore[attr-defined]


CASE_INSENSITIVE = b"""
CREATE TYPE ci;
CREATE FUNCTION ci_in(cstring) RETURNS ci LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION ci_out(ci) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE ci (INPUT = ci_in, OUTPUT = ci_out, LIKE = text, CATEGORY = 'S');
CREATE CAST (ci AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE FUNCTION ci_cmp(ci, ci) RETURNS int LANGUAGE sql IMMUTABLE STRICT
    AS 'SELECT pg_catalog.bttextcmp(pg_catalog.lower($1::text), pg_catalog.lower($2::text))';
CREATE FUNCTION ci_lt(ci, ci) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT public.ci_cmp($1, $2) < 0';
CREATE FUNCTION ci_le(ci, ci) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT public.ci_cmp($1, $2) <= 0';
CREATE FUNCTION ci_eq(ci, ci) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT public.ci_cmp($1, $2) = 0';
CREATE FUNCTION ci_ge(ci, ci) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT public.ci_cmp($1, $2) >= 0';
CREATE FUNCTION ci_gt(ci, ci) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS 'SELECT public.ci_cmp($1, $2) > 0';
CREATE OPERATOR < (LEFTARG = ci, RIGHTARG = ci, FUNCTION = ci_lt);
CREATE OPERATOR <= (LEFTARG = ci, RIGHTARG = ci, FUNCTION = ci_le);
CREATE OPERATOR = (LEFTARG = ci, RIGHTARG = ci, FUNCTION = ci_eq, MERGES);
CREATE OPERATOR >= (LEFTARG = ci, RIGHTARG = ci, FUNCTION = ci_ge);
CREATE OPERATOR > (LEFTARG = ci, RIGHTARG = ci, FUNCTION = ci_gt);
CREATE OPERATOR CLASS ci_ops DEFAULT FOR TYPE ci USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
    OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 ci_cmp(ci, ci);
"""
"""A type of texts that are compared without their case, as the type of an extension would be."""


@pytest.mark.parametrize("server", [None, PG14], ids=["merge", "without_merge"])
def test_keys_that_are_equal_and_look_different(db: Connection, database: str, server: int | None) -> None:
    """1.0 becomes 1.00, -0 becomes 0 and a text changes its case: the row is found by its key, and replaced."""
    db.execute(CASE_INSENSITIVE)
    states: list[Bag] = [
        Counter({("1.0", 0.5, "a", 1): 1, ("2", 0.5, "b", 1): 1, (None, 0.5, "c", 1): 1, ("3", -0.0, "d", 1): 1}),
        Counter({("1.00", 0.5, "A", 1): 1, ("2.0", 0.5, "b", 2): 1, (None, 0.5, "C", 1): 1, ("3", 0.0, "d", 1): 1}),
        Counter({("1", 0.5, "a", 7): 1, ("4.0", 0.5, "b", 2): 1, (None, 0.5, "C", 5): 1}),
        Counter({("4.00", 0.5, "B", 2): 1, ("2", 0.5, "b", 1): 1}),
    ]
    for size in (100, 1):
        table = make(db, f"st{size}", {"n": "numeric", "f": "float8", "t": "ci", "v": "int"}, (0, 1, 2))
        db.execute(f"CREATE UNIQUE INDEX ON st{size} (n, f, t)".encode())
        to, before = sink(database, size, server), Bag()
        for number, after in enumerate(states):
            weights = [(row, 1) for row in after] + [(row, -1) for row in before]
            rows = net(pa.concat_tables([zset(table, Counter({row: n})) for row, n in weights]))
            lsn_range = LsnRange(Lsn(number * 10), Lsn(number * 10 + 10))
            to.apply(table, MemoryDelta(lsn_range, rows), NOW, executed("test"))
            assert sorted(map(repr, held(db, table))) == sorted(map(repr, after))
            before = after
    with pytest.raises(TargetDiverged):
        gone = zset(table, Counter({("9", 0.5, "a", 1): -1}))
        to.apply(table, MemoryDelta(LsnRange(Lsn(40), Lsn(50)), gone), NOW, executed("test"))


@pytest.mark.parametrize("driver_rows", [1, 100], ids=["staged", "on the driver"])
@pytest.mark.parametrize("key", [(0, 1), None], ids=["keyed", "keyless"])
def test_a_full_result_replaces_a_zero_of_the_other_sign(
    db: Connection, database: str, key: tuple[int, ...] | None, driver_rows: int
) -> None:
    table = make(db, "st", {"f": "float8", "g": "float4", "v": "int"}, key)
    to = sink(database, driver_rows=driver_rows)
    to.apply(
        table, delta(table, Counter(), Counter({(-0.0, -0.0, 1): 1, (1.5, -0.0, 2): 1}), (0, 10)), NOW, executed("a")
    )
    db.execute("CREATE TABLE whole AS VALUES ('0'::float8, '-0'::float4, 1), ('1.5', '0', 2)")
    db.execute("ALTER TABLE whole RENAME column1 TO f; ALTER TABLE whole RENAME column2 TO g")
    db.execute("ALTER TABLE whole RENAME column3 TO v")
    full_result = contents(sql.Identifier("whole"), 10, 20)
    with to.replace(table, full_result, NOW, executed("full"), acknowledged=Lsn(10)).lease() as made:
        assert bag_of(made.rows) == Counter(
            ["(-0.0, -0.0, 1, -1)", "(0.0, -0.0, 1, 1)", "(1.5, -0.0, 2, -1)", "(1.5, 0.0, 2, 1)"]
        )
    assert sorted(map(repr, held(db, table))) == ["(0.0, -0.0, 1)", "(1.5, 0.0, 2)"]


def test_contents_may_be_a_table(db: Connection, database: str) -> None:
    table = make(db, "st", COLUMNS, (0,))
    before: Bag = Counter({(1, "old", None, "1.0", None): 1, (2, "same", 0.5, None, '{"a" : 1}'): 1})
    to = sink(database)
    to.apply(table, delta(table, Counter(), before, (0, 10)), NOW, executed("fill"))
    db.execute("CREATE TABLE whole AS TABLE st WITH NO DATA")
    db.execute("""INSERT INTO whole VALUES (1, 'new', NULL, 1.00, NULL), (2, 'same', 0.5, NULL, '{"a" : 1}')""")
    made = to.replace(table, contents(sql.Identifier("whole"), 10, 20), NOW, executed("full"), acknowledged=Lsn(10))
    assert bag_of(made.rows) == Counter(["(1, 'new', None, '1.00', None, 1)", "(1, 'old', None, '1.0', None, -1)"])
    assert [bag_of(d.rows) for d in committed(database).pending_deltas(table, Lsn(10))] == [bag_of(made.rows)]
    assert committed(database).pending_deltas(table, Lsn(20)) == []
    history = db.execute(
        "SELECT refresh_reason, rows_inserted, rows_deleted FROM pgtrickle.pgt_refresh_history ORDER BY 1"
    )
    assert history.fetchall() == [("fill", 2, 0), ("full", 1, 1)]


def test_a_progressive_write_is_seen_before_it_ends_and_repaired_after_a_crash(db: Connection, database: str) -> None:
    table = make(db, "st", COLUMNS, None, visibility="progressive")
    first: Bag = Counter({(i, "x", None, None, None): 2 for i in range(10)})
    second: Bag = Counter({(i, "y", None, None, None): 1 for i in range(5, 20)})
    sink(database, 4).apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    # A constraint that only the last batch violates simulates the crash: the batches before it are committed.
    db.execute("ALTER TABLE st ADD CHECK (a <> 19)")
    with pytest.raises(TargetError, match="check violation"):
        sink(database, 4).apply(table, delta(table, first, second, (10, 20)), NOW, executed("changes"))
    assert held(db, table) not in (first, second)
    assert db.execute("SELECT partial_until::text FROM pgtrickle.pgt_stream_tables").fetchone() == ("0/14",)
    db.execute("ALTER TABLE st DROP CONSTRAINT st_a_check")
    mending = delta(table, first, second, (10, 30))
    to = sink(database, 4)
    to.replace(table, FullResult(mending.lsn_range, zset(table, second), mending), NOW, executed("repair"))
    assert held(db, table) == second
    assert db.execute("SELECT partial_until FROM pgtrickle.pgt_stream_tables").fetchone() == (None,)


def test_deletions_come_before_insertions_across_batches(db: Connection, database: str) -> None:
    table = make(db, "st", {"a": "int", "b": "text"}, (0,))
    to = sink(database, 1)
    first: Bag = Counter({(i, f"name {i}"): 1 for i in range(6)})
    to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    db.execute("CREATE UNIQUE INDEX ON st (b)")
    # Each name moves to a new key; the row that had it is deleted.
    second: Bag = Counter({(i + 100, f"name {i}"): 1 for i in range(6)})
    to.apply(table, delta(table, first, second, (10, 20)), NOW, executed("changes"))
    assert held(db, table) == second


@pytest.mark.parametrize(
    ("key", "change", "bad", "expected"),
    [
        ((0,), "ALTER TABLE st ADD CONSTRAINT small CHECK (b < 100)", (17, 100), "a = 17.*check violation.*small"),
        ((0,), "CREATE UNIQUE INDEX once ON st (b)", (18, 3), "a = 18.*unique violation.*once"),
        ((0,), "ALTER TABLE st ALTER b SET NOT NULL", (19, None), "a = 19.*not null violation"),
        (
            (0,),
            "ALTER TABLE st ALTER b TYPE smallint",
            (20, 70_000),
            "a = 20.*numeric value out of range: value … is out of range for type smallint",
        ),
        (None, "ALTER TABLE st ADD CONSTRAINT small CHECK (b < 100)", (21, 100), "digest [0-9a-f]{16} .*check"),
        ((0,), "ALTER TABLE st RENAME TO gone", (22, 1), "its table does not exist"),
    ],
)
def test_a_refused_row_is_named_by_its_key(
    db: Connection, database: str, key: tuple[int, ...] | None, change: str, bad: tuple[int, int | None], expected: str
) -> None:
    table = make(db, "st", {"a": "int", "b": "int"}, key)
    to = sink(database, 4)
    first: Bag = Counter({(i, i): 1 for i in range(10)})
    to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    db.execute(change.encode())
    second = first + Counter({(i, i): 1 for i in range(30, 50)}) + Counter({bad: 1})
    with pytest.raises(TargetError, match=expected) as refusal:
        to.apply(table, delta(table, first, second, (10, 20)), NOW, executed("changes"))
    assert str(bad[1]) not in refusal.value.problem.replace(f"a = {bad[0]}", "")
    assert db.execute("SELECT frontier::text FROM pgtrickle.pgt_frontiers").fetchone() == ("0/A",)


def test_the_lock_of_another_session_is_waited_for_up_to_a_limit(db: Connection, database: str) -> None:
    table = make(db, "st", {"a": "int"}, (0,))
    with db.transaction():
        db.execute("LOCK TABLE st")
        with pytest.raises(TargetError, match="held a lock"):
            sink(database, lock_timeout_ms=50).apply(
                table, delta(table, Counter(), Counter({(1,): 1}), (0, 10)), NOW, executed("fill")
            )


def test_a_session_whose_own_tables_are_gone_is_given_up(db: Connection, database: str) -> None:
    table = make(db, "st", {"a": "int"}, (0,))
    to = sink(database)
    first, second = (Counter({(i,): 1 for i in range(some)}) for some in (2, 4))
    to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    to.apply(table, delta(table, first, second, (10, 20)), NOW, executed("changes"))
    # As a script that drops every table of a database, including the temporary tables of other sessions.
    temporary = db.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE tablename ~ '^pgt_delta'"
    )
    for (name,) in temporary.fetchall():
        db.execute(f"DROP TABLE {name}".encode())
    with pytest.raises(TargetError, match=r"internal error: could not open relation with OID"):
        to.apply(table, delta(table, second, first, (20, 30)), NOW, executed("changes"))
    to.apply(table, delta(table, second, first, (20, 30)), NOW, executed("changes"))
    assert held(db, table) == first


def test_several_stream_tables_in_one_transaction(db: Connection, database: str) -> None:
    one, other = (make(db, name, {"a": "int", "b": "int"}, (0,)) for name in ("one", "other"))
    to = sink(database)
    states: list[Bag] = [Counter({(i, i): 1 for i in range(some)}) for some in (2, 4, 6)]
    for table in (one, other):
        to.apply(table, delta(table, Counter(), states[0], (0, 10)), NOW, executed("fill"))

    def both(old: int, new: int) -> None:
        """Apply the delta from one content to the next to both."""
        with to.session.group_commit():
            for table in (one, other):
                change = delta(table, states[old], states[new], (10 * old + 10, 10 * new + 10))
                to.apply(table, change, NOW, executed("changes"))
                assert held(db, one) == states[old], "seen before the others"

    def by_name(old: int, new: int, reason: str) -> None:
        with pytest.raises(GroupCommitRefused, match=reason):
            both(old, new)
        assert [held(db, table) for table in (one, other)] == [states[old]] * 2

    # A lock on one of them would delay all; a deferred constraint that fails at the commit blames none of them.
    with db.transaction():
        db.execute("LOCK TABLE other")
        by_name(0, 1, "held a lock")
    db.execute("ALTER TABLE other ADD CONSTRAINT late UNIQUE (b) DEFERRABLE INITIALLY DEFERRED")
    states[1] += Counter({(9, 1): 1})
    by_name(0, 1, "late")
    db.execute("ALTER TABLE other DROP CONSTRAINT late")
    both(0, 1)
    assert [held(db, table) for table in (one, other)] == [states[1]] * 2
    # A refused row affects only its own stream table.
    db.execute("ALTER TABLE other ADD CHECK (a <> 5)")
    with to.session.group_commit():
        to.apply(one, delta(one, states[1], states[2], (20, 30)), NOW, executed("changes"))
        with pytest.raises(TargetError, match=r"a = 5 .*check violation"):
            to.apply(other, delta(other, states[1], states[2], (20, 30)), NOW, executed("changes"))
        to.advance([other.id], LsnRange(Lsn(20), Lsn(30)), NOW)
    assert [held(db, table) for table in (one, other)] == [states[2], states[1]]
    assert db.execute("SELECT DISTINCT frontier::text FROM pgtrickle.pgt_frontiers").fetchall() == [("0/1E",)]


def test_rows_that_did_not_change_are_not_written(db: Connection, database: str) -> None:
    table = make(db, "st", {"a": "int", "b": "int"}, (0,))
    to = sink(database)
    first: Bag = Counter({(i, i): 1 for i in range(10)})
    to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
    places = db.execute("SELECT a, ctid::text, xmin::text FROM st WHERE a <> 3 ORDER BY a").fetchall()
    second = first - Counter({(3, 3): 1}) + Counter({(3, 4): 1})
    to.replace(table, contents(zset(table, second), 10, 20), NOW, executed("full"))
    assert db.execute("SELECT a, ctid::text, xmin::text FROM st WHERE a <> 3 ORDER BY a").fetchall() == places


def test_foreign_writes_to_a_table_are_noticed(db: Connection, database: str) -> None:
    for server, key in ((None, (0,)), (PG14, (0,)), (None, None)):
        table = make(db, "st", {"a": "int"}, key)
        to = sink(database, server=server)
        first: Bag = Counter({(1,): 1, (2,): 1})
        to.apply(table, delta(table, Counter(), first, (0, 10)), NOW, executed("fill"))
        db.execute("SET pg_trickle.applier = 'on'; DELETE FROM st WHERE a = 1; RESET pg_trickle.applier")
        with pytest.raises(TargetDiverged, match="1 expected, 0 found"):
            to.apply(table, delta(table, first, Counter({(2,): 1}), (10, 20)), NOW, executed("changes"))
        db.execute("SELECT pgtrickle.drop_stream_table('st')")
