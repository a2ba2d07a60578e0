"""After a start the rows that stream tables read come into memory, and nobody's error stops the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.runtime.preload import Preload
from applier.trace.segment import Segment
from shared_schema.table_schema import TableId


def trace(name: str, load: Callable[[], Any], rows: int) -> Any:
    return SimpleNamespace(
        table=TableId("public", name), base=SimpleNamespace(rows=rows, segments=(Segment(load, rows),))
    )


def test_what_is_read_is_loaded_small_ones_first_and_an_error_concerns_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("applier.runtime.preload.THREADS", 1)
    order: list[str] = []

    def load(name: str) -> Callable[[], Any]:
        def run() -> Any:
            order.append(name)
            if name == "broken":
                raise OSError("gone")
            return spark.range(1)

        return run

    traces = {
        one.table: one
        for one in (
            trace("large", load("large"), 9),
            trace("broken", load("broken"), 5),
            trace("small", load("small"), 1),
        )
    }
    ticks = iter([False, True])
    wanted = [*traces, TableId("public", "not_captured")]
    preload = Preload(spark, traces, lambda: wanted, lambda: next(ticks))  # type: ignore[arg-type]
    preload.run(threading.Event())
    assert order == ["small", "broken", "large"]
    loaded = {table.name: one.base.segments[0].is_loaded for table, one in traces.items()}
    assert loaded == {"large": True, "broken": False, "small": True}


def test_nothing_is_loaded_when_the_applier_stops_first(spark: SparkSession) -> None:
    stopping = threading.Event()
    stopping.set()
    Preload(spark, {}, lambda: 1 / 0, lambda: False).run(stopping)  # type: ignore[arg-type, return-value]
