"""Every aggregate of the allow-list against PostgreSQL: plain, with DISTINCT, with FILTER, with ORDER BY.

One table holds groups of random sizes over edge and random values of every type, NULL among them: a group without any
value, one with a single row. The snapshot rule computes them from rows with weights that must be netted first.
`FUZZ_SEED` makes it different, `FUZZ_ONLY` (a regular expression) selects some entries.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from applier.arrange.fixpoint import fixpoint
from applier.functions.aggregates.aggregate_entry import AggregateEntry, OfList, OfSet
from applier.functions.aggregates.aggregates import AGGREGATES
from applier.functions.entry import Fixed
from applier.operators.incrementalize import snapshot
from applier.operators.support.inputs import LinearMap, Lookup, Side, StatefulNode, identity_map
from applier.plan.nodes import Field, Recursion, Scan, fields
from applier.spark.views import create_view
from applier.sql.plan_query import plan_query
from applier.zset import WEIGHT, ZSet
from tests.applier.functions.frames import collect, exact, fetch, frame
from tests.applier.functions.values import edges, pg_type, random_value

ONLY = re.compile(os.environ.get("FUZZ_ONLY", ""))
SEED = int(os.environ.get("FUZZ_SEED", "20240229"))
CHUNK = 24
SIZES = (0, 1, 1, 2, 2, 3, 5, 8, 13, 30)
"""Rows with values per group; every group has one more row of NULLs."""
_UNEQUAL = frozenset(
    {"numeric", "jsonb", "interval:small", "int4[]", "text[]", "bool[]", "date[]", "int4range", "daterange"}
)


def _column(type_name: str, side: int) -> str:
    return "".join(c if c.isalnum() else "_" for c in type_name) + "_ab"[side + 1]


def _types() -> list[str]:
    return sorted({a for e in AGGREGATES.values() for args in e.fuzz for a in args if not isinstance(a, Fixed)})


def _calls() -> list[tuple[AggregateEntry, str]]:
    found: list[tuple[AggregateEntry, str]] = []
    for entry in AGGREGATES.values():
        if ONLY.search(entry.signature):
            for arguments in entry.fuzz:
                found += [(entry, text) for text in _texts(entry, arguments)]
    return found


def _texts(entry: AggregateEntry, arguments: Sequence[str | Fixed]) -> Iterator[str]:
    name = entry.signature.partition("(")[0]
    columns = [a.sql if isinstance(a, Fixed) else _column(a, i) for i, a in enumerate(arguments)]
    free = [c for c, a in zip(columns, arguments, strict=True) if not isinstance(a, Fixed)]
    if entry.within_group:
        direct = ", ".join(c for c, a in zip(columns, arguments, strict=True) if isinstance(a, Fixed))
        for direction in ("", " DESC"):
            yield f"{name}({direct}) WITHIN GROUP (ORDER BY {free[0]}{direction})"
        yield f"{name}({direct}) WITHIN GROUP (ORDER BY {free[0]}) FILTER (WHERE keep)"
        return
    listed = ", ".join(columns) or "*"
    # Values that print differently and are equal have no order of their own and are not distinguished.
    by_number = not _UNEQUAL.isdisjoint(arguments) or (free != columns and "bytea" not in arguments)
    listing = isinstance(entry.form, OfList)
    order = f" ORDER BY {', '.join(free)}" if listing and not by_number else ""
    if order or not listing or entry.form_of(()).default_order:  # type: ignore[union-attr]
        yield f"{name}({listed}{order})"
        yield f"{name}({listed}{order}) FILTER (WHERE keep)"
    if entry.takes_distinct and not by_number:
        yield f"{name}(DISTINCT {listed}{order})"
    if order:
        yield f"{name}({listed} ORDER BY {free[0]} DESC NULLS LAST, {free[-1]} NULLS FIRST)"
    if listing and not order:
        yield f"{name}({listed} ORDER BY n DESC) FILTER (WHERE keep)"


def _rows(types: Sequence[str], random: Random) -> Iterator[list[Any]]:
    choices = {t: edges(t) for t in types}
    numbers = count(1)
    for group, size in enumerate(SIZES):
        yield [next(numbers), group, True, *([None] * (2 * len(types)))]
        for _ in range(size):
            row: list[Any] = [next(numbers), group, random.choice([True, False, None])]
            for t in types:
                for _side in range(2):
                    edge = random.random() < (0.05 if t.endswith(":near") else 0.5)
                    value = random.choice(choices[t]) if edge else random_value(t, random)
                    row.append(None if random.random() < 0.1 else value)
            yield row


def _fill(connection: psycopg.Connection[Any]) -> None:
    types = _types()
    columns = [f"{_column(t, side)} {pg_type(t)}{_collation(t)}" for t in types for side in range(2)]
    connection.execute("CREATE TYPE fuzz_mood AS ENUM ('sad', 'ok', 'happy', 'a b', 'Ok')")
    connection.execute(f"CREATE TABLE fuzz (n int PRIMARY KEY, g int, keep bool, {', '.join(columns)})".encode())
    with connection.cursor() as cursor, cursor.copy("COPY fuzz FROM STDIN") as copy:
        for row in _rows(types, Random(SEED)):
            copy.write_row(row)


def _collation(type_name: str) -> str:
    return ' COLLATE "C"' if type_name in ("text", "char(6)") else ""


class _NoisyInputs:
    """The fuzz table with every row inserted twice and deleted once."""

    small = True

    def __init__(self, spark: SparkSession, connection: psycopg.Connection[Any]) -> None:
        self._spark = spark
        self._connection = connection

    def delta(self, scan: Scan) -> ZSet | None:
        return None

    def snapshot(
        self, scan: Scan, side: Side, linear_map: LinearMap = identity_map, lookup: Lookup | None = None
    ) -> ZSet:
        read = [(c, f.type) for c, f in zip(scan.columns, scan.fields, strict=True)]
        rows = fetch(self._connection, sql.SQL("fuzz"), read)
        below = frame(self._spark, rows, [t.spark for _, t in read])
        twice, once = below.selectExpr("*", f"2L AS {WEIGHT}"), below.selectExpr("*", f"-1L AS {WEIGHT}")
        return linear_map(ZSet.of_view(create_view(twice.unionAll(once)), len(scan.fields)))

    def rows(self, scan: Scan, linear_map: LinearMap = identity_map) -> int | None:
        return None

    def fixpoint(self, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> ZSet:
        return ZSet.of_view(fixpoint(self._spark, node, base, step), len(base.columns))

    def materialize_once(self, zset: ZSet, columns: Sequence[Field]) -> ZSet:
        return zset

    def materialize_small(self, zset: ZSet, columns: Sequence[Field]) -> ZSet | None:
        return zset

    def state_of(self, node: StatefulNode) -> None:
        return None


def _differences(connection: psycopg.Connection[Any], spark: SparkSession, calls: Sequence[str]) -> list[str]:
    query = f"SELECT g, {', '.join(f'{call} AS r{i}' for i, call in enumerate(calls))} FROM fuzz GROUP BY g"
    root = plan_query(connection, query, "public").plan.root
    typed = [(f"r{i - 1}" if i else "g", f.type) for i, f in enumerate(fields(root))]
    expected = {row[0]: row[1:] for row in fetch(connection, sql.SQL("({}) q").format(sql.SQL(query)), typed)}
    result = spark.sql(snapshot(root, Side.AFTER, _NoisyInputs(spark, connection)).sql)
    out = [
        f"{call} is {got.dataType.simpleString()}, declared {key_filter.type.spark}"
        for call, got, key_filter in zip(["g", *calls], result.schema.fields, fields(root), strict=False)
        if got.dataType.simpleString() != key_filter.type.spark
    ]
    rows = {row[0]: row[1:-1] for row in collect(result)}
    assert rows.keys() == expected.keys()
    for i, call in enumerate(calls):
        physical_type = fields(root)[i + 1].type.spark
        pairs = {g: (rows[g][i], _carried(expected[g][i], physical_type)) for g in rows}
        wrong = {g: pair for g, pair in pairs.items() if _shown(pair[0], call) != _shown(pair[1], call)}
        if wrong:
            g, (ours, theirs) = next(iter(wrong.items()))
            out.append(f"{call}: group {g}: Spark {ours!r}, PostgreSQL {theirs!r}")
    return out


def _shown(value: Any, call: str) -> Any:
    """Remove the sign of zero: rows are netted before they are listed, and an array's text would show the sign."""
    listed = isinstance(value, str) and call.startswith("percentile_cont(ARRAY") and "float" in call
    return exact(re.sub(r"(?<![\d.])-0(?=[,}])", "0", value) if listed else value)


def _carried(value: Any, physical_type: str) -> Any:
    """Convert a real: its shortest text is not exactly its number."""
    return struct.unpack("f", struct.pack("f", value))[0] if physical_type == "float" and value is not None else value


@pytest.mark.timeout(900)
def test_every_aggregate_equals_postgres(database: str, spark: SparkSession) -> None:
    calls = [text for _, text in _calls()]
    wrong: list[str] = []
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC -c extra_float_digits=3") as connection:
        _fill(connection)
        for start in range(0, len(calls), CHUNK):
            wrong += _differences(connection, spark, calls[start : start + CHUNK])
    assert not wrong, "\n".join(wrong)


def test_a_wrong_aggregate_is_noticed(database: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(AGGREGATES["min(text)"], form=OfSet("min(upper({0}))"))
    monkeypatch.setitem(AGGREGATES, broken.signature, broken)
    with psycopg.connect(database, autocommit=True, options="-c TimeZone=UTC") as connection:
        _fill(connection)
        assert _differences(connection, spark, [f"min({_column('text', 0)})"])


def test_every_aggregate_has_a_fuzz_spec(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        from applier.sql.analyze.built_ins import built_ins_of

        known = {f.signature for f in built_ins_of(connection).objects.functions.values()}
    for entry in (e for e in AGGREGATES.values() if not e.internal):
        width = 0 if entry.signature.endswith("()") else entry.signature.count(",") + 1
        assert entry.fuzz, f"{entry.signature} has no fuzz spec"
        # Hypothetical-set aggregates have as many direct arguments as columns to order by.
        imagined = entry.within_group and entry.signature.endswith("(any)")
        assert all(imagined or len(arguments) == width for arguments in entry.fuzz), entry.signature
        assert entry.signature in known, f"{entry.signature} is no aggregate of PostgreSQL"
