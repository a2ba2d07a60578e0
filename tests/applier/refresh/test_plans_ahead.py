"""Plans that are made while Spark starts: used where nothing was altered until the first look, and only there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from applier.catalog.catalog import Catalog
from applier.catalog.database import Connection, Database
from applier.catalog.dependencies import DependencyStore, ObjectIds
from applier.plan.depth import Thresholds
from applier.plan.stream_table import StreamTable
from applier.refresh.planning.plan_stream_table import StreamTablePlanner
from applier.refresh.planning.plans_ahead import PlansAhead
from shared_schema.dependency_facts import DependencyFacts
from tests.applier.refresh.test_vouch import Scene, open_scenes

VIEW = "CREATE OR REPLACE VIEW seen AS SELECT id, {} AS v FROM plain"


@pytest.fixture
def make_scene(database: str) -> Iterator[Callable[..., Scene]]:
    with open_scenes(database) as make:
        yield make


@pytest.fixture
def own(database: str) -> Iterator[Database]:
    """A connection of its own, as the thread has it."""

    def wait_briefly(connection: Connection) -> None:
        connection.execute("SET lock_timeout = '100ms'")

    opened = Database(database, wait_briefly)
    yield opened
    opened.close()


def begin_again(scene: Scene, own: Database, store: DependencyStore | None = None) -> dict[str, StreamTable]:
    """Start as a new process does; return the plans that were made ahead."""
    scene.start_again()
    catalog = Catalog(own)
    catalog.dependencies = store or catalog.dependencies
    ahead = StreamTablePlanner(own, catalog, Thresholds(4, 5)).plan_ahead(threading.Event())
    scene.vouch.planner.ahead = ahead
    return {table.table.name: table for table in ahead.tables.values()}


def test_nothing_was_altered(make_scene: Callable[..., Scene], own: Database) -> None:
    names = ("st_plain", "st_text", "st_domain", "st_row", "st_range", "st_root", "st_leaves")
    scene = make_scene(*names)
    scene.tick()
    usual = {name: table for name, (_, table) in scene.planned.items()}
    made = begin_again(scene, own)
    assert made.keys() == set(names)
    scene.store.asked.clear()
    assert set(scene.tick().values()) == {"shown"}
    assert scene.store.asked == ["sessions", "digest", "facts"], "nothing is read for a single plan"
    for name in names:
        table = scene.planned[name][1]
        assert table is made[name] and table == usual[name] and table.facts == usual[name].facts
    assert scene.tick() == dict.fromkeys(names, "shown"), "the plans stay"
    assert scene.planned["st_row"][1] is made["st_row"]


def test_what_postgresql_runs(make_scene: Callable[..., Scene], own: Database) -> None:
    scene = make_scene("st_plain")
    body = (
        "CREATE OR REPLACE FUNCTION doubled(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN {}; END$$"
    )
    scene.connection.execute(body.format("i * 2").encode())
    scene.connection.execute(
        "SELECT pgtrickle.create_stream_table('st_full', %s, refresh_mode => 'FULL')",
        ("SELECT id, doubled(v) AS d FROM plain",),
    )
    assert scene.tick() == {"st_plain": "shown", "st_full": "shown"}
    usual = scene.planned["st_full"][1]
    made = begin_again(scene, own)
    assert scene.tick() == {"st_plain": "shown", "st_full": "shown"}
    assert scene.planned["st_full"][1] is made["st_full"] and made["st_full"] == usual
    assert made["st_full"].facts == usual.facts
    stale = begin_again(scene, own)["st_full"]
    scene.connection.execute(body.format("i + i").encode())
    scene.tick()
    assert "st_full" not in scene.planned or scene.planned["st_full"][1] is not stale


@pytest.mark.parametrize(
    ("ddl", "found"),
    [
        (VIEW.format("v * 2"), "view public.seen was replaced"),
        ("ALTER TABLE plain RENAME COLUMN v TO w", "shown"),
        ("ALTER TABLE plain ADD CHECK (v > 0)", "shown"),
        (f"{VIEW.format('v * 2')}; {VIEW.format('v')}", "shown"),
    ],
)
@pytest.mark.parametrize("before_the_plans", [True, False])
def test_what_was_altered_is_seen(
    make_scene: Callable[..., Scene], own: Database, ddl: str, found: str, *, before_the_plans: bool
) -> None:
    """Whether it was altered before or after its plan was made, the tick says the same as without that plan."""
    scene = make_scene("st_plain")
    if before_the_plans:
        scene.run(ddl)
    made = begin_again(scene, own)
    if not before_the_plans:
        scene.run(ddl)
    seen = scene.tick()["st_plain"]
    if seen == "waits":
        seen = scene.tick()["st_plain"]
    assert found in seen
    if seen == "shown" and not before_the_plans:
        assert scene.planned["st_plain"][1] is not made["st_plain"]


def test_altered_and_put_back_while_it_was_analysed(make_scene: Callable[..., Scene], own: Database) -> None:
    """The facts are the same before and afterwards, the plan is that of another query: the digest tells."""
    scene = make_scene("st_plain")
    usual = scene.planned["st_plain"][1]

    class AlteredMeanwhile(DependencyStore):
        def digest(self, ids: ObjectIds) -> str:
            found = super().digest(ids)
            scene.run(VIEW.format("v * 2"))
            return found

        def read(self, ids: ObjectIds) -> DependencyFacts:
            scene.run(VIEW.format("v"))
            return super().read(ids)

    made = begin_again(scene, own, AlteredMeanwhile(own))["st_plain"]
    assert made.facts == usual.facts and made.plan != usual.plan, "that is the danger"
    assert scene.tick() == {"st_plain": "shown"}
    assert scene.planned["st_plain"][1].plan == usual.plan


@pytest.mark.parametrize("column", ["defining_query", "refresh_mode"])
def test_another_definition(make_scene: Callable[..., Scene], own: Database, column: str) -> None:
    """Of a stream table, or of one that it reads: it is planned over that one's query. A new one does no harm."""
    scene = make_scene("st_plain")
    create = "SELECT pgtrickle.create_stream_table(%s, %s)"
    scene.connection.execute(create, ("over", "SELECT id, v FROM st_plain"))
    assert scene.tick() == {"st_plain": "shown", "over": "shown"}
    made = begin_again(scene, own)
    scene.connection.execute(create, ("joined", "SELECT id FROM green"))
    assert set(scene.tick().values()) == {"shown"} and scene.planned["over"][1] is made["over"]
    made = begin_again(scene, own)
    assert made.keys() == {"st_plain", "over", "joined"}
    value = {"defining_query": "SELECT id, v * 2 AS v FROM public.plain", "refresh_mode": "DIFFERENTIAL"}[column]
    scene.connection.execute(
        f"UPDATE pgtrickle.pgt_stream_tables SET {column} = %s WHERE pgt_name = 'st_plain'".encode(), (value,)
    )
    scene.tick()
    assert scene.planned["over"][1] is not made["over"]
    assert (scene.planned["over"][1].plan == made["over"].plan) == (column == "refresh_mode")


def test_what_is_computed_as_a_whole_is_planned_in_the_tick(make_scene: Callable[..., Scene], own: Database) -> None:
    scene = make_scene("st_plain")
    [row] = scene.rows()
    made = begin_again(scene, own)["st_plain"]
    assert PlansAhead(None, {row.pgt_id: made}).take(replace(row, reinit_requested_at=row.created_at)) is None
    ahead = PlansAhead(None, {row.pgt_id: made})
    assert ahead.take(row) is made and ahead.take(row) is None, "once"


def test_what_is_in_doubt_is_left_to_the_tick(make_scene: Callable[..., Scene], own: Database, database: str) -> None:
    """A locked source, and a query whose planning ended the process: who counts that is the tick."""
    scene = make_scene("st_plain", "st_domain", "st_row")
    rows = {row.pgt_name: row for row in scene.rows()}
    assert scene.catalog.stream_tables.begin_plan(rows["st_domain"].pgt_id) == 0
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE of_row IN ACCESS EXCLUSIVE MODE")
        assert begin_again(scene, own).keys() == {"st_plain"}
    assert scene.catalog.stream_tables.unfinished_plans() == {rows["st_domain"].pgt_id}
    assert set(scene.tick().values()) == {"shown"}
    assert scene.catalog.stream_tables.unfinished_plans() == set()
