"""Long refreshes: one that raises is a result of its own, and the results of the others are not lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from applier.errors import Infrastructure, UnexpectedFailure
from applier.plan.stream_table import PostgresQuery, StreamTable
from applier.refresh.computing.long_refreshes import LongRefreshes
from applier.refresh.computing.worker_pool import WorkerPool
from applier.refresh.method.refresh import Refresh, RefreshResult
from applier.refresh.method.strategy import RefreshMethod, RefreshReason, Strategy
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId


def refresh(table_id: int) -> Refresh:
    table = StreamTable(
        table_id, TableId("public", f"st{table_id}"), table_id, (), PostgresQuery("", frozenset(), True, "")
    )
    strategy = Strategy(RefreshMethod.FULL, RefreshReason.MODE)
    return Refresh(cast(Any, None), table, LsnRange(Lsn(1), Lsn(2)), strategy, 0, 0, datetime.now(UTC))


def test_one_that_raises_does_not_take_the_others_along() -> None:
    finished: list[int] = []

    def fail(error: Exception) -> RefreshResult:
        raise error

    workers = WorkerPool(lambda: 1, "long")
    long_refreshes = LongRefreshes(workers, lambda: finished.append(1))
    one, two, three, four = (refresh(i) for i in range(1, 5))
    good = {r.table.id: RefreshResult(r, None, datetime.now(UTC), 1.0) for r in (one, four)}
    long_refreshes.start(one, lambda: good[1])
    long_refreshes.start(two, lambda: fail(OverflowError("a secret")))
    long_refreshes.start(three, lambda: fail(Infrastructure("the broker is away")))
    long_refreshes.start(four, lambda: good[4])
    workers.close()
    finished_refreshes = long_refreshes.find_finished()
    results = {result.refresh.table.id: result for result in long_refreshes.take_finished(finished_refreshes)}
    assert results[1] is good[1] and results[4] is good[4] and not long_refreshes.has_any
    own, away = results[2].outcome, results[3].outcome
    assert isinstance(own, UnexpectedFailure) and "OverflowError" in own.problem and "secret" not in str(own)
    assert isinstance(away, Infrastructure) and away.retryable
    assert len(finished) == 4
