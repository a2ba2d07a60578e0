"""What a stream table rests on is compared before a frontier is shown: the order of a look, and what each DDL means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import psycopg
import pytest

from applier.arrange.traces import Traces
from applier.catalog.catalog import Catalog
from applier.catalog.database import Database
from applier.catalog.dependencies import DependencyStore, ObjectIds
from applier.catalog.install import install_catalog
from applier.catalog.stream_tables import StreamTableRow
from applier.errors import Infrastructure
from applier.plan.depth import Thresholds
from applier.plan.stream_table import StreamTable
from applier.refresh.method.refresh import Refresh
from applier.refresh.method.strategy import RefreshMethod, RefreshReason, Strategy
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.planning.plans import StreamTablePlans
from applier.refresh.vouching.captured_sources import CapturedSources
from applier.refresh.vouching.vouch import Vouch
from deploy.local.postgres import Postgres
from shared_schema.commits import SessionAtWork
from shared_schema.dependency_facts import DependencyFacts
from shared_schema.lsn import Lsn, LsnRange
from tests.fixtures.choice import server_folder
from tests.fixtures.standby import committing

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE DOMAIN inner_mood AS mood;
CREATE DOMAIN outer_mood AS inner_mood;
CREATE TYPE pair AS (a int, m mood);
CREATE TYPE pairs AS (p pair, list pair[]);
CREATE TYPE moods AS RANGE (subtype = mood);
CREATE TABLE plain (id int PRIMARY KEY, v int, c text COLLATE "C");
CREATE TABLE of_domain (id int PRIMARY KEY, m outer_mood);
CREATE TABLE of_row (id int PRIMARY KEY, p pairs);
CREATE TABLE of_range (id int PRIMARY KEY, r moods, s moods[]);
CREATE TABLE root (id int, v int, g int GENERATED ALWAYS AS (v * 2) STORED) PARTITION BY RANGE (id);
CREATE TABLE below PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF below FOR VALUES FROM (0) TO (10);
CREATE TABLE leaf2 PARTITION OF root FOR VALUES FROM (10) TO (20);
CREATE VIEW seen AS SELECT id, v FROM plain;
CREATE TABLE green (id int PRIMARY KEY, v int)
"""

QUERIES = {
    "st_plain": "SELECT id, v FROM seen",
    "st_text": "SELECT min(c) AS c FROM plain",
    "st_domain": "SELECT id, m FROM of_domain",
    "st_row": "SELECT id, p FROM of_row",
    "st_range": "SELECT id, r, s FROM of_range",
    "st_root": "SELECT id, v, g FROM root",
    "st_leaves": "SELECT id, v FROM root",
}


class RecordedStore(DependencyStore):
    """Notes in which order it was asked."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.asked: list[str] = []

    def sessions_at_work(self) -> list[SessionAtWork]:
        self.asked.append("sessions")
        return super().sessions_at_work()

    def digest(self, ids: ObjectIds) -> str:
        self.asked.append("digest")
        return super().digest(ids)

    def read(self, ids: ObjectIds) -> DependencyFacts:
        self.asked.append("facts")
        return super().read(ids)


@dataclass
class Scene:
    """A database with stream tables that stand at a frontier, and a Vouch over it."""

    connection: psycopg.Connection[Any]
    catalog: Catalog
    vouch: Vouch
    plans: StreamTablePlans
    store: RecordedStore
    frontier: int = 100
    planned: dict[str, tuple[StreamTableRow, StreamTable]] = field(default_factory=dict)

    def rows(self) -> list[StreamTableRow]:
        """All stream tables, as if each had been filled."""
        return [replace(row, frontier="0/10") for row in self.catalog.stream_tables.all()]

    def tick(self, between: Callable[[], object] = lambda: None) -> dict[str, str]:
        """Look, admit, plan and vouch; return per stream table `shown`, `waits` or why it is suspended.

        `between` runs after the look.
        """
        self.frontier += 1
        self.vouch.look(Lsn(self.frontier))
        between()
        admitted, refused = self.vouch.admit(self.rows())
        planned, unplanned = self.plans.load(admitted)
        self.planned = {row.pgt_name: (row, table) for row, table in planned}
        found = dict.fromkeys((row.pgt_name for row in self.rows()), "waits")
        found |= {row.pgt_name: error.problem for row, error in [*refused, *unplanned]}
        return found | {name: "shown" for name, (row, table) in self.planned.items() if self.vouch.vouches(row, table)}

    def start_again(self) -> None:
        """As a new process does."""
        planner = StreamTablePlanner(self.vouch.planner.database, self.catalog, Thresholds(4, 5))
        self.plans = StreamTablePlans(planner)
        self.vouch = Vouch(self.catalog, planner, self.plans, CapturedSources(self.catalog, Traces(cast(Any, None))))

    def requests(self, name: str) -> str:
        """Why the whole is computed once more; empty when it is not."""
        found = self.connection.execute(
            "SELECT coalesce(string_agg(r.detail, ''), '') FROM pgtrickle.pgt_reinitializations r"
            " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE s.pgt_name = %s",
            (name,),
        ).fetchone()
        return str(found[0]) if found else ""

    def copies(self, source: str) -> int:
        found = self.connection.execute(
            "SELECT count(*) FROM pgtrickle.pgt_recaptures WHERE source_relid = %s::regclass", (source,)
        ).fetchone()
        return int(found[0]) if found else -1

    def run(self, ddl: str) -> None:
        for statement in ddl.split("; "):
            self.connection.execute(statement.encode())


@contextmanager
def open_scenes(database: str) -> Iterator[Callable[..., Scene]]:
    """Yield a function that makes stream tables in the database and returns the scene."""
    opened = [Database(database), Database(database)]
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute(SCHEMA.encode())

        def make(*names: str, mode: str = "AUTO") -> Scene:
            for name in names:
                connection.execute(
                    "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)", (name, QUERIES[name], mode)
                )
            catalog = Catalog(opened[0])
            store = catalog.dependencies = RecordedStore(opened[0])
            planner = StreamTablePlanner(opened[1], catalog, Thresholds(4, 5))
            plans = StreamTablePlans(planner)
            sources = CapturedSources(catalog, Traces(cast(Any, None)))
            scene = Scene(connection, catalog, Vouch(catalog, planner, plans, sources), plans, store)
            assert set(scene.tick().values()) == {"shown"}
            return scene

        yield make
        for database_of in opened:
            database_of.close()


@pytest.fixture
def make_scene(database: str) -> Iterator[Callable[..., Scene]]:
    with open_scenes(database) as make:
        yield make


def test_the_order_of_a_look(make_scene: Callable[..., Scene]) -> None:
    """Sessions come before the catalog, and facts are read only when the digest is another one."""
    scene = make_scene("st_plain")
    scene.tick()
    scene.store.asked.clear()
    scene.tick()
    assert scene.store.asked == ["sessions", "digest"]
    scene.run("ALTER TABLE green ADD COLUMN w int")
    scene.store.asked.clear()
    scene.tick()
    assert scene.store.asked == ["sessions", "digest"], "no stream table reads it"
    scene.run("ALTER TABLE plain ADD CHECK (v > 0)")
    scene.store.asked.clear()
    assert scene.tick() == {"st_plain": "shown"}
    assert scene.store.asked == ["sessions", "digest", "facts"]


@pytest.mark.parametrize(
    ("name", "ddl", "what", "copied"),
    [
        # An enum at any depth: its rows have other texts, so the source is copied and the whole computed.
        ("st_domain", "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "is now low", "of_domain"),
        ("st_row", "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "is now low", "of_row"),
        ("st_range", "ALTER TYPE mood RENAME VALUE 'sad' TO 'low'", "is now low", "of_range"),
        ("st_row", "ALTER TYPE pair ADD ATTRIBUTE b int", "other attributes", "of_row"),
        ("st_row", "ALTER TYPE pairs DROP ATTRIBUTE list", "other attributes", "of_row"),
    ],
)
def test_texts_of_values_are_followed(
    make_scene: Callable[..., Scene], name: str, ddl: str, what: str, copied: str
) -> None:
    scene = make_scene(name, "st_plain")
    scene.run(ddl)
    assert scene.tick() == {name: "waits", "st_plain": "shown"}
    assert what in scene.requests(name) and scene.copies(copied) == 1


@pytest.mark.parametrize(
    ("name", "ddl"),
    [
        ("st_domain", "ALTER TYPE mood ADD VALUE 'great'"),
        ("st_row", "ALTER TYPE mood ADD VALUE 'great' BEFORE 'sad'"),
        ("st_domain", "ALTER DOMAIN outer_mood SET DEFAULT 'sad'"),
        ("st_domain", "ALTER DOMAIN inner_mood ADD CHECK (value <> 'glad')"),
        ("st_domain", "ALTER DOMAIN outer_mood SET NOT NULL"),
        ("st_row", "ALTER TYPE pair RENAME ATTRIBUTE a TO z"),
        ("st_root", "VACUUM FULL leaf; VACUUM FULL leaf2"),
        ("st_root", "CREATE INDEX leaf_id ON leaf (id); CLUSTER leaf USING leaf_id"),
        ("st_root", "TRUNCATE leaf"),
        ("st_plain", "ALTER TABLE plain REPLICA IDENTITY FULL"),
    ],
)
def test_what_changes_no_row(make_scene: Callable[..., Scene], name: str, ddl: str) -> None:
    scene = make_scene(name)
    scene.run(ddl)
    assert scene.tick() == {name: "shown"}
    assert scene.requests(name) == "" and scene.connection.execute("TABLE pgtrickle.pgt_recaptures").fetchall() == []


@pytest.mark.parametrize(
    ("name", "ddl", "because"),
    [
        (
            "st_root",
            "ALTER PUBLICATION pg_trickle ADD TABLE leaf WHERE (id > 3)",
            "row filter for partition public.leaf",
        ),
        ("st_root", "ALTER PUBLICATION pg_trickle ADD TABLE leaf2 (id)", "column list for partition public.leaf2"),
        (
            "st_root",
            "ALTER PUBLICATION pg_trickle SET (publish_via_partition_root = true)",
            "publishes it via the root",
        ),
        ("st_plain", "ALTER PUBLICATION pg_trickle SET TABLE plain WHERE (id > 3)", "row filter for it"),
        ("st_plain", "ALTER PUBLICATION pg_trickle SET TABLE plain (id)", "column list for it"),
        ("st_plain", "ALTER PUBLICATION pg_trickle SET (publish = 'insert')", "streams only insert"),
        ("st_plain", "DROP PUBLICATION pg_trickle", "not in publication"),
        ("st_plain", "CREATE OR REPLACE VIEW seen AS SELECT id, v + 1 AS v FROM plain", "seen was replaced"),
        ("st_text", "ALTER TABLE plain ALTER COLUMN c TYPE text USING c || 'x'", "c of public.plain was rewritten"),
        ("st_text", "ALTER TABLE plain DROP COLUMN c", "c of public.plain was dropped"),
        (
            "st_plain",
            "ALTER TABLE plain RENAME TO blue; ALTER TABLE green RENAME TO plain",
            "another relation has its name",
        ),
        ("st_text", "ALTER TABLE plain ENABLE ROW LEVEL SECURITY", "row-level security"),
    ],
)
def test_suspended_with_the_reason(make_scene: Callable[..., Scene], name: str, ddl: str, because: str) -> None:
    scene = make_scene(name)
    scene.run(ddl)
    assert because in scene.tick()[name]


@pytest.mark.parametrize(("leaf", "part"), [("leaf", "WHERE (id > 3)"), ("leaf2", "(id)")])
def test_a_leaf_that_is_published_in_part_is_refused(make_scene: Callable[..., Scene], leaf: str, part: str) -> None:
    scene = make_scene("st_plain")
    scene.run(f"ALTER PUBLICATION pg_trickle ADD TABLE {leaf} {part}")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"for partition public.{leaf}"):
        scene.connection.execute("SELECT pgtrickle.create_stream_table('st_root', %s)", (QUERIES["st_root"],))
    scene.run(f"ALTER PUBLICATION pg_trickle DROP TABLE {leaf}")
    scene.connection.execute("SELECT pgtrickle.create_stream_table('st_root', %s)", (QUERIES["st_root"],))
    assert scene.tick() == {"st_plain": "shown", "st_root": "shown"}


def test_a_collation_with_another_order() -> None:
    """The order of bytes, in which min() was maintained, is not the order of the column any more."""
    with server_folder("collations") as folder:
        # Of the embedded servers only this one has ICU.
        server = Postgres(folder, major=14, durable=False)
        server.start()
        try:
            with open_scenes(server.url) as make_scene:
                scene = make_scene("st_text")
                scene.run("INSERT INTO plain VALUES (1, 1, 'a'), (2, 2, 'B')")
                scene.run('ALTER TABLE plain ALTER COLUMN c TYPE text COLLATE "en-x-icu"')
                assert scene.connection.execute("SELECT min(c) FROM plain").fetchone() == ("a",), "not B"
                assert "c of public.plain has another collation" in scene.tick()["st_text"]
        finally:
            server.stop()


def test_an_expression_of_one_leaf(make_scene: Callable[..., Scene]) -> None:
    """SET EXPRESSION writes the rows of one leaf anew; who does not read the column goes on with the new copy."""
    scene = make_scene("st_root", "st_leaves")
    if scene.connection.info.server_version < 170_000:
        pytest.skip("SET EXPRESSION came with version 17")
    scene.run("ALTER TABLE leaf ALTER COLUMN g SET EXPRESSION AS (v * 3)")
    found = scene.tick()
    assert "g of public.root was rewritten" in found["st_root"] and found["st_leaves"] == "shown"
    assert scene.copies("root") == 1


def test_altered_between_the_look_and_the_planning(make_scene: Callable[..., Scene]) -> None:
    """A new plan is not taken over when its facts are not those that the rows were computed with."""
    scene = make_scene("st_plain")

    def replace_view() -> None:
        scene.plans.forget(scene.planned["st_plain"][1].id)
        scene.run("CREATE OR REPLACE VIEW seen AS SELECT id, v * 2 AS v FROM plain")

    assert scene.tick(replace_view) == {"st_plain": "waits"} and scene.vouch.has_waiting
    assert "seen was replaced" in scene.tick()["st_plain"]


def test_what_was_altered_before_a_start(make_scene: Callable[..., Scene]) -> None:
    """A new process has only the stored facts: it compares with those."""
    scene = make_scene("st_plain", "st_text")
    scene.run("CREATE OR REPLACE VIEW seen AS SELECT id, v * 2 AS v FROM plain; ALTER TABLE plain RENAME COLUMN c TO d")
    scene.start_again()
    found = scene.tick()
    assert "seen was replaced" in found["st_plain"] and found["st_text"] == "waits"
    assert "c of public.plain is now called d" in scene.requests("st_text")


def test_a_follower_that_was_killed(make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new text and the facts that go with it are stored together: what comes after is compared with those."""
    scene = make_scene("st_plain")

    def die(*_: object) -> None:
        raise psycopg.OperationalError("the applier is killed")

    scene.run("ALTER VIEW seen RENAME TO watched")
    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "store", die)
        with pytest.raises(Infrastructure):
            scene.tick()
    scene.run("CREATE OR REPLACE VIEW watched AS SELECT id, -v AS v FROM plain")
    scene.start_again()
    assert "was replaced" in scene.tick()["st_plain"]


def test_a_query_whose_text_is_another_one(make_scene: Callable[..., Scene]) -> None:
    """The text says nothing of what it reads: as another version of PostgreSQL prints it, or after a crash."""
    scene = make_scene("st_plain")
    scene.run("UPDATE pgtrickle.pgt_stream_tables SET defining_query = defining_query || ' -- anew'")
    scene.run("CREATE OR REPLACE VIEW seen AS SELECT id, -v AS v FROM plain")
    scene.start_again()
    assert "was replaced" in scene.tick()["st_plain"]


def test_sessions_that_may_be_committing(make_scene: Callable[..., Scene], database: str) -> None:
    scene = make_scene("st_plain", "st_domain")
    with psycopg.connect(database) as idle:
        idle.execute("ALTER TABLE plain ADD COLUMN more int")
        assert scene.tick()["st_domain"] == "shown", "it waits for its client: it has not begun to commit"
        assert not scene.vouch.is_unsettled
    # Planned again, with the new column.
    assert set(scene.tick().values()) == {"shown"}
    with committing(database, "ALTER TABLE plain ADD COLUMN less int"):
        assert scene.tick()["st_plain"] == "waits"
        assert scene.vouch.has_waiting and scene.vouch.is_unsettled
    assert set(scene.tick().values()) == {"shown"} and not scene.vouch.has_waiting


def test_long_statements_do_not_stop_everything(make_scene: Callable[..., Scene], database: str) -> None:
    scene = make_scene("st_plain")
    with psycopg.connect(database, autocommit=True) as writer:
        sleeps = "DO $$ BEGIN INSERT INTO plain VALUES (1, 1); PERFORM pg_sleep(2); END $$"
        worker = threading.Thread(target=lambda: writer.execute(sleeps), daemon=True)
        worker.start()
        until = time.monotonic() + 10
        while not scene.store.sessions_at_work():
            assert time.monotonic() < until
        assert scene.tick() == {"st_plain": "shown"}
        assert worker.is_alive()
        worker.join(10)


@pytest.mark.parametrize(
    ("ddl", "is_confirmed"),
    [
        ("INSERT INTO plain VALUES (1, 1)", True),
        ("ALTER TABLE green ADD COLUMN w int", True),
        ("CREATE OR REPLACE VIEW seen AS SELECT id, v * 2 AS v FROM plain", False),
        ("ALTER TABLE plain RENAME TO blue; ALTER TABLE green RENAME TO plain", False),
        # There and back again: the query may have run in between.
        ("ALTER VIEW seen RENAME TO unseen; ALTER VIEW unseen RENAME TO seen", False),
    ],
)
def test_a_query_that_postgresql_ran(make_scene: Callable[..., Scene], ddl: str, is_confirmed: bool) -> None:
    """It is read after the frontier: nothing that it rests on may have been altered until it ended."""
    scene = make_scene("st_plain", mode="FULL")
    row, table = scene.planned["st_plain"]
    for method in (RefreshMethod.IN_POSTGRES, RefreshMethod.FULL):
        strategy = Strategy(method, RefreshReason.MODE)
        refresh = Refresh(row, table, LsnRange(Lsn(1), Lsn(2)), strategy, 0, 0, datetime.now(UTC))
        scene.vouch.begin([refresh])
        if method is RefreshMethod.IN_POSTGRES:
            scene.run(ddl)
        scene.vouch.look(Lsn(scene.frontier + 1))
        # Spark computes from the traces at a frontier that was vouched for.
        assert scene.vouch.confirms(refresh) is (is_confirmed or method is RefreshMethod.FULL)


def test_a_query_that_postgresql_ran_while_a_commit_is_under_way(
    make_scene: Callable[..., Scene], database: str
) -> None:
    scene = make_scene("st_plain", mode="FULL")
    row, table = scene.planned["st_plain"]
    strategy = Strategy(RefreshMethod.IN_POSTGRES, RefreshReason.MODE)
    refresh = Refresh(row, table, LsnRange(Lsn(1), Lsn(2)), strategy, 0, 0, datetime.now(UTC))
    scene.vouch.begin([refresh])
    with committing(database, "CREATE OR REPLACE VIEW seen AS SELECT id, v * 2 AS v FROM plain"):
        scene.vouch.look(Lsn(scene.frontier + 1))
        assert not scene.vouch.confirms(refresh)
