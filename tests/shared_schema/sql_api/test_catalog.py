"""The SQL functions by SQL alone, as a psql user calls them, without running binaries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources

import psycopg
import pytest
from psycopg import errors

from applier.catalog.install import install_catalog
from tests.fixtures.choice import postgres_major

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount numeric(10,2), note varchar(20))")
        yield connection


def rows(db: Connection, query: str) -> list[tuple[object, ...]]:
    return db.execute(query.encode()).fetchall()


def create(db: Connection, name: str, query: str, **more: str) -> None:
    options = "".join(f", {k} => '{v}'" for k, v in more.items())
    db.execute(f"SELECT pgtrickle.create_stream_table(%s, %s{options})".encode(), (name, query))


def test_installing_twice_changes_nothing(db: Connection) -> None:
    assert install_catalog(db) == []


def test_every_refusal_says_what_to_do() -> None:
    """Except what a function raises to roll back its own trial."""
    without: list[str] = []
    for file in resources.files("shared_schema.sql_api").joinpath("api").iterdir():
        raised = re.findall(r"RAISE EXCEPTION.*?;\n", file.read_text(), re.DOTALL)
        without += [f"{file.name}: {one}" for one in raised if "HINT" not in one and "'PGT00'" not in one]
    assert without == []


def test_the_table_has_exactly_the_types_of_the_query(db: Connection) -> None:
    create(db, "big", "SELECT id, amount, note, amount * 2 AS twice FROM orders WHERE amount > 10")
    types = rows(
        db,
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'big'::regclass AND attnum > 0 ORDER BY attnum",
    )
    assert types == [
        ("id", "integer"),
        ("amount", "numeric(10,2)"),
        ("note", "character varying(20)"),
        ("twice", "numeric"),
    ]


def test_the_stored_query_means_the_same_under_any_search_path(db: Connection) -> None:
    db.execute("CREATE SCHEMA other; CREATE TABLE other.orders (id int); SET search_path = other, public")
    create(db, "seen", "SELECT id FROM orders")
    stored = rows(db, "SELECT pgt_schema, defining_query FROM pgtrickle.pgt_stream_tables")
    assert stored[0][0] == "other"
    assert "FROM other.orders" in str(stored[0][1])


def test_sources_are_recorded_published_and_complete_in_the_log(db: Connection) -> None:
    db.execute("CREATE VIEW cheap AS SELECT * FROM orders WHERE amount < 5")
    create(db, "st", "SELECT id FROM cheap")
    assert rows(db, "SELECT source_schema, source_name FROM pgtrickle.pgt_dependencies") == [("public", "orders")]
    assert rows(db, "SELECT tablename FROM pg_publication_tables WHERE pubname = 'pg_trickle'") == [("orders",)]
    assert rows(db, "SELECT relreplident FROM pg_class WHERE relname = 'orders'") == [("f",)]


def test_partitions_are_published_by_themselves(db: Connection) -> None:
    db.execute(
        "CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at);"
        "CREATE TABLE parted_a PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');"
        "CREATE TABLE parted_b PARTITION OF parted FOR VALUES FROM ('2021-01-01') TO ('2022-01-01')"
    )
    create(db, "st", "SELECT id FROM parted")
    published = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'pg_trickle' ORDER BY 1"
    assert rows(db, published) == [("parted_a",), ("parted_b",)]
    assert rows(db, "SELECT DISTINCT relreplident FROM pg_class WHERE relname IN ('parted_a', 'parted_b')") == [("f",)]


def test_a_rolled_back_creation_leaves_nothing(db: Connection) -> None:
    with db.transaction(force_rollback=True):
        create(db, "st", "SELECT id FROM orders")
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    assert rows(db, "SELECT to_regclass('st')") == [(None,)]
    assert rows(db, "SELECT relreplident FROM pg_class WHERE relname = 'orders'") == [("d",)]


@pytest.mark.parametrize(
    ("setup", "query", "message"),
    [
        ("", "SELECT nope FROM orders", 'column "nope" does not exist'),
        ("", "SELECT FROM WHERE", "syntax error"),
        ("", "SELECT id, id FROM orders", 'column "id" specified more than once'),
        ("CREATE UNLOGGED TABLE u (id int)", "SELECT id FROM u", "temporary or unlogged"),
        ("CREATE MATERIALIZED VIEW m AS SELECT id FROM orders", "SELECT id FROM m", "neither a table nor a view"),
        ("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "SELECT id FROM orders", "row-level security"),
        ("CREATE TABLE kid () INHERITS (orders)", "SELECT id FROM orders", "inheritance children"),
        ("", "SELECT relname FROM pg_class", "system table"),
        pytest.param(
            "ALTER TABLE orders ADD COLUMN late int GENERATED ALWAYS AS (id + 1) VIRTUAL",
            "SELECT id FROM orders",
            "virtual generated columns",
            marks=pytest.mark.skipif(postgres_major() < 18, reason="there are none before 18"),
        ),
    ],
)
def test_what_cannot_be_a_stream_table_is_refused(db: Connection, setup: str, query: str, message: str) -> None:
    if setup:
        db.execute(setup.encode())
    with pytest.raises(psycopg.Error, match=message):
        create(db, "st", query)
    assert rows(db, "SELECT to_regclass('st')") == [(None,)]


@pytest.mark.parametrize("schedule", ["", "soon", "1 s", "-1s", "1s; DROP TABLE orders"])
def test_a_schedule_that_is_none_is_refused(db: Connection, schedule: str) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        create(db, "st", "SELECT id FROM orders", schedule=schedule)


@pytest.mark.parametrize("name", ['we"ird', "UPPER", "sp ace", "semi;colon", "ünï", "it's", "per%cent", "x" * 63])
def test_hostile_names_are_only_names(db: Connection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    create(db, quoted, "SELECT id FROM orders")
    assert rows(db, "SELECT pgt_name FROM pgtrickle.pgt_stream_tables") == [(name,)]
    db.execute("SELECT pgtrickle.drop_stream_table(%s)", (quoted,))
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_waiting_says_who_is_missing(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders")
    with pytest.raises(errors.QueryCanceled, match="did not reach") as caught:
        db.execute("SELECT pgtrickle.wait_for('st', timeout => '100 ms')")
    assert "pg-trickle-applier" in str(caught.value.diag.message_hint)


def test_waiting_inside_a_frozen_snapshot_is_refused(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders")
    with pytest.raises(errors.FeatureNotSupported), db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT pgtrickle.wait_for('st')")


def test_unknown_stream_table(db: Connection) -> None:
    with pytest.raises(errors.UndefinedTable, match="no stream table nothing"):
        db.execute("SELECT pgtrickle.wait_for('nothing')")


def test_status_lists_what_is_there(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders", schedule="5m")
    status = rows(db, "SELECT name, status, refresh_mode, is_populated, schedule FROM pgtrickle.pgt_status()")
    assert status == [("public.st", "INITIALIZING", "AUTO", False, "5m")]


def test_a_stream_table_is_made_once_and_its_options_are_changed(db: Connection) -> None:
    query = "SELECT id FROM orders"
    make = "SELECT pgtrickle.create_stream_table_if_not_exists('st', %s, schedule => %s)"
    assert db.execute(make, (query, "1s")).fetchone() == (True,)
    assert db.execute(make, ("SELECT nonsense", "2s")).fetchone() == (False,)
    replace = "SELECT pgtrickle.create_or_replace_stream_table('st', %s, schedule => %s)"
    assert db.execute(replace, ("SELECT  id  FROM public.orders", "1s")).fetchone() == ("no-op",)
    assert db.execute(replace, (query, "5m")).fetchone() == ("config",)
    assert rows(db, "SELECT schedule FROM pgtrickle.pgt_stream_tables") == [("5m",)]
    assert db.execute(replace.replace("'st'", "'other'"), (query, "1s")).fetchone() == ("created",)
    db.execute("SELECT pgtrickle.alter_stream_table('st', schedule => '30s', refresh_mode => 'DIFFERENTIAL')")
    assert rows(db, "SELECT schedule, refresh_mode FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'") == [
        ("30s", "DIFFERENTIAL")
    ]
    with pytest.raises(errors.InvalidParameterValue):
        db.execute("SELECT pgtrickle.alter_stream_table('st', schedule => 'whenever')")


def test_many_are_made_together_or_not_at_all(db: Connection) -> None:
    both = '[{"name": "a", "query": "SELECT id FROM orders"}, {"name": "b", "query": "TABLE a", "schedule": "1m"}]'
    made = db.execute("SELECT pgtrickle.bulk_create(%s)", (both,)).fetchone()
    assert made == ([{"name": "a", "status": "created"}, {"name": "b", "status": "created"}],)
    bad = '[{"name": "c", "query": "SELECT id FROM orders"}, {"name": "d", "query": "SELECT nope"}]'
    with pytest.raises(errors.UndefinedColumn):
        db.execute("SELECT pgtrickle.bulk_create(%s)", (bad,))
    assert rows(db, "SELECT to_regclass('c')") == [(None,)]


STATE = (
    {"pgt_id", "pgt_relid", "created_at", "analysed_at", "status", "partial_until", "replaces", "canary_of"}
    | {"pace_version"}
    | {"sinks_differ_since"}
    | {f"fuse_{of}" for of in ("passes_until", "skips_until", "skipped_at", "skipped_changes")}
    | {f"fuse_blown_{of}" for of in ("at", "until", "changes", "limit", "detail")}
    | {f"last_error_{of}" for of in ("at", "code", "message", "hint")}
    # The exported query is the stored one, with qualified names: the original text is not needed.
    | {"original_query", "search_path"}
)
"""Columns of pgt_stream_tables that are not part of a definition. Every other one must survive an export."""


def defined(db: Connection, name: str) -> dict[str, object]:
    """Return everything that defines a stream table: the catalog's columns, and who may write to it."""
    (found,) = rows(
        db,
        "SELECT to_jsonb(s) || jsonb_build_object('may_write', (SELECT tgenabled FROM pg_trigger"
        " WHERE tgrelid = s.pgt_relid AND tgname = 'pgt_refuse_dml'), 'published', (SELECT array_agg(p.pubname)"
        " FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = s.pgt_relid))"
        f" FROM pgtrickle.pgt_stream_tables s WHERE pgt_name = '{name}'",
    )
    assert isinstance(found[0], dict)
    return {column: value for column, value in found[0].items() if column not in STATE}


def test_a_definition_goes_out_and_comes_back_with_every_option(db: Connection) -> None:
    db.execute("CREATE FUNCTION twice(numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'")
    create(db, "plain", "SELECT id FROM orders")
    # The name is in use, so the publication of the stream table below is named after its number.
    db.execute("CREATE PUBLICATION pgt_pub_dressed")
    create(
        db,
        "dressed",
        "SELECT id, twice(amount) AS t, note <> 'it''s' AS n FROM orders",
        schedule="1h30m",
        refresh_mode="DIFFERENTIAL",
        append_only="true",
        full_policy="error",
        auto_threshold="0.30000000000000004",
        auto_evolve="true",
        sla="1m",
        fuse="auto",
        fuse_ceiling="0.30000000000000004",
        fuse_sensitivity="3.5",
    )
    db.execute("SELECT pgtrickle.alter_stream_table('dressed', tier => 'warm')")
    db.execute("SELECT pgtrickle.set_visibility('dressed', 'progressive'), pgtrickle.allow_direct_dml('dressed')")
    db.execute("SELECT pgtrickle.stream_table_to_publication('dressed')")
    before, plain = defined(db, "dressed"), defined(db, "plain")
    undressed = [column for column, value in plain.items() if before[column] == value and column != "pgt_schema"]
    assert undressed == [], "an option that is new must be given here, and be exported"
    spec = rows(db, "SELECT pgtrickle.stream_table_spec('dressed')")[0][0]
    db.execute("SET extra_float_digits = 0")
    definition = str(rows(db, "SELECT pgtrickle.export_definition('dressed')")[0][0])
    # It has the same meaning wherever it is run.
    db.execute("RESET extra_float_digits; CREATE SCHEMA other; CREATE TABLE other.orders (id int)")
    db.execute("SET search_path = other")

    def from_json() -> None:
        db.execute("SELECT pgtrickle.bulk_create(jsonb_build_array(%s::jsonb))", (json.dumps(spec),))

    for make in (lambda: db.execute(definition.encode()), from_json):
        db.execute("SELECT pgtrickle.drop_stream_table('public.dressed')")
        make()
        assert defined(db, "dressed") == before
        assert rows(db, "SELECT pgtrickle.stream_table_spec('public.dressed')")[0][0] == spec
    db.execute("SELECT pgtrickle.drop_stream_table('public.plain')")
    short = '[{"name": "public.plain", "query": "SELECT id FROM public.orders"}]'
    db.execute("SELECT pgtrickle.bulk_create(%s)", (short,))
    assert defined(db, "plain") == plain


def test_what_a_definition_says_is_known_or_refused(db: Connection) -> None:
    for wrong in ('"full_polciy": "error"', '"full_policy": "never"', '"visibility": "now"', '"append_only": "maybe"'):
        definition = f'[{{"name": "st", "query": "SELECT id FROM orders", {wrong}}}]'
        with pytest.raises((errors.InvalidParameterValue, errors.InvalidTextRepresentation)):
            db.execute("SELECT pgtrickle.bulk_create(%s)", (definition,))
    assert rows(db, "SELECT to_regclass('st')") == [(None,)]
    create(db, "st", "SELECT id FROM orders")
    db.execute("CREATE PUBLICATION theirs")
    with pytest.raises(errors.DuplicateObject):
        db.execute("SELECT pgtrickle.stream_table_to_publication('st', 'theirs')")
    assert rows(db, "SELECT pgtrickle.stream_table_to_publication('st', 'ours')") == [("ours",)]
    assert rows(db, "SELECT pgtrickle.stream_table_to_publication('st')") == [("ours",)]
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        db.execute("SELECT pgtrickle.stream_table_to_publication('st', 'another')")


def test_the_graph_of_stream_tables(db: Connection) -> None:
    for name, query in {
        "bottom": "SELECT id, amount FROM orders",
        "left_side": "SELECT id FROM bottom WHERE amount > 1",
        "right_side": "SELECT id FROM bottom WHERE amount < 9",
        "top": "SELECT l.id FROM left_side l JOIN right_side r ON r.id = l.id",
    }.items():
        create(db, name, query)
    assert rows(db, "SELECT * FROM pgtrickle.list_sources('top')") == [
        ("public.left_side", "STREAM_TABLE"),
        ("public.right_side", "STREAM_TABLE"),
    ]
    tree = rows(db, "SELECT tree_line, node_type, depth FROM pgtrickle.dependency_tree()")
    assert tree[0] == ("public.orders", "TABLE", 0)
    assert ("  public.bottom", "STREAM_TABLE", 1) in tree
    assert ("      public.top", "STREAM_TABLE", 3) in tree
    assert rows(db, "SELECT diamond_top, members FROM pgtrickle.diamond_groups()") == [
        ("public.top", ["public.bottom", "public.left_side", "public.right_side", "public.top"])
    ]
    drawn = str(rows(db, "SELECT pgtrickle.explain_dag()")[0][0])
    assert drawn.startswith("graph TD") and '"public.bottom"' in drawn and drawn.count("-->") == 5
    spec = rows(db, "SELECT pgtrickle.stream_table_spec('top')")[0][0]
    assert isinstance(spec, dict) and spec["name"] == "public.top" and spec["refresh_mode"] == "AUTO"
    definition = str(rows(db, "SELECT pgtrickle.export_definition('top')")[0][0])
    db.execute("SELECT pgtrickle.drop_stream_table('top')")
    db.execute(definition.encode())
    assert rows(db, "SELECT pgtrickle.stream_table_spec('top')")[0][0] == spec


def test_health_check_reports_problems(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders")
    found = {name: severity for name, severity in rows(db, "SELECT check_name, severity FROM pgtrickle.health_check()")}
    assert found["applier_running"] == "ERROR"
    assert found["slot_lag"] == "ERROR"
    assert found["error_tables"] == "OK"
    db.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', last_error_message = 'why'")
    found = {name: severity for name, severity in rows(db, "SELECT check_name, severity FROM pgtrickle.health_check()")}
    assert found["error_tables"] == "ERROR"
    assert rows(db, "SELECT source, replica_identity, blocked_reason FROM pgtrickle.wal_source_status()") == [
        ("public.orders", "full", "there is no replication slot pg_trickle: is pg-trickle-cdc running?")
    ]
    assert rows(db, "SELECT pgtrickle.get_staleness('st')") == [(None,)]


def test_a_missing_applier_is_reported_at_once(db: Connection) -> None:
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no applier runs") as caught:
        db.execute("SELECT * FROM pgtrickle.validate_query('SELECT id FROM orders')")
    assert "pg-trickle-applier" in str(caught.value.diag.message_hint)
    with pytest.raises(errors.UndefinedColumn):
        db.execute("SELECT * FROM pgtrickle.validate_query('SELECT nope FROM orders')")
    with pytest.raises(errors.FeatureNotSupported), db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT * FROM pgtrickle.validate_query('SELECT id FROM orders')")


def test_what_is_known_without_the_programs(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders")
    assert rows(db, "SELECT program, running, max_workers, waiting FROM pgtrickle.worker_pool_status()") == [
        ("pg-trickle-applier", False, 4, 1),
        ("pg-trickle-cdc", False, 4, None),
    ]
    assert rows(db, "SELECT source, cdc_mode, buffer_rows FROM pgtrickle.change_buffer_sizes()") == [
        ("public.orders", "LOG", None)
    ]
    assert rows(db, "SELECT * FROM pgtrickle.explain_refresh_mode('st')") == [("AUTO", None, None)]
    assert rows(db, "SELECT * FROM pgtrickle.stream_table_lineage('st')") == []
    with pytest.raises(errors.InvalidParameterValue, match="xml"):
        rows(db, "SELECT pgtrickle.explain_stream_table('st', 'xml')")


def test_costs_are_reported_in_rows_and_milliseconds(db: Connection) -> None:
    create(db, "st", "SELECT id FROM orders")
    db.execute(
        'INSERT INTO pgtrickle.pgt_plans SELECT pgt_id, \'{"text": "the plan\\n"}\' FROM pgtrickle.pgt_stream_tables'
    )
    history = (
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, refresh_reason,"
        " rows_inserted, rows_deleted, tick_watermark_lsn, status, rows_in, compute_ms, write_ms) SELECT pgt_id, now(),"
        " now() + %s * interval '1 ms', %s, %s, %s, 1, '0/1', 'COMPLETED', %s, %s, 2.04"
        " FROM pgtrickle.pgt_stream_tables"
    )
    db.execute(history, (30, "FULL", "INITIAL", 5, None, None))
    explained = str(rows(db, "SELECT pgtrickle.explain_stream_table('st')")[0][0])
    assert "recomputed in full when more than 15 % of the sources' rows changed, full_policy allow\n" in explained
    assert "last refresh: FULL (INITIAL), 5 rows inserted, 1 deleted in 30.0 ms\n" in explained
    assert "last 1 refreshes: 30.0 ms on average, 95 % within 30.0 ms; each 6.0 rows written\n" in explained
    db.execute(history, (10, "DIFFERENTIAL", "SCHEDULED", 2, 4, 7))
    explained = str(rows(db, "SELECT pgtrickle.explain_stream_table('st')")[0][0])
    assert (
        explained.startswith("public.st, INITIALIZING, refresh mode AUTO, schedule ") and "\n\nthe plan\n" in explained
    )
    last = "last refresh: DIFFERENTIAL (SCHEDULED), 4 change rows read, 2 rows inserted, 1 deleted in 10.0 ms"
    assert f"{last}: 7.0 ms to compute, 2.0 ms to write\n" in explained
    assert (
        "last 2 refreshes: 20.0 ms on average, 95 % within 29.0 ms; each 4.0 change rows read and 4.5 rows" in explained
    )


def test_a_rolled_back_alteration_leaves_nothing(db: Connection) -> None:
    create(db, "st", "SELECT id, amount FROM orders")
    for query, kind in (
        ("SELECT id, amount FROM orders WHERE id > 1", "compatible"),
        ("SELECT id FROM orders", "rebuild"),
    ):
        with db.transaction(force_rollback=True):
            assert db.execute("SELECT pgtrickle.alter_stream_table('st', query => %s)", (query,)).fetchone() == (kind,)
            assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(2 if kind == "rebuild" else 1,)]
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_alterations") == [(0,)]
    assert rows(db, "SELECT relname FROM pg_class WHERE relname LIKE 'pgt\\_new%'") == []
    db.execute("SELECT pgtrickle.alter_stream_table('st', query => 'SELECT id FROM orders')")
    with pytest.raises(errors.ObjectInUse):
        db.execute("SELECT pgtrickle.alter_stream_table((SELECT pgt_name FROM pgtrickle.pgt_stream_tables"
                   " WHERE replaces IS NOT NULL), schedule => '5s')")  # fmt: skip
    db.execute("SELECT pgtrickle.drop_stream_table('st')")
    assert rows(db, "SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_who_copies_a_source_is_seen(db: Connection, database: str) -> None:
    db.execute("CREATE TABLE parted (id int) PARTITION BY HASH (id)")
    db.execute("CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    create(db, "st", "SELECT id FROM orders")
    create(db, "st2", "SELECT s.id FROM st s JOIN parted p ON p.id = s.id")
    shown = "SELECT source, state, copying_connections, waiting FROM pgtrickle.capture_status()"
    assert rows(db, shown) == [
        ("public.orders", "waiting", 0, ["public.st", "public.st2"]),
        ("public.parted", "waiting", 0, ["public.st2"]),
    ]
    with psycopg.connect(database, application_name="pg-trickle-cdc") as copier:
        copier.execute("SELECT FROM ONLY parted_0")
        assert [row[1:3] for row in rows(db, shown)] == [("waiting", 0), ("copying", 1)]
    db.execute("INSERT INTO pgtrickle.pgt_frontiers SELECT pgt_id, '0/1', now() FROM pgtrickle.pgt_stream_tables")
    assert [row[1] for row in rows(db, shown)] == ["captured", "captured"]
