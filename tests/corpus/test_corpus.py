"""The corpus of 22 TPC-H queries and 108 others: which are accepted, and that each accepted one equals PostgreSQL.

`CORPUS=rewrite` writes accepted.txt again; it may only grow. `CORPUS_SEEDS` (2) and `CORPUS_ONLY` (a regular
expression of names) make the test longer or shorter. An accepted query that is not listed yet is also compared.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.arrange.fixpoint import fixpoint
from applier.arrange.materialized import MaterializedRows
from applier.operators.incrementalize import delta, snapshot
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.nodes import Field, Recursion, Scan, fields
from applier.spark.views import create_view
from applier.sql.plan_query import PlannedQuery, plan_query
from applier.sql.refusal import Refused
from applier.zset import WEIGHT, ZSet
from tests.applier.functions.frames import Row, collect, exact, fetch, frame
from tests.applier.plan.golden_file import check_text
from tests.applier.sql.snapshots import weighted
from tests.corpus.data import Tables, churn, tables
from tests.corpus.queries import ACCEPTED, EXTRA, FOLDER, QUERIES, TPCH

SEEDS = range(1, 1 + int(os.environ.get("CORPUS_SEEDS", "2")))
ONLY = re.compile(os.environ.get("CORPUS_ONLY", ""))
CHURN_EVERY = int(os.environ.get("CORPUS_CHURN_EVERY", min(2, len(SEEDS))))
"""A seed runs every n-th accepted query through an LSN range of changes; the next seed runs the next ones."""

CHANGED_SHARE = 0.8
"""At least this many of them have another result afterwards; the others only show that the delta is empty."""


@pytest.fixture(scope="module")
def corpus(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.url, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute("DROP SCHEMA IF EXISTS corpus CASCADE")
        connection.execute("CREATE SCHEMA corpus")
        connection.execute("SET search_path = corpus")
        connection.execute((FOLDER / "schema.sql").read_bytes())
        yield connection
        connection.execute("DROP SCHEMA corpus CASCADE")


def _load(connection: psycopg.Connection[Any], rows: Tables) -> None:
    for table, found in rows.items():
        name = sql.Identifier(table)
        connection.execute(sql.SQL("TRUNCATE {}").format(name))
        with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
            for row in found:
                copy.write_row(row)


def _read(connection: psycopg.Connection[Any], scan: Scan) -> list[Row]:
    columns = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
    return fetch(connection, sql.Identifier(scan.table.schema, scan.table.name), columns)


class Ends:
    """Both ends of an LSN range as they were in PostgreSQL, one view per scan; `after` is filled by `moved`."""

    small = True

    def __init__(self, spark: SparkSession, connection: psycopg.Connection[Any]) -> None:
        self._spark = spark
        self._connection = connection
        self._rows: dict[tuple[Scan, Side], list[Row]] = {}
        self._sides: dict[tuple[Scan, Side], str] = {}
        self._deltas: dict[Scan, str | None] = {}
        self._computed = MaterializedRows(spark)

    def load(self, scan: Scan, side: Side) -> None:
        if (scan, side) not in self._sides:
            self._rows[scan, side] = _read(self._connection, scan)
            rows = frame(self._spark, self._rows[scan, side], [f.type.spark for f in scan.fields])
            self._sides[scan, side] = create_view(rows.selectExpr("*", f"1L AS {WEIGHT}"))

    def delta(self, scan: Scan) -> ZSet | None:
        """Return the rows that are at one end only, as a trace returns them."""
        if scan not in self._deltas:
            self._deltas[scan] = self._difference(scan)
        view = self._deltas[scan]
        return None if view is None else ZSet.of_view(view, len(scan.fields))

    def _difference(self, scan: Scan) -> str | None:
        old, new = (
            {_numbered(tuple(map(exact, row)), seen): row for row in self._rows[scan, side]}
            for side, seen in ((Side.BEFORE, Counter[Row]()), (Side.AFTER, Counter[Row]()))
        )
        rows = [(*row, -1) for key, row in old.items() if key not in new]
        rows += [(*row, 1) for key, row in new.items() if key not in old]
        if not rows:
            return None
        names = [f"c{i}" for i in range(len(scan.fields))]
        found = frame(self._spark, rows, [*(f.type.spark for f in scan.fields), "bigint"])
        return create_view(found.selectExpr(*names, f"c{len(names)} AS {WEIGHT}"))

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        return linear_map(ZSet.of_view(self._sides[scan, side], len(scan.fields)))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        return None

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        return ZSet.of_view(fixpoint(self._spark, node, base, step), len(base.columns))

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        return self._computed.materialize_once(zset, columns)

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        return self._computed.materialize_small(zset, columns)

    def state_of(self, node: StatefulNode) -> None:
        return None


def _numbered(row: Row, seen: Counter[Row]) -> Row:
    """Number equal rows, so that they can be distinguished."""
    seen[row] += 1
    return (*row, seen[row])


def _definitions(connection: psycopg.Connection[Any]) -> dict[str, PlannedQuery]:
    found = {}
    for name, query in QUERIES.items():
        try:
            found[name] = plan_query(connection, query, "corpus")
        except Refused:
            continue
    return found


def _scans(definition: PlannedQuery) -> list[Scan]:
    from applier.plan.nodes import scans

    return list(dict.fromkeys(scans(definition.plan.root)))


def _expected(connection: psycopg.Connection[Any], name: str, definition: PlannedQuery) -> list[Row]:
    typed = list(zip(definition.plan.names, (f.type for f in fields(definition.plan.root)), strict=True))
    inner = QUERIES[name].rstrip().removesuffix(";")
    return fetch(connection, sql.SQL("({}\n) q").format(sql.SQL(inner)), typed)


def _close(value: Any) -> Any:
    """Round floats: PostgreSQL adds them in the order of the rows, so the last digits vary; zero has no sign."""
    return ("float", f"{value + 0.0:.12e}") if isinstance(value, float) and value == value else exact(value)


def _multiset(rows: list[Row]) -> Counter[Row]:
    return Counter(tuple(_close(v) for v in row) for row in rows)


def test_the_accepted_queries_are_as_listed(corpus: psycopg.Connection[Any]) -> None:
    accepted = _definitions(corpus)
    if os.environ.get("CORPUS") == "rewrite":
        (FOLDER / "accepted.txt").write_text("".join(f"{name}\n" for name in accepted))
    lost = [name for name in ACCEPTED if name not in accepted]
    assert not lost, f"no longer accepted: {lost}"
    counts = (
        f"{sum(n in accepted for n in TPCH)} of {len(TPCH)} TPC-H, {sum(n in accepted for n in EXTRA)} of {len(EXTRA)}"
    )
    print(f"{counts} others; not listed yet: {[name for name in accepted if name not in ACCEPTED]}")


def test_what_is_refused_says_why_and_what_full_mode_does(corpus: psycopg.Connection[Any]) -> None:
    lines = []
    for name in (n for n in QUERIES if n not in ACCEPTED):
        with pytest.raises(Refused) as caught:
            plan_query(corpus, QUERIES[name], "corpus")
        refused = caught.value
        lines.append(f"{name}: [{refused.reason.value}] {refused.construct} at {refused.place}; hint: {refused.hint}")
        assert refused.full_in_postgres
        corpus.execute(sql.SQL("SELECT count(*) FROM ({}) q").format(sql.SQL(QUERIES[name].rstrip().removesuffix(";"))))
    check_text(FOLDER / "refused.txt", "".join(f"{line}\n" for line in lines))


@pytest.mark.timeout(int(os.environ.get("CORPUS_TIMEOUT", "900")))
@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_queries_equal_postgres(corpus: psycopg.Connection[Any], interpreted: SparkSession, seed: int) -> None:
    spark = interpreted
    before = tables(seed)
    _load(corpus, before)
    accepted = {name: d for name, d in _definitions(corpus).items() if ONLY.search(name)}
    ends = Ends(spark, corpus)
    for definition in accepted.values():
        for scan in _scans(definition):
            ends.load(scan, Side.BEFORE)
    wrong: list[str] = []
    old = {}
    for name, definition in accepted.items():
        ours, old[name] = _snapshot(spark, definition, Side.BEFORE, ends), _expected(corpus, name, definition)
        wrong += _difference(name, ours, old[name])
    _load(corpus, churn(before, seed))
    changed = [name for number, name in enumerate(accepted) if _has_its_turn(number, seed)]
    unmoved = []
    for name in changed:
        definition = accepted[name]
        for scan in _scans(definition):
            ends.load(scan, Side.AFTER)
        new = _expected(corpus, name, definition)
        unmoved += [name] if _multiset(old[name]) == _multiset(new) else []
        wrong += _maintained(spark, name, definition, ends, (old[name], new))
    assert not wrong, "\n".join(wrong)
    assert ONLY.pattern or len(unmoved) <= (1 - CHANGED_SHARE) * len(changed), unmoved


def _has_its_turn(number: int, seed: int) -> bool:
    return number % CHURN_EVERY == seed % CHURN_EVERY


def test_every_accepted_query_is_maintained_through_changes() -> None:
    assert all(any(_has_its_turn(number, seed) for seed in SEEDS) for number in range(len(ACCEPTED)))


def _snapshot(spark: SparkSession, definition: PlannedQuery, side: Side, ends: Ends) -> list[Row]:
    return weighted(spark.sql(snapshot(definition.plan.root, side, ends).sql))


def _difference(name: str, ours: list[Row], theirs: list[Row]) -> Iterator[str]:
    got, expected = _multiset(ours), _multiset(theirs)
    if got != expected:
        yield f"{name}: unexpected {list((got - expected).items())[:2]}, missing {list((expected - got).items())[:2]}"


def _maintained(
    spark: SparkSession, name: str, definition: PlannedQuery, ends: Ends, contents: tuple[list[Row], list[Row]]
) -> Iterator[str]:
    """Check that before + delta = after, both as computed by PostgreSQL."""
    changed = delta(definition.plan.root, ends)
    summed: Counter[Row] = Counter(_multiset(contents[0]))
    for *values, weight in [] if changed is None else collect(spark.sql(changed.sql)):
        summed[tuple(_close(v) for v in values)] += weight
    expected = _multiset(contents[1])
    summed.subtract(expected)
    off = {row: n for row, n in summed.items() if n}
    if off:
        yield f"{name}: after the changes {list(off.items())[:3]}"
