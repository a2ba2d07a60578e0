"""What does a change cost, against computing everything again: by Spark, and by REFRESH MATERIALIZED VIEW?

Five shapes over growing tables and growing changes (70 % updates, 15 % deletes, 15 % inserts), then the 22 queries of
TPC-H. A tick computes the delta and writes it to PostgreSQL. After each part every stream table is compared with its
query.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.busy import BusyMeter
from tests.benchmarks.laboratory import Laboratory, Measured, laboratory
from tests.corpus.queries import FOLDER, TPCH
from tests.workloads.tpch import TABLES, fill

SHAPES = {
    "scan": "SELECT id, dim, grp, amount FROM fact",
    "filter": "SELECT id, amount FROM fact WHERE flag < 10",
    "aggregate": "SELECT grp, count(*) AS n, sum(amount) AS total FROM fact GROUP BY grp",
    "join": "SELECT f.id, f.amount, d.name FROM fact f JOIN dim d ON d.id = f.dim",
    "join_aggregate": "SELECT d.region, count(*) AS n, sum(f.amount) AS total FROM fact f JOIN dim d ON d.id = f.dim"
    " GROUP BY d.region",
}
DIMS = 10_000
FRACTIONS = (0.0001, 0.001, 0.01, 0.1)
ROUNDS = 3
WARM_ROUNDS = 8
"""Warm-up ticks, not counted: a real applier runs for weeks, and by then the JIT compiler has compiled such plans."""


def load_shapes(lab: Laboratory, rows: int) -> None:
    """Create the two tables, and for each shape a filled stream table and a materialized view."""
    lab.connection.execute("CREATE TABLE dim (id int PRIMARY KEY, name text NOT NULL, region int NOT NULL)")
    lab.connection.execute(
        "CREATE TABLE fact (id bigint PRIMARY KEY, dim int NOT NULL, grp int NOT NULL, amount numeric(12,2) NOT NULL,"
        " flag int NOT NULL, note text NOT NULL)"
    )
    lab.connection.execute(
        f"INSERT INTO dim SELECT i, 'name ' || i, i % 100 FROM generate_series(1, {DIMS}) i".encode()
    )
    lab.connection.execute(
        f"INSERT INTO fact SELECT i, {_values('i')} FROM generate_series(1::bigint, {rows}) i".encode()
    )
    lab.connection.execute("ANALYZE")
    for table in ("dim", "fact"):
        lab.capture(table)
    for shape, query in SHAPES.items():
        _say(f"{shape} over {rows} rows: filled in {_filled(lab, shape, query).seconds:.1f} s")


def _values(number: str) -> str:
    return (
        f"1 + ({number} * 7919) % {DIMS}, ({number} * 104729) % 1000, (({number} * 31) % 100000) / 100.0,"
        f" ({number} * 17) % 100, 'note ' || {number}"
    )


def _filled(lab: Laboratory, name: str, query: str) -> Measured:
    lab.create(name, query)
    filled = lab.tick(name)
    lab.connection.execute(f"CREATE MATERIALIZED VIEW {name}_view AS {query}".encode())
    return filled


def change_facts(lab: Laboratory, rows: int, changes: int, turn: int) -> None:
    """Make `changes` changes, spread over the table, in one LSN range."""
    step = max(1, rows // changes)
    chosen = f"id <= {rows} AND id % {step} = {turn % step}"
    slots = f"(id / {step})"
    lab.change(
        "fact",
        f"UPDATE fact SET amount = amount + {turn + 1}, dim = 1 + (dim + 77) % {DIMS}, grp = (grp + 1) % 1000"
        f" WHERE {chosen} AND {slots} % 20 < 14",
    )
    lab.change("fact", f"DELETE FROM fact WHERE {chosen} AND {slots} % 20 BETWEEN 14 AND 16")
    first = f"(SELECT max(id) FROM fact) + g, {_values('g')}"
    lab.change(
        "fact", f"INSERT INTO fact SELECT {first} FROM generate_series(1::bigint, {max(1, changes * 3 // 20)}) g"
    )
    lab.step()


def measure_shapes(lab: Laboratory, rows: int, fractions: Sequence[float]) -> dict[str, Any]:
    """Measure all shapes; return the results by shape and fraction."""
    load_shapes(lab, rows)
    found: dict[str, dict[str, Any]] = {shape: {} for shape in SHAPES}
    full = {shape: min(lab.full(shape) for _ in range(WARM_ROUNDS)) for shape in SHAPES}
    turn = 0
    for fraction in fractions:
        ticks: dict[str, list[Measured]] = {shape: [] for shape in SHAPES}
        for warm in (*[True] * (1 if turn else WARM_ROUNDS), *[False] * ROUNDS):
            change_facts(lab, rows, max(1, int(rows * fraction)), turn)
            turn += 1
            for shape in SHAPES:
                tick = lab.tick(shape)
                if not warm:
                    ticks[shape].append(tick)
        for shape in SHAPES:
            middle = statistics.median(tick.seconds for tick in ticks[shape])
            found[shape][f"{fraction:g}"] = line = {
                "tick_s": round(middle, 4),
                "compute_s": round(statistics.median(tick.compute_s for tick in ticks[shape]), 4),
                "spark_full_s": round(full[shape], 4),
                "matview_s": round(lab.refreshed(f"{shape}_view"), 4),
                "jobs": max(tick.jobs for tick in ticks[shape]),
                "rows": ticks[shape][-1].rows,
                "read": ticks[shape][-1].read,
            }
            _say(f"{shape:15} {rows:>9} {fraction:>7.2%} " + _shown(line))
    for shape, query in SHAPES.items():
        if different := lab.differences(shape, query):
            raise AssertionError(f"{shape}: {different} rows differ from PostgreSQL's")
    return found


def load_tpch(lab: Laboratory, scale: float) -> None:
    """Generate and load the eight tables."""
    lab.connection.execute((FOLDER / "schema.sql").read_bytes().split(b"CREATE TYPE mood")[0])
    fill(lab.connection, scale)
    # Indexes that users of such queries have in PostgreSQL: without them q17 takes hours there.
    lab.connection.execute("CREATE INDEX ON lineitem (l_partkey, l_suppkey); CREATE INDEX ON orders (o_custkey)")
    lab.connection.execute("ANALYZE")
    for table in TABLES:
        lab.capture(table)


def refresh_orders(lab: Laboratory, fraction: float, turn: int) -> None:
    """Insert orders with their items and delete as many old ones: TPC-H's two refresh functions in one LSN range."""
    step = int(1 / fraction)
    (top,) = lab.connection.execute("SELECT max(o_orderkey) FROM orders").fetchall()[0]
    kept = f"o_orderkey % {step} = {turn}"
    items = f"l_orderkey % {step} = {turn}"
    lab.change(
        "orders",
        f"INSERT INTO orders SELECT o_orderkey + {top}, o_custkey, o_orderstatus, o_totalprice, o_orderdate,"
        f" o_orderpriority, o_clerk, o_shippriority, o_comment FROM orders WHERE {kept} AND o_orderkey <= 6000000",
    )
    lab.change(
        "lineitem",
        f"INSERT INTO lineitem SELECT l_orderkey + {top}, l_partkey, l_suppkey, l_linenumber, l_quantity,"
        " l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,"
        f" l_shipinstruct, l_shipmode, l_comment FROM lineitem WHERE {items} AND l_orderkey <= 6000000",
    )
    gone = f"% {step} = {turn + 500}"
    lab.change("lineitem", f"DELETE FROM lineitem WHERE l_orderkey {gone}")
    lab.change("orders", f"DELETE FROM orders WHERE o_orderkey {gone}")
    lab.step()


def measure_tpch(lab: Laboratory, scale: float, only: Sequence[str]) -> dict[str, Any]:
    """Measure the TPC-H queries; return the results by query."""
    load_tpch(lab, scale)
    queries = {name: query for name, query in TPCH.items() if not only or name in only}
    found: dict[str, Any] = {}
    for name, query in queries.items():
        lab.create(name, query)
        filled = lab.tick(name)
        found[name] = {"spark_full_s": round(lab.full(name), 4), "fill_s": round(filled.seconds, 3), "ticks": []}
        lab.connection.execute(f"CREATE MATERIALIZED VIEW {name}_view AS {query} WITH NO DATA".encode())
        _say(f"{name}: fill {filled.seconds:.2f} s, full {found[name]['spark_full_s']} s")
    for turn in range(WARM_ROUNDS + ROUNDS):
        refresh_orders(lab, 0.001, turn)
        for name in queries:
            tick = lab.tick(name)
            if turn >= WARM_ROUNDS:
                found[name]["ticks"].append(tick)
        _say(f"round {turn + 1} of {WARM_ROUNDS + ROUNDS}")
    for name in queries:
        found[name]["spark_full_s"] = min(found[name]["spark_full_s"], *(round(lab.full(name), 4) for _ in range(2)))
    for name, query in queries.items():
        ticks: list[Measured] = found[name].pop("ticks")
        found[name]["tick_s"] = round(statistics.median(t.seconds for t in ticks), 4)
        found[name] |= {"jobs": ticks[-1].jobs, "rows": ticks[-1].rows, "read": ticks[-1].read}
        found[name]["strategy"] = "differential"
        found[name]["matview_s"] = round(lab.refreshed(f"{name}_view"), 4)
        _say(f"{name}: " + _shown(found[name]))
        if different := lab.differences(name, query):
            raise AssertionError(f"{name}: {different} rows differ from PostgreSQL's")
    return found


def _shown(line: dict[str, Any]) -> str:
    ratio = line["spark_full_s"] / line["tick_s"]
    view = f", {line['matview_s'] / line['tick_s']:.2f}x the view's" if "matview_s" in line else ""
    work = f"{line['jobs']} jobs, {line['read']} rows read, {line['rows']} changed"
    return f"tick {line['tick_s']:.3f} s, {ratio:.2f}x Spark's full{view}, {work}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def verdict(report: dict[str, Any], sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures that have limits."""
    out: dict[str, Any] = {}
    shapes = report.get("shapes", {})
    if shapes and len(sizes) > 1:
        small, large = str(sizes[-2]), str(sizes[-1])
        out["growth_10m_over_1m"] = {
            shape: round(by[large]["0.0001"]["tick_s"] / by[small]["0.001"]["tick_s"], 3)
            for shape, by in shapes.items()
        }
    if tpch := report.get("tpch"):
        ratios = [line["spark_full_s"] / line["tick_s"] for line in tpch.values()]
        out["tpch_geomean_speedup"] = round(math.exp(statistics.fmean(map(math.log, ratios))), 3)
        out["tpch_slower_than_full"] = [name for name, line in tpch.items() if line["tick_s"] >= line["spark_full_s"]]
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark: print progress to standard error and one JSON object in the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small tables only")
    parser.add_argument("--only", choices=("shapes", "tpch"), help="one of the two parts")
    parser.add_argument("--rows", type=int, action="append", help="sizes of the shapes' table")
    parser.add_argument("--fraction", type=float, action="append", help="shares of the shapes' table that change")
    parser.add_argument("--scale", type=float, help="TPC-H's scale factor; 1 has 6 million items")
    parser.add_argument("--query", action="append", default=[], help="of TPC-H only these")
    options = parser.parse_args(arguments)
    meter = BusyMeter()
    sizes = options.rows or ([20_000, 100_000] if options.short else [100_000, 1_000_000, 10_000_000])
    scale = options.scale or (0.02 if options.short else 1)
    report: dict[str, Any] = {"benchmark": "refresh", "short": options.short, "load": meter.load(), "refused": None}
    before = meter.read()
    if options.only != "tpch":
        report["shapes"] = {shape: {} for shape in SHAPES}
        for rows in sizes:
            with laboratory() as lab:
                for shape, by_fraction in measure_shapes(lab, rows, options.fraction or FRACTIONS).items():
                    report["shapes"][shape][str(rows)] = by_fraction
    if options.only != "shapes":
        with laboratory() as lab:
            report["tpch"] = measure_tpch(lab, scale, options.query)
    report |= verdict(report, sizes)
    report["others_share"] = round(meter.others_share(before, meter.read()), 3)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
