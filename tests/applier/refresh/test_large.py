"""Refreshes whose delta has more rows than the driver accepts, however few rows they read."""

from __future__ import annotations

from collections.abc import Callable

from applier.refresh.compute import UNFORESEEN_PARTS
from applier.sinks.staging.staging import Staging
from tests.benchmarks.laboratory import Laboratory

QUERY = "SELECT a.id AS l, b.id AS r, b.v FROM a JOIN b ON b.k = a.k"


def test_few_rows_that_match_many(open_laboratory: Callable[..., Laboratory], database: str) -> None:
    lab = open_laboratory(
        "CREATE TABLE a (id int PRIMARY KEY, k int)",
        "CREATE TABLE b (id int PRIMARY KEY, k int, v int)",
        "INSERT INTO a SELECT i, 1 FROM generate_series(1, 20) i",
        "INSERT INTO b SELECT i, 1, 0 FROM generate_series(1, 20) i",
    )
    lab.create("st", QUERY)
    lab.tick("st")
    lab.staging = Staging(database, above=50)
    # Each changed row is deleted and inserted with each of its 20 matches.
    for changed, parts in ((1, 0), (5, UNFORESEEN_PARTS)):
        lab.change("b", f"UPDATE b SET v = v + 1 WHERE id <= {changed}")
        lab.step()
        assert lab.tick("st").rows == 40 * changed
        staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'pgt\\_staged\\_%'"
        assert lab.connection.execute(staged).fetchone() == (parts,)
    assert not lab.differences("st", QUERY)
