"""How fast does a computed delta get into PostgreSQL: pipelined and staged, against one COPY + one MERGE of everything?

Every contestant starts from a Spark query and ends with the commit. `pipelined` is what the applier does with a delta
of this size: executors COPY parts, PostgreSQL merges them. `batches of n` is what it does with smaller deltas:
collect, then COPY + MERGE batch by batch, with the next batch prefetched. `single shot` collects, then one COPY and
one MERGE.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from applier.catalog.install import install_catalog
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import MemoryDelta
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.staging.staging import Staging
from applier.spark.jars import SPARK_JARS, ensure
from applier.spark.session import spark_session
from applier.zset import net
from deploy.local.postgres import Postgres
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.sinks.growth import growth
from tests.applier.sinks.stream_tables import Bag, Connection, delta, executed, make, sink
from tests.benchmarks import harness
from tests.benchmarks.busy import BusyMeter

ROWS, SHORT_ROWS = 1_000_000, 100_000
PART_ROWS = 50_000
BATCH_SIZES = (256, 1024, 4096, 16384, 65536)
NOW = datetime(2024, 2, 29, tzinfo=UTC)
TICKS, ROWS_PER_TICK, LAKE_ROWS = 20, 100, 100_000


@dataclass
class Bench:
    """A stream table of a given number of rows; each run updates every row."""

    url: str
    db: Connection
    spark: SparkSession
    rows: int
    table: StreamTable = field(init=False)
    version: int = 0

    def __post_init__(self) -> None:
        self.table = make(self.db, "measured", {"a": "int", "b": "text", "v": "bigint"}, (0,))
        fill = MemoryDelta(LsnRange(Lsn(0), Lsn(10)), net(self.frame(f"{self._row(0)}, 1L AS __w").toArrow()))
        sink(self.url, 65_536).apply(self.table, fill, NOW, executed("fill"))

    @staticmethod
    def _row(version: int) -> str:
        return f"CAST(id AS int) AS c0, repeat(CAST(id % 10 AS string), 20) AS c1, id + {version}L AS c2"

    def frame(self, columns: str) -> DataFrame:
        return self.spark.sql(f"SELECT {columns} FROM range({self.rows})")

    def change(self) -> tuple[DataFrame, LsnRange]:
        """Return the next delta as a query, and its LSN range."""
        old, self.version = self.version, self.version + 1
        leaving, arriving = (
            self.frame(f"{self._row(old)}, -1L AS __w"),
            self.frame(f"{self._row(self.version)}, 1L AS __w"),
        )
        return leaving.union(arriving), LsnRange(Lsn(10 + old * 10), Lsn(20 + old * 10))

    def measured(self, run: Callable[[DataFrame, LsnRange], None]) -> harness.Measures:
        """Measure rows per second, and by how much this process grew meanwhile."""
        frame, lsn_range = self.change()
        self.db.execute("VACUUM measured")
        self.db.execute("CHECKPOINT")
        with growth() as grown:
            began = time.perf_counter()
            run(frame, lsn_range)
            took = time.perf_counter() - began
        return {"rows_per_s": self.rows / took, "driver_growth_mb": grown[0]}

    def pipelined(self) -> harness.Measures:
        def run(frame: DataFrame, lsn_range: LsnRange) -> None:
            parts = max(2, self.rows // PART_ROWS)
            staged = Staging(self.url).stage(self.table, lsn_range, frame, parts, lambda error: error)
            sink(self.url).apply(self.table, staged, NOW, executed("changes"))
            staged.lease().close()

        return self.measured(run)

    def in_batches(self, size: int) -> harness.Measures:
        def run(frame: DataFrame, lsn_range: LsnRange) -> None:
            sink(self.url, size).apply(
                self.table, MemoryDelta(lsn_range, net(frame.toArrow())), NOW, executed("changes")
            )

        return self.measured(run)

    def first_row_over_total(self) -> float:
        """Return when another session sees the first row of a progressive fill, as a fraction of the whole time."""
        table = make(self.db, "seen", {"a": "int", "b": "text", "v": "bigint"}, (0,), visibility="progressive")
        parts = max(8, self.rows // 10_000)
        seen, stop = [0.0], threading.Event()

        def watch() -> None:
            with psycopg.connect(self.url, autocommit=True) as other:
                while not stop.wait(0.005):
                    if other.execute("SELECT EXISTS (SELECT FROM seen)").fetchone() == (True,):
                        seen[0] = time.perf_counter()
                        return

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.perf_counter()
        frame = self.frame(f"{self._row(0)}, 1L AS __w")
        staged = Staging(self.url).stage(table, LsnRange(Lsn(0), Lsn(10)), frame, parts, lambda error: error)
        sink(self.url).apply(table, staged, NOW, executed("fill"))
        took = time.perf_counter() - began
        stop.set()
        watcher.join()
        staged.lease().close()
        return (seen[0] - began) / took

    def lake_ms_per_tick(self, folder: Path, per_merge: int) -> float:
        """Return the milliseconds of MERGE into a Delta table per tick, when `per_merge` ticks share one MERGE."""
        lake = DeltaSink(str(folder))
        held: Bag = Counter({(i, "x", 0): 1 for i in range(LAKE_ROWS)})
        lake.queue.add(self.table, delta(self.table, Counter(), held, (0, 10)))
        lake.flush()
        took = 0.0
        for tick in range(TICKS):
            first = tick * ROWS_PER_TICK
            old: Bag = Counter({(i, "x", 0): 1 for i in range(first, first + ROWS_PER_TICK)})
            new: Bag = Counter({(i, "y", tick): 1 for i in range(first, first + ROWS_PER_TICK)})
            lake.queue.add(self.table, delta(self.table, old, new, (10 + tick, 11 + tick)))
            if (tick + 1) % per_merge == 0:
                began = time.perf_counter()
                lake.flush()
                took += time.perf_counter() - began
        return took * 1000 / TICKS


@contextmanager
def prepared(rows: int) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="pg-trickle-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder))
        server.start()
        spark = spark_session(ensure(SPARK_JARS), scratch=Path(folder))
        try:
            with psycopg.connect(server.url, autocommit=True) as db:
                install_catalog(db)
                yield Bench(server.url, db, spark, rows)
        finally:
            spark.stop()
            server.stop()


def measure(bench: Bench, options: argparse.Namespace, meter: BusyMeter) -> dict[str, Any]:
    sizes = BATCH_SIZES[1:4] if options.short else BATCH_SIZES
    contestants = [
        harness.Contestant("pipelined", bench.pipelined),
        *(harness.Contestant(f"batches of {n}", lambda n=n: bench.in_batches(n)) for n in sizes),  # type: ignore[misc]
        harness.Contestant("single shot", lambda: bench.in_batches(bench.rows)),
    ]
    contested = harness.Benchmark("apply", f"{bench.rows} updated rows into PostgreSQL", contestants, 3, 1, 1)
    repeats = options.repeats or (contested.short_repeats if options.short else contested.repeats)
    found = harness.compare(contested, repeats, meter)
    print(harness.table(contested, found))
    results = found["results"]
    ours, theirs = (results[name]["rows_per_s"]["median"] for name in ("pipelined", "single shot"))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        lake = {n: bench.lake_ms_per_tick(Path(folder), n) for n, folder in ((1, one), (TICKS, many))}
    return {
        "pipelined_rows_per_s": round(ours),
        "single_shot_rows_per_s": round(theirs),
        "ratio": round(ours / theirs, 3),
        "driver_growth_mb": round(results["pipelined"]["driver_growth_mb"]["median"], 1),
        "single_shot_growth_mb": round(results["single shot"]["driver_growth_mb"]["median"], 1),
        "rows_per_s_by_batch": {n: round(results[f"batches of {n}"]["rows_per_s"]["median"]) for n in sizes},
        "first_row_over_total": round(bench.first_row_over_total(), 3),
        "delta_ms_per_tick": round(lake[1], 1),
        "delta_ms_per_tick_amortised": round(lake[TICKS], 1),
    }


def measured(options: argparse.Namespace, meter: BusyMeter) -> dict[str, Any]:
    """Measure everything, on servers of its own."""
    with prepared(SHORT_ROWS if options.short else ROWS) as bench:
        return measure(bench, options, meter)


if __name__ == "__main__":
    sys.exit(harness.figures("apply", __doc__, measured))
