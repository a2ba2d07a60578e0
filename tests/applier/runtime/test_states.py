"""A restart from a checkpoint, with PostgreSQL, Spark and whole ticks: no state is computed, and no base is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import DataFrame

from applier.catalog.checkpoints import Checkpoints, Manifest
from applier.errors import Infrastructure
from applier.state.state_files import StateFiles
from applier.trace.segment import Segment
from tests.applier.runtime.conftest import Ticks, create

QUERIES = {
    "totals": "SELECT k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM b GROUP BY k",
    "ends": "SELECT k, min(id) AS first, max(v) AS most FROM b GROUP BY k",
    "best": "SELECT id, v FROM b ORDER BY v DESC, id LIMIT 3",
    "joined": "SELECT a.k, count(*) AS n, sum(b.v) AS total FROM a JOIN b ON b.id = a.id GROUP BY a.k",
    "reached": "WITH RECURSIVE r AS (SELECT id FROM b WHERE id = 1 UNION SELECT b.id FROM b JOIN r ON b.k = r.id)"
    " SELECT id FROM r",
    "numeric": "SELECT v % 3 AS g, sum(id * 1.25::numeric(20,2)) AS total FROM b GROUP BY v % 3",
}
OF_ONE_SOURCE = ("totals", "ends", "best", "numeric")
"""Nothing of the base is needed for a small change of these."""


def _count(name: str) -> float:
    return REGISTRY.get_sample_value(f"pg_trickle_states_{name}_total") or 0.0


def _change(ticks: Ticks, number: int) -> None:
    ticks.lab.change("b", f"INSERT INTO b VALUES ({1000 + number}, {number % 3}, {number + 5})")
    ticks.lab.change("b", f"UPDATE b SET v = v + {number} WHERE id IN (3, 4)")
    ticks.lab.change("a", f"INSERT INTO a VALUES ({2000 + number}, 2)")
    ticks.lab.step()
    ticks.run()


def _checkpoint(ticks: Ticks, folder: Path) -> Manifest:
    assert ticks.delta_sink.flush() == []
    checkpointer = ticks.checkpointer(folder)
    checkpointer.checkpoint()
    assert checkpointer.latest.manifest.frontier == ticks.lab.now
    return Manifest.from_json(json.loads(json.dumps(checkpointer.latest.manifest.to_json())))


def _unload_bases(ticks: Ticks) -> list[str]:
    """Let the bases be read when they are needed, as after a start; return where it is noted which ones were."""
    read: list[str] = []

    def later(name: str, segment: Segment) -> Segment:
        def load() -> DataFrame:
            read.append(name)
            return segment.frame

        return Segment(load, segment.rows)

    for trace in ticks.lab.traces:
        segments = tuple(later(trace.table.name, segment) for segment in trace.base.segments)
        trace._base = replace(trace.base, segments=segments)
    return read


def _restart(make_ticks: Callable[..., Ticks], manifest: Manifest | None) -> Ticks:
    ticks = make_ticks()
    if manifest is not None:
        ticks.computer.states.adopt(manifest.states, manifest.frontier)
    return ticks


def _differences(ticks: Ticks) -> dict[str, int]:
    return {name: n for name, query in QUERIES.items() if (n := ticks.lab.differences(name, query))}


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_restart_reads_states(make_ticks: Callable[..., Ticks], tmp_path: Path, is_stored: bool) -> None:
    """Without what was stored, as after an upgrade, all are computed: otherwise the counts would prove nothing."""
    ticks = make_ticks()
    create(ticks, **QUERIES)
    ticks.lab.step()
    ticks.run_with_long()
    _change(ticks, 1)
    manifest = _checkpoint(ticks, tmp_path)
    assert len(manifest.states) == len(QUERIES)
    # Changes since the checkpoint come from the topics again. They are in PostgreSQL, and not in what was stored.
    _change(ticks, 2)
    _change(ticks, 3)
    assert _differences(ticks) == {}
    read = _unload_bases(ticks)
    form = manifest.to_json()
    if not is_stored:
        del form["states"]
    restarted = _restart(make_ticks, Manifest.from_json(form))
    # Only these are refreshed by the first change, so it is seen which bases they read.
    for name in set(QUERIES) - set(OF_ONE_SOURCE):
        restarted.lab.connection.execute("SELECT pgtrickle.pause_stream_table(%s)", (name,))
    before = _count("computed"), _count("restored")
    _change(restarted, 4)
    counts = _count("computed") - before[0], _count("restored") - before[1]
    assert (counts, bool(read)) == (((0, 4), False) if is_stored else ((4, 0), True)), read
    for name in set(QUERIES) - set(OF_ONE_SOURCE):
        restarted.lab.connection.execute("SELECT pgtrickle.resume_stream_table(%s)", (name,))
    _change(restarted, 5)
    restarted.run_with_long()
    assert _count("computed") - before[0] == (0 if is_stored else len(QUERIES))
    assert _differences(restarted) == {} and set(restarted.statuses().values()) == {"ACTIVE"}
    _change(restarted, 6)
    assert _differences(restarted) == {}


def test_an_altered_query_and_a_crash_in_a_checkpoint(
    make_ticks: Callable[..., Ticks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = make_ticks()
    create(ticks, totals=QUERIES["totals"], ends=QUERIES["ends"])
    ticks.lab.step()
    ticks.run_with_long()
    manifest = _checkpoint(ticks, tmp_path)
    assert len(manifest.states) == 2
    altered = "SELECT k, count(*) AS n, sum(v + 1) AS total, avg(v) AS mean FROM b GROUP BY k"
    ticks.lab.connection.execute("SELECT pgtrickle.alter_stream_table('totals', query => %s)", (altered,))
    _change(ticks, 1)
    ticks.run_with_long()

    def save(*_: object) -> None:
        raise Infrastructure("the catalog is away")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        assert ticks.delta_sink.flush() == []
        with pytest.raises(Infrastructure, match="away"):
            ticks.checkpointer(tmp_path).checkpoint()
    # The files of that checkpoint are there, and the manifest is the one before.
    restarted = _restart(make_ticks, manifest)
    before = _count("computed"), _count("restored")
    _change(restarted, 2)
    assert (_count("computed") - before[0], _count("restored") - before[1]) == (1, 1)
    assert restarted.lab.differences("totals", altered) == 0
    assert restarted.lab.differences("ends", QUERIES["ends"]) == 0


def test_files_that_are_gone_stop_nothing(make_ticks: Callable[..., Ticks], tmp_path: Path) -> None:
    ticks = make_ticks()
    create(ticks, totals=QUERIES["totals"])
    ticks.lab.step()
    ticks.run_with_long()
    manifest = _checkpoint(ticks, tmp_path)
    for path in (tmp_path / "states").iterdir():
        path.unlink()
    restarted = _restart(make_ticks, manifest)
    before = _count("computed")
    _change(restarted, 1)
    assert _count("computed") - before == 1 and restarted.lab.differences("totals", QUERIES["totals"]) == 0
    # And the next checkpoint stores it once more; one that is repeated deletes what nothing names.
    _checkpoint(restarted, tmp_path)
    _change(restarted, 2)
    stored: dict[str, Any] = _checkpoint(restarted, tmp_path).states
    named = {file["path"] for state in stored.values() for node in state["nodes"] for file in node["rows"]}
    assert named <= {path.name for path in (tmp_path / "states").iterdir()}
    assert StateFiles.below("s3://bucket/state") is None
