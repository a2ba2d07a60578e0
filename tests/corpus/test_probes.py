"""Single expressions where engines tend to differ: each equals PostgreSQL, in value and type, or is refused.

`PROBES=rewrite` writes probes_right.txt again, the list of equal ones; it may only grow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.operators.incrementalize import snapshot
from applier.operators.support.inputs import Side
from applier.plan.nodes import Aggregate, Project, Scan, fields, walk
from applier.sql.plan_query import PlannedQuery, plan_query
from applier.sql.refusal import DefinitionError, Refused
from deploy.local.postgres import DEFAULT_MAJOR
from tests.applier.functions.frames import Row, collect, emit, exact, fetch, frame
from tests.applier.plan.golden_file import check_text
from tests.applier.sql.snapshots import LoadedInputs, weighted
from tests.corpus.data import tables
from tests.corpus.queries import FOLDER

RIGHT = FOLDER / "probes_right.txt"
SEED = 5
CHUNK = 40


@dataclass(frozen=True)
class Probe:
    """An expression over a table."""

    line: str
    source: str
    expression: str

    @property
    def query(self) -> str:
        return f"SELECT {self.expression} AS x FROM {self.source}"


def _probes() -> list[Probe]:
    found = []
    for line in (FOLDER / "probes.sql").read_text().splitlines():
        source, bar, expression = line.partition(" | ")
        if bar and not line.startswith("--"):
            found.append(Probe(line, "one_row" if source == "-" else source, expression))
    return found


@pytest.fixture(scope="module")
def corpus(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.url, autocommit=True, options="-c TimeZone=UTC") as connection:
        connection.execute("DROP SCHEMA IF EXISTS probes CASCADE")
        connection.execute("CREATE SCHEMA probes")
        connection.execute("SET search_path = probes")
        connection.execute((FOLDER / "schema.sql").read_bytes())
        connection.execute("CREATE TABLE one_row (one int)")
        connection.execute("INSERT INTO one_row VALUES (1)")
        for name, rows in tables(SEED).items():
            with (
                connection.cursor() as cursor,
                cursor.copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as copy,
            ):
                for row in rows:
                    copy.write_row(row)
        yield connection
        connection.execute("DROP SCHEMA probes CASCADE")


def _expected(connection: psycopg.Connection[Any], probe: Probe, definition: PlannedQuery) -> list[Row] | None:
    """Return PostgreSQL's rows, or None when it reports an error."""
    typed = [("x", f.type) for f in fields(definition.plan.root)]
    try:
        return fetch(connection, sql.SQL("({}) q").format(sql.SQL(probe.query)), typed)
    except (psycopg.DataError, psycopg.errors.FeatureNotSupported):
        return None


def _ours(connection: psycopg.Connection[Any], spark: SparkSession, definition: PlannedQuery) -> list[Row] | None:
    root = definition.plan.root

    def scanned(scan: Scan) -> list[Row]:
        columns = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
        return fetch(connection, sql.Identifier(scan.table.schema, scan.table.name), columns)

    try:
        if isinstance(root, Project) and isinstance(root.input, Scan):
            read = [f.type.spark for f in root.input.fields]
            return collect(frame(spark, scanned(root.input), read).select(*(emit(e) for e in root.exprs)))
        return weighted(spark.sql(snapshot(root, Side.AFTER, LoadedInputs(spark, scanned)).sql))
    except Exception:  # of many classes; that there is none is what the test is about
        return None


def _same(ours: list[Row], theirs: list[Row], definition: PlannedQuery) -> bool:
    shown = fields(definition.plan.root)
    # PostgreSQL adds floats in the order of the rows, so the last digits of such a sum vary.
    summed = any(isinstance(node, Aggregate) for node in walk(definition.plan.root))
    digits = [_DIGITS.get(field.type.spark) if summed else None for field in shown]
    return _texts(ours, digits) == _texts(theirs, digits)


_DIGITS = {"float": 5, "double": 11}


def _texts(rows: list[Row], digits: list[int | None]) -> list[str]:
    return sorted(str([_text(v, places) for v, places in zip(row, digits, strict=True)]) for row in rows)


def _text(value: Any, places: int | None) -> Any:
    if places is None or not isinstance(value, float) or not math.isfinite(value):
        return exact(value)
    return f"{value:.{places}e}"


def _together(spark: SparkSession, definitions: dict[Probe, PlannedQuery]) -> dict[Probe, list[Row]]:
    """Evaluate the probes over the one-row table in few queries; if one raises, skip all of its query."""
    found: dict[Probe, list[Row]] = {}
    plain = [p for p, d in definitions.items() if isinstance(d.plan.root, Project) and p.source == "one_row"]
    for start in range(0, len(plain), CHUNK):
        chunk = plain[start : start + CHUNK]
        exprs = [e for p in chunk if isinstance(root := definitions[p].plan.root, Project) for e in root.exprs]
        try:
            rows = collect(frame(spark, [(1,)], ["int"]).select(*(emit(e).alias(f"r{i}") for i, e in enumerate(exprs))))
        except Exception:  # the caller tries them one by one
            continue
        found |= {probe: [(value,)] for probe, value in zip(chunk, rows[0], strict=True)}
    return found


@pytest.mark.timeout(900)
def test_no_probe_is_silently_different(corpus: psycopg.Connection[Any], spark: SparkSession) -> None:
    right, different, refusals = [], [], []
    definitions: dict[Probe, PlannedQuery] = {}
    for probe in _probes():
        try:
            definitions[probe] = plan_query(corpus, probe.query, "probes")
        except Refused as refused:
            full = "can" if refused.full_in_postgres else "cannot"
            refusals.append(f"{probe.line}\n    [{refused.reason.value}] {refused.construct}; hint: {refused.hint}")
            refusals[-1] += f"; FULL mode {full} take it\n"
        except DefinitionError:
            right.append(probe.line)
    theirs = {probe: _expected(corpus, probe, definition) for probe, definition in definitions.items()}
    known = _together(spark, {p: d for p, d in definitions.items() if theirs[p] is not None})
    for probe, definition in definitions.items():
        expected, ours = theirs[probe], known.get(probe) or _ours(corpus, spark, definition)
        if (expected is None and ours is None) or (
            expected is not None and ours is not None and _same(ours, expected, definition)
        ):
            right.append(probe.line)
        elif ours is not None:
            different.append(f"{probe.line}: Spark {ours}, PostgreSQL {expected}")
        else:
            print(f"raises: {probe.line}, PostgreSQL {expected}")
    print(f"{len(right)} of {len(_probes())} probes are right, {len(refusals)} refused")
    if corpus.info.server_version // 10_000 == DEFAULT_MAJOR:
        check_text(FOLDER / "probes_refused.txt", "".join(refusals))
    if os.environ.get("PROBES") == "rewrite":
        RIGHT.write_text("".join(f"{line}\n" for line in sorted(right)))
    assert not different, "\n".join(different)
    lost = set(RIGHT.read_text().splitlines()) - set(right)
    assert not lost, "no longer right:\n" + "\n".join(sorted(lost))
