"""A server that was restored or promoted is told apart from one that still has everything that was published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pytest

from applier.catalog.catalog import Catalog
from applier.catalog.checkpoints import Manifest
from applier.catalog.database import Database
from applier.catalog.frontiers import ServerPosition
from applier.catalog.install import install_catalog
from applier.errors import HistoryUnconfirmed
from applier.refresh.vouching import server_history
from applier.refresh.vouching.server_history import ServerHistory, find_loss
from applier.trace.store import TraceStore
from deploy.local.postgres import Postgres
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress
from tests.fixtures import choice
from tests.fixtures.own_server import OwnServer


@dataclass
class World:
    """A server, its catalog, and what was published from it."""

    own: OwnServer
    database: Database
    catalog: Catalog
    history: ServerHistory
    published: list[Progress] = field(default_factory=list)

    def publish(self, slot_lsn: Lsn | None = None) -> Lsn:
        """Publish everything up to the end of the log; return that frontier."""
        server = self.catalog.frontiers.server()
        assert server is not None
        made = slot_lsn or (self.published[-1].slot_lsn if self.published else server.log_end)
        self.published.append(Progress("s", server.system_id, server.timeline, made, server.log_end, {}))
        return server.log_end

    def look(self, frontier: Lsn) -> str:
        """Look as a tick does; return why stream tables are refused."""
        self.database.close()
        self.history.look(frontier)
        self.history.check(self.catalog.stream_tables.all())
        refusal = self.history.refusal()
        return refusal.problem if refusal else ""

    def write(self, query: str = "INSERT INTO src SELECT FROM generate_series(1, 5000)") -> None:
        with psycopg.connect(self.own.server.url, autocommit=True) as db:
            db.execute(query.encode())


@pytest.fixture
def world() -> Iterator[World]:
    if choice.stack_choice() != choice.EMBEDDED:
        pytest.skip("only an embedded server's files are ours")
    with choice.server_folder("history") as folder:
        own = OwnServer(Postgres(folder, major=choice.postgres_major(), durable=False))
        try:
            with psycopg.connect(own.server.url, autocommit=True) as db:
                db.execute("CREATE PUBLICATION pg_trickle; CREATE TABLE src (id int GENERATED ALWAYS AS IDENTITY)")
                db.execute("ALTER TABLE src ADD PRIMARY KEY (id)")
                install_catalog(db)
                db.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM src')")
                db.execute("INSERT INTO pgtrickle.pgt_frontiers SELECT pgt_id, '0/10' FROM pgtrickle.pgt_stream_tables")
            database = Database(own.server.url)
            catalog = Catalog(database)
            published: list[Progress] = []
            history = ServerHistory(catalog.frontiers, lambda: published[-1] if published else None)
            yield World(own, database, catalog, history, published)
            database.close()
        finally:
            own.server.stop()


def test_a_restored_server_is_noticed_and_a_new_slot_ends_it(world: World) -> None:
    """The log ends before the published position; later it is longer again, and still it is another history."""
    world.own.back_up()
    world.write()
    frontier = world.publish()
    assert world.look(frontier) == ""
    world.own.put_back()
    assert "restored to an older state" in world.look(frontier)
    world.write()
    world.write()
    assert "restored to an older state" in world.look(frontier), "a loss does not end because the log grows"
    # The same slot goes on: nothing was repaired.
    assert world.look(world.publish()) != ""
    repaired: list[bool] = []
    world.history.on_new_history = lambda: repaired.append(True)
    frontier = world.publish(slot_lsn=world.publish())
    assert world.look(frontier) == ""
    assert repaired == [True]


def test_a_frontier_that_was_written_after_the_look_is_no_loss(world: World) -> None:
    """PostgreSQL itself chooses the frontier of a query that it runs: the end of the log at that moment."""
    frontier = world.publish()
    world.history.look(frontier)
    world.write()
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = pg_current_wal_insert_lsn()")
    world.history.check(world.catalog.stream_tables.all())
    assert world.history.refusal() is None
    world.history.look(frontier)
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = 'FF/0'")
    world.history.check(world.catalog.stream_tables.all())
    assert "stands at FF/0" in str(world.history.refusal())


def test_a_frontier_that_went_back_is_noticed_though_the_log_is_longer(world: World) -> None:
    """The server was put back and has written more than before, between two looks."""
    world.own.back_up()
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = '0/20'")
    frontier = world.publish()
    assert world.look(frontier) == ""
    world.own.put_back()
    world.write()
    assert "stood at 0/20, and the server has it at 0/10" in world.look(frontier)


def test_a_frontier_that_went_back_is_no_loss_where_commits_are_not_durable(world: World) -> None:
    """With synchronous_commit off, a crash of the server loses the last frontiers, and no published change."""
    world.write("ALTER DATABASE postgres SET synchronous_commit = off")
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = '0/20'")
    frontier = world.publish()
    assert world.look(frontier) == ""
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = '0/10'")
    assert world.look(frontier) == ""


def test_a_frontier_beyond_the_log_is_noticed(world: World) -> None:
    """The catalog was taken over from a server with a longer log."""
    world.write("UPDATE pgtrickle.pgt_frontiers SET frontier = 'FFF/0'")
    frontier = world.publish()
    assert "public.st stands at FFF/0, and the server's log ends at" in world.look(frontier)


def test_positions_of_another_applier_are_not_compared(world: World) -> None:
    """Topics of stream tables come from another server; before the first record that is not known."""
    beyond = Lsn(2**60)
    with pytest.raises(HistoryUnconfirmed, match="not known yet"):
        world.look(beyond)
    world.published.append(Progress("s", "", 0, Lsn(0), beyond, {}))
    assert world.look(beyond) == ""


def test_a_promoted_server_waits_for_the_consumer(world: World) -> None:
    """Only the consumer can tell whether the new timeline has everything: until it goes on, nothing is applied."""
    frontier = world.publish()
    assert world.look(frontier) == ""
    world.own.promote()
    with pytest.raises(HistoryUnconfirmed, match="on timeline 2"):
        world.look(frontier)
    assert world.look(world.publish()) == ""


def test_another_server_is_refused_unless_a_later_record_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerPosition("7", 1, Lsn(1000))
    progress = Progress("s", "6", 1, Lsn(10), Lsn(900), {})
    loss = find_loss(server, Lsn(900), progress)
    assert loss is not None and not loss.is_certain and loss.before == Lsn(900)
    assert find_loss(server, Lsn(900), replace(progress, system_id="7")) is None
    assert find_loss(server, Lsn(1000), replace(progress, system_id="7")) is None
    history = ServerHistory(None, lambda: progress, loss)
    assert history.refusal() is None
    monkeypatch.setattr(server_history, "CONFIRM_S", 0.0)
    assert "published from server 6" in str(history.refusal())


def test_the_consumer_tells_where_the_sources_are_on_another_server() -> None:
    """It also says so if it was only started with another server by mistake; a new slot ends it in any case."""
    records = [Progress("s", "6", 1, Lsn(10), Lsn(900), {})]
    history = ServerHistory(None, lambda: records[-1])
    history.look(Lsn(900))
    assert history.refusal() is None
    history.hear("the server was restored", Lsn(900))
    history.look(Lsn(900))
    assert "was restored" in str(history.refusal())
    history.hear("", None)
    history.look(Lsn(900))
    assert history.refusal() is None
    history.hear("the server was restored", Lsn(900))
    history.look(Lsn(900))
    records.append(replace(records[0], slot_lsn=Lsn(950), frontier=Lsn(960)))
    history.look(Lsn(960))
    assert history.refusal() is None and history.loss is None


def test_the_traces_remember_a_later_checkpoint_than_a_restored_catalog(world: World, tmp_path: Path) -> None:
    store = TraceStore(None, str(tmp_path))  # type: ignore[arg-type]
    installation = world.catalog.checkpoints.installation()
    assert store.noted_manifest(installation) is None
    manifest = Manifest(Lsn(99), {"t": {0: 5}}, [], {})
    store.note_manifest(installation, manifest)
    world.own.back_up()
    world.own.put_back()
    world.database.close()
    assert store.noted_manifest(world.catalog.checkpoints.installation()) == manifest
    world.write("DROP SCHEMA pgtrickle CASCADE")
    with psycopg.connect(world.own.server.url, autocommit=True) as db:
        install_catalog(db)
    assert store.noted_manifest(world.catalog.checkpoints.installation()) is None, "another catalog"
