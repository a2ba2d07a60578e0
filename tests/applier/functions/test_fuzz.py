"""Every entry of the allow-list against PostgreSQL, with Spark's code generation on and off.

One table holds two columns per fuzzed type: every pair of edge values (NULL among them), then random values. All
calls of all entries are evaluated over it, in few queries. Rows for which PostgreSQL reports an error are guarded by
CASE in both engines; a sample of them is then tried alone, and Spark must report an error too.

`FUZZ_ROWS` and `FUZZ_SEED` make it longer or different, `FUZZ_ONLY` (a regular expression) selects some entries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from applier.functions.allow_list import ENTRIES
from applier.functions.emit import spark_sql
from applier.functions.entry import CollationNeed, Entry, Fixed, template
from applier.plan.nodes import Node, Project, Scan, fields
from applier.sql.plan_query import plan_query
from applier.sql.refusal import Refused
from tests.applier.functions.frames import collect, emit, exact, fetch, frame
from tests.applier.functions.values import edges, pg_type, random_value
from tests.fixtures.choice import postgres_major

RANDOM_ROWS = int(os.environ.get("FUZZ_ROWS", "150"))
ONLY = re.compile(os.environ.get("FUZZ_ONLY", ""))
SEED = int(os.environ.get("FUZZ_SEED", "20240229"))
LONG = "FUZZ_ROWS" in os.environ
MANY, SOME_OF_MANY = 21, 3
"""For entries with more calls than this, every third is tried, unless the run is a long one."""
CHUNK = 60
"""Calls per query: few enough that Spark compiles them."""
RAISING_SAMPLE = int(os.environ.get("FUZZ_RAISING", "1"))
"""Rows tried per call that raises; the first of them with generated code for one half of the calls."""
COLUMNS = 3
"""Columns per type, as many as a function has arguments of one type."""

MODES = {
    "generated": {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY"},
    "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}
_COMMON = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    "spark.sql.codegen.maxFields": "500",
    "spark.sql.codegen.fallback": "false",
}

_TRY: LiteralString = """
CREATE FUNCTION fuzz_try(call text) RETURNS bool[] LANGUAGE plpgsql AS $$
DECLARE failed bool[] := '{}'; row_id int; ignored text;
BEGIN
  FOR row_id IN SELECT id FROM fuzz ORDER BY id LOOP
    BEGIN
      EXECUTE format('SELECT (%s)::text FROM fuzz WHERE id = $1', call) INTO ignored USING row_id;
      failed := failed || false;
    EXCEPTION WHEN data_exception OR feature_not_supported OR program_limit_exceeded THEN
      failed := failed || true;
    END;
  END LOOP;
  RETURN failed;
END $$
"""


@dataclass(frozen=True)
class Trial:
    """One call of one entry over columns of the fuzz table; `guard` names the column of rows that raise."""

    entry: Entry
    call: str
    guard: str | None

    @property
    def guarded(self) -> str:
        return self.call if self.guard is None else f"CASE WHEN {self.guard} THEN NULL ELSE {self.call} END"


def _column(type_name: str, side: int) -> str:
    return "".join(c if c.isalnum() else "_" for c in type_name) + "_abc"[side + 1]


def _trials() -> list[Trial]:
    found: list[Trial] = []
    for entry in ENTRIES.values():
        tried = ONLY.search(entry.signature) and entry.since <= postgres_major()
        step = SOME_OF_MANY if len(entry.fuzz) > MANY and not LONG else 1
        for arguments in entry.fuzz[::step] if tried else ():
            texts, used = [], 0
            for argument in arguments:
                if isinstance(argument, Fixed):
                    texts.append(argument.sql)
                else:
                    texts.append(_column(argument, used))
                    used += 1
            guard = f"bad_{len(found)}" if entry.raises else None
            found.append(Trial(entry, entry.written.format(*texts, all=", ".join(texts)), guard))
    return found


def _types() -> list[str]:
    return sorted({a for e in ENTRIES.values() for args in e.fuzz for a in args if not isinstance(a, Fixed)})


def _rows(types: Sequence[str], random: Random) -> Iterator[list[str | None]]:
    choices = {t: [None, *edges(t)] for t in types}
    size = len(choices[types[0]])
    for first, second in product(range(size), repeat=2):
        yield [choices[t][i] for t in types for i in (first, second, random.randrange(size))]
    for _ in range(RANDOM_ROWS):
        yield [None if random.random() < 0.05 else random_value(t, random) for t in types for _ in range(COLUMNS)]


def _fill(connection: psycopg.Connection[Any], trials: Sequence[Trial]) -> None:
    types = _types()
    columns = [f"{_column(t, side)} {pg_type(t)}{_collation(t)}" for t in types for side in range(COLUMNS)]
    guards = [f"{t.guard} bool" for t in trials if t.guard]
    connection.execute("CREATE TYPE fuzz_mood AS ENUM ('sad', 'ok', 'happy', 'a b', 'Ok')")
    connection.execute(f"CREATE TABLE fuzz (id serial PRIMARY KEY, {', '.join(columns + guards)})".encode())
    names = ", ".join(_column(t, side) for t in types for side in range(COLUMNS))
    with connection.cursor() as cursor, cursor.copy(f"COPY fuzz ({names}) FROM STDIN".encode()) as copy:
        for row in _rows(types, Random(SEED)):
            copy.write_row(row)
    connection.execute(_TRY)
    if not guards:
        return
    sources = ", ".join(f"fuzz_try($f${t.call}$f$) AS {t.guard}" for t in trials if t.guard)
    sets = ", ".join(f"{t.guard} = f.{t.guard}[id]" for t in trials if t.guard)
    connection.execute(f"UPDATE fuzz SET {sets} FROM (SELECT {sources}) f".encode())


def _collation(type_name: str) -> str:
    return ' COLLATE "C"' if pg_type(type_name) in ("text", "char(6)", "varchar(10)", "text[]") else ""


@contextmanager
def _configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@pytest.fixture(scope="module")
def quiet_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield Spark with less logging: errors are expected here, and their stack traces would hide everything else."""
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.sparkContext.setLogLevel("ERROR")


def _scan(node: Node) -> Scan:
    assert isinstance(node, Project)
    assert isinstance(node.input, Scan)
    return node.input


def _chunks(trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
    for start in range(0, len(trials), CHUNK):
        yield trials[start : start + CHUNK]


@pytest.mark.timeout(int(os.environ.get("FUZZ_TIMEOUT", "1200")))
def test_every_entry_equals_postgres(database: str, quiet_spark: SparkSession) -> None:
    trials = _trials()
    wrong: list[str] = []
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC") as connection:
        _fill(connection, trials)
        for chunk in _chunks(trials):
            wrong += _differences(connection, quiet_spark, chunk)
        wrong += _silent(connection, quiet_spark, trials)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_entry_is_noticed(database: str, quiet_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ENTRIES["int4mod(int4,int4)"]
    broken = replace(honest, sql=template("pmod({0}, {1})"))
    monkeypatch.setitem(ENTRIES, honest.signature, broken)
    trials = [t for t in _trials() if t.entry is broken]
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC") as connection:
        _fill(connection, trials)
        assert len(_differences(connection, quiet_spark, trials)) == len(MODES)


def _differences(connection: psycopg.Connection[Any], spark: SparkSession, chunk: Sequence[Trial]) -> list[str]:
    """Return the calls whose values differ, in either mode."""
    expressions = [f"{t.guarded} AS r{i}" for i, t in enumerate(chunk)]
    query = f"SELECT id, {', '.join(expressions)} FROM fuzz"
    try:
        plan = plan_query(connection, query, "public").plan.root
    except Refused as refused:
        if len(chunk) > 1:
            return [line for trial in chunk for line in _differences(connection, spark, [trial])]
        return [f"{chunk[0].call}: {refused}"]
    scan = _scan(plan)
    assert isinstance(plan, Project)
    names = ["id", *(f"r{i}" for i in range(len(chunk)))]
    typed = list(zip(names, (f.type for f in fields(plan)), strict=True))
    source = sql.SQL("({}) q").format(sql.SQL(query))
    expected = {row[0]: row for row in fetch(connection, source, typed)}
    read = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
    rows = fetch(connection, sql.SQL("fuzz"), read)
    out: list[str] = []
    for mode, settings in MODES.items():
        with _configured(spark, _COMMON | settings):
            below = frame(spark, rows, [t.spark for _, t in read])
            result = below.select(*(emit(e).alias(f"r{i}") for i, e in enumerate(plan.exprs)))
            out += _types_of(result, [f.type.spark for f in fields(plan)], chunk)
            try:
                got = collect(result)
            except Exception as error:
                if len(chunk) > 1:
                    return [line for trial in chunk for line in _differences(connection, spark, [trial])]
                out.append(f"{mode} {chunk[0].call}: {_last_cause(error)}")
            else:
                out += _compare(expected, got, chunk, mode)
    return out


def _last_cause(error: Exception) -> str:
    lines = str(error).splitlines()
    causes = [line for line in lines if "Caused by" in line or "PostgreSQL would" in line]
    return (causes or lines)[-1][:300]


def _types_of(result: DataFrame, key_filter: Sequence[str], chunk: Sequence[Trial]) -> list[str]:
    got = [f.dataType.simpleString() for f in result.schema.fields]
    names = ["id", *(t.call for t in chunk)]
    return [f"{n} is {g}, declared {w}" for n, g, w in zip(names, got, key_filter, strict=True) if g != w]


def _compare(
    expected: dict[int, tuple[Any, ...]], rows: Sequence[tuple[Any, ...]], chunk: Sequence[Trial], mode: str
) -> list[str]:
    assert len(rows) == len(expected)
    out: dict[str, str] = {}
    for row in rows:
        for trial, ours, theirs in zip(chunk, row[1:], expected[row[0]][1:], strict=True):
            if exact(ours) != exact(theirs):
                out.setdefault(trial.call, f"{mode} {trial.call}: row {row[0]}: Spark {ours!r}, PostgreSQL {theirs!r}")
    return list(out.values())


def _silent(connection: psycopg.Connection[Any], spark: SparkSession, trials: Sequence[Trial]) -> list[str]:
    """Return the calls for which PostgreSQL reports an error and Spark does not."""
    raising = [t for t in trials if t.guard]
    out: list[str] = []
    raised: set[str] = set()
    for chunk in _chunks(raising):
        query = f"SELECT {', '.join(f'{t.call} AS r{i}' for i, t in enumerate(chunk))} FROM fuzz"
        plan = plan_query(connection, query, "public").plan.root
        scan = _scan(plan)
        assert isinstance(plan, Project)
        read = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
        for number, (trial, expr) in enumerate(zip(chunk, plan.exprs, strict=True)):
            if RAISING_SAMPLE == 1 and trial.entry.signature in raised:
                continue
            where = f"(SELECT * FROM fuzz WHERE {trial.guard} ORDER BY md5(id::text) LIMIT {RAISING_SAMPLE}) q"
            rows = fetch(connection, sql.SQL(where), read)
            raised |= {trial.entry.signature} if rows else set()
            for row, (mode, settings) in zip(rows, _alternating(number), strict=False):
                with _configured(spark, settings):
                    below = frame(spark, [row], [t.spark for _, t in read])
                    if not _raises(below, spark_sql(expr)):
                        out.append(f"{mode} {trial.call} does not raise for {row}")
    return out + [f"{s} never raises" for s in {t.entry.signature for t in raising} - raised]


def _alternating(number: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Alternate between a real job with generated code and one where the optimizer evaluates the call itself."""
    while True:
        if number % 2 == 0:
            yield "generated", _COMMON | MODES["generated"]
        else:
            yield "interpreted", MODES["interpreted"]
        number += 1


_ERRORS = (
    "OVERFLOW",
    "DIVIDE_BY_ZERO",
    "OUT_OF_RANGE",
    "REMAINDER_BY_ZERO",
    "USER_RAISED_EXCEPTION",
    "PostgreSQL would report",
)


def _raises(below: DataFrame, expression: str) -> bool:
    try:
        below.selectExpr(expression).collect()
    except Exception as error:  # of many classes; the condition tells an arithmetic one from a mistake
        text = str(error)
        return any(c in text for c in _ERRORS)
    return False


def test_every_entry_has_a_fuzz_spec() -> None:
    for entry in (e for e in ENTRIES.values() if not e.internal):
        width = 0 if entry.signature.endswith("()") else entry.signature.count(",") + 1
        assert entry.fuzz, f"{entry.signature} has no fuzz spec"
        if not entry.variadic:
            assert all(len(arguments) == width for arguments in entry.fuzz), entry.signature
        assert any(not isinstance(a, Fixed) for arguments in entry.fuzz for a in arguments), entry.signature


def test_every_entry_says_what_the_function_is(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        from applier.sql.analyze.built_ins import built_ins_of
        from applier.sql.catalog_snapshot import Volatility

        known = {f.signature: f for f in built_ins_of(connection).objects.functions.values()}
    for signature in (s for s, entry in ENTRIES.items() if not entry.spelling and not entry.internal):
        listed = Volatility.STABLE if ENTRIES[signature].session else Volatility.IMMUTABLE
        assert known[signature].volatility is listed, signature
        assert known[signature].strict is ENTRIES[signature].strict, signature


def test_text_entries_say_what_they_need_of_the_collation() -> None:
    compared = [e for e in ENTRIES.values() if e.signature.startswith(("text", "bpchar"))]
    assert any(e.collation is CollationNeed.ORDER for e in compared)
    assert all(e.collation is not CollationNeed.NONE for e in compared if e.hash_equal)
