"""Whole ticks with PostgreSQL, Spark and Delta: whatever fails in the middle, no lease on a delta stays open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from applier.catalog.checkpoints import Checkpoints
from applier.errors import Infrastructure
from applier.plan.stream_table import StreamTable
from applier.runtime.checkpointer import CheckpointSettings
from applier.sinks import outbox
from applier.sinks.delta import Delta
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres import sink as sink_module
from applier.trace import store as store_module
from applier.trace.segment import Segment
from applier.trace.store import persist_segment
from shared_schema.lsn import LsnRange
from tests.applier.runtime.conftest import FEW, MANY, Ticks, change, create, differences


def _no_broker() -> TopicPublisher:
    raise Infrastructure("the broker is not there")


def test_ticks_without_failures(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, many=MANY)
    ticks.lab.step()
    ticks.run_with_long()
    for _ in range(2):
        change(ticks)
        ticks.run_with_long()
    assert differences(ticks) == 0
    # Delta has not been written yet: three deltas of each stream table, and nobody else reads them.
    assert ticks.leases == 6 and ticks.staged_tables() > 0
    assert ticks.delta_sink.flush() == []
    ticks.assert_all_closed()


def test_postgresql_rejects_rows_and_loses_its_session(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW, many=MANY)
    ticks.lab.step()
    ticks.run_with_long()
    ticks.delta_sink.flush()
    ticks.assert_all_closed()
    connection = ticks.lab.connection
    # A staged delta and one in memory are rejected.
    for table, column in (("few", "n"), ("many", "v")):
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT no CHECK ({column} < 1) NOT VALID".encode())
    change(ticks)
    ticks.run_with_long()
    assert ticks.statuses() == {"few": "SUSPENDED", "many": "SUSPENDED"}
    ticks.assert_all_closed()
    for table in ("few", "many"):
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT no".encode())
        connection.execute("SELECT pgtrickle.resume_stream_table(%s)", (table,))
    ticks.run_with_long()
    assert differences(ticks) == 0
    # The session of the ticks ends: the tick is repeated.
    change(ticks)
    pid = ticks.session.connection.info.backend_pid
    connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises(Infrastructure):
        ticks.run()
    ticks.run_with_long()
    assert differences(ticks) == 0
    assert ticks.delta_sink.flush() == []
    ticks.assert_all_closed()


def test_a_sink_fails_and_the_stream_tables_are_dropped(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    # A file where the folder of the Delta tables should be, and no broker.
    (tmp_path / "delta").write_text("")
    ticks = make_ticks(_no_broker)
    create(ticks, few=FEW, many=MANY)
    ticks.lab.step()
    ticks.run()
    with pytest.raises(Infrastructure, match="broker"):
        ticks.topics.publish()
    assert ticks.delta_sink.flush() == []
    assert ticks.leases >= 2, "the queues of both sinks"
    ticks.wait_for_long()
    # Dropped while the rows of a long refresh wait to be written: PostgreSQL has no table for them.
    for table in ("few", "many"):
        ticks.lab.connection.execute("SELECT pgtrickle.drop_stream_table(%s)", (table,))
    ticks.run()
    ticks.wait_for_writes()
    ticks.run()
    ticks.assert_all_closed()


def test_a_long_refresh_is_discarded(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, many=MANY)
    ticks.lab.step()
    ticks.run()
    ticks.wait_for_long()
    assert ticks.leases == 1
    # As after an alteration: the plan that the rows were computed with is not the plan of the stream table any more.
    for pgt_id in list(ticks.tables.planned):
        ticks.tables.forget(pgt_id)
    ticks.run()
    assert ticks.computer.long_refreshes.has_any, "it is computed again"
    ticks.wait_for_long()
    assert ticks.leases == 1 and ticks.lab.connection.execute("SELECT count(*) FROM many").fetchone() == (0,)
    # And as at a stop: the rows are not written.
    ticks.computer.long_refreshes.stop()
    ticks.assert_all_closed()


def test_rows_that_an_executor_cannot_compute(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    create(ticks, many="SELECT a.id AS l, b.id AS r, 1 / (a.id + b.id - 40) AS q FROM a JOIN b ON b.k = a.k")
    ticks.lab.step()
    ticks.run_with_long()
    assert ticks.computer.long_refreshes.has_any is False
    assert (ticks.statuses(), ticks.leases) == ({"many": "SUSPENDED"}, 0)


def test_a_checkpoint_does_not_pass_what_a_sink_lacks(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    """A commit in doubt empties the queues. Until the sinks are compared with PostgreSQL again, a checkpoint that says
    where they stand would hide the rows that they lack from the next start."""
    ticks = make_ticks()
    create(ticks, few=FEW)
    ticks.lab.step()
    ticks.run()
    assert ticks.delta_sink.flush() == []
    [few] = ticks.tables.planned.values()
    written = ticks.delta_sink.frontier(few)
    change(ticks)
    ticks.run()
    ticks.writer.forget(few.id)
    latest = ticks.writer.catch_up_sinks.checkpoint
    checkpointer = ticks.checkpointer(tmp_path / "state")
    checkpointer.checkpoint()
    assert latest.manifest.frontier == written < ticks.lab.now
    assert latest.manifest.sinks == {}
    # Nor does it say where they stand when so many rows wait that it passes them.
    dataclasses.replace(checkpointer, settings=lambda: CheckpointSettings(1, 0)).checkpoint()
    assert latest.manifest.frontier == ticks.lab.now
    assert latest.manifest.sinks == {}
    ticks.lab.step()
    ticks.run()
    assert ticks.delta_sink.flush() == []
    checkpointer.checkpoint()
    assert latest.manifest.sinks == {str(few.id): {"delta": str(ticks.delta_sink.frontier(few))}}
    table = DeltaTable(f"{tmp_path}/delta/public/few").to_pyarrow_table()
    expected = ticks.lab.connection.execute(FEW.encode()).fetchall()
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == sorted(expected)


def test_sinks_catch_up_over_a_new_plan_that_changed_no_row(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    """With the plan of now, the rows of the time before it differ from those that the sinks were given."""
    first = make_ticks()
    create(first, few="SELECT id FROM a WHERE k = 5")
    first.lab.step()
    first.run()
    assert first.delta_sink.flush() == []
    first.lab.change("a", "UPDATE a SET k = 2")
    first.lab.step()
    first.run()
    altered = "SELECT id FROM a WHERE k = 1"
    first.lab.connection.execute("SELECT pgtrickle.alter_stream_table('few', %s)", (altered,))
    first.lab.step()
    first.run()
    pending = first.lab.connection.execute("SELECT count(*) FROM pgtrickle.pgt_alterations").fetchone()
    assert pending == (0,) and first.lab.differences("few", altered) == 0
    # A killed applier: Delta was not written.
    second = make_ticks()
    second.run()
    second.lab.change("a", "UPDATE a SET k = 1 WHERE id = 3")
    second.lab.step()
    second.run()
    assert second.lab.differences("few", altered) == 0
    assert second.delta_sink.flush() == [] and second.statuses() == {"few": "ACTIVE"}
    assert DeltaTable(f"{tmp_path}/delta/public/few").to_pyarrow_table().to_pydict() == {"id": [3]}


def test_a_delta_goes_to_the_outbox_once(make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait for a sink: each full result is written with those before it."""
    ticks = make_ticks()
    ticks.lab.connection.execute("SELECT pgtrickle.create_stream_table('few', %s, refresh_mode => 'FULL')", (FEW,))
    ticks.lab.step()
    ticks.run()
    encoded: list[LsnRange] = []

    def enqueue(cursor: Any, table: StreamTable, delta: Delta, **named: Any) -> None:
        encoded.append(delta.lsn_range)
        outbox.enqueue(cursor, table, delta, **named)

    monkeypatch.setattr(sink_module, "enqueue", enqueue)
    for _ in range(4):
        change(ticks)
        ticks.run()
    assert len(encoded) == len(set(encoded)) == 5, "the fill, and each difference"
    assert ticks.lab.differences("few", FEW) == 0 and ticks.delta_sink.flush() == []


def test_a_checkpoint_that_fails_holds_no_memory(
    make_ticks: Callable[..., Ticks], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ticks = make_ticks()
    create(ticks, few=FEW)
    ticks.lab.step()
    ticks.run()
    change(ticks)
    ticks.run()
    assert ticks.delta_sink.flush() == []
    checkpointer = ticks.checkpointer(tmp_path / "state")

    def save(*_: object) -> None:
        raise Infrastructure("the catalog is away")

    made: list[Segment] = []

    def persist(*arguments: Any) -> Segment:
        made.append(persist_segment(*arguments))
        return made[-1]

    monkeypatch.setattr(Checkpoints, "save", save)
    monkeypatch.setattr(store_module, "persist_segment", persist)
    with pytest.raises(Infrastructure, match="away"):
        checkpointer.checkpoint()
    assert made and all(segment.released for segment in made)
    monkeypatch.undo()
    checkpointer.checkpoint()
    assert checkpointer.latest.manifest.frontier == ticks.lab.now
