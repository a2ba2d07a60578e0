"""With partial images (only the key of old rows in the log), the trace equals that of a complete log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.operators.support.inputs import Side
from applier.plan.expr import ValueType
from applier.plan.nodes import Field, Scan
from applier.trace.stamped_rows import StampedRow
from applier.trace.store import TraceStore
from applier.trace.trace import Trace
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.pg_types import PgType
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT, TEXT = PgType(23, -1, "int4", "integer"), PgType(25, -1, "text", "text")
KEYED = TableSchema(
    TableId("public", "keyed"),
    1,
    (Column("v", INT), Column("id", INT), Column("large", TEXT), Column("part", TEXT)),
    ("id", "part"),
    ReplicaIdentity.DEFAULT,
)
OLD, KEPT_LARGE = frozenset({0, 2}), frozenset({2})
SCAN = Scan(
    KEYED.table,
    1,
    tuple(column.name for column in KEYED.columns),
    tuple(Field(ValueType.of_column(column.type), True) for column in KEYED.columns),
    None,
)
Image = tuple[int | None, int, str | None, str]


class Log:
    """A table and the images in its log."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rows: dict[tuple[int, str], Image] = {}
        self.commit = 0

    def change_rows(self, changes: int) -> Iterator[StampedRow]:
        """Yield the change rows of `changes` statements."""
        self.commit += 10
        seq = 0
        for _ in range(changes):
            for op, values, unknown in self._statement():
                stamp = Stamp(Lsn(self.commit), seq)
                seq += 1
                given = values and tuple(None if i in unknown else value for i, value in enumerate(values))
                yield StampedRow(ChangeRow(op, stamp, 1, 0, given, unknown=unknown), KEYED)

    def _statement(self) -> Iterator[tuple[Op, Image | None, frozenset[int]]]:
        key = self.rng.randint(1, 8), self.rng.choice("ab")
        old = self.rows.get(key)
        if self.rng.random() < 0.03:
            self.rows.clear()
            yield Op.TRUNCATE, None, frozenset()
        elif old is None:
            self.rows[key] = new = (self._number(), key[0], self._text(), key[1])
            yield Op.INSERT, new, frozenset()
        else:
            yield Op.DELETE, self.rows.pop(key), OLD
            if self.rng.random() < 0.7:
                moved = self.rng.randint(1, 8), key[1]
                to = key if moved in self.rows or self.rng.random() < 0.6 else moved
                kept = self.rng.random() < 0.5
                self.rows[to] = new = (self._number(), to[0], old[2] if kept else self._text(), to[1])
                yield Op.INSERT, new, KEPT_LARGE if kept else frozenset()

    def _number(self) -> int | None:
        return self.rng.choice([None, 1, 2, 3])

    def _text(self) -> str | None:
        return self.rng.choice([None, "x" * self.rng.randint(0, 3)])


def relation(spark: SparkSession, trace: Trace, at: Lsn) -> list[tuple[Image, int]]:
    with Traces(spark, [trace]).through(LsnRange(at, at)) as inputs:
        columns = ", ".join(f"c{i}" for i in range(4))
        text = f"SELECT {columns}, sum(__w) FROM ({inputs.snapshot(SCAN, Side.AFTER).sql}) GROUP BY {columns}"
        found = [tuple(row) for row in spark.sql(text).collect()]
    return sorted(((row[:4], row[4]) for row in found if row[4]), key=repr)


@pytest.mark.parametrize("seed", range(2))
def test_any_history_under_the_default_identity(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    store, log, trace = TraceStore(spark, str(tmp_path)), Log(seed), Trace(spark, KEYED.table)
    trace.capture(KEYED.columns, Lsn(1))
    for number in range(12):
        trace.append(list(log.change_rows(log.rng.randint(1, 12))))
        if number % 4 == 1:
            trace.rebase(store.append(trace, Lsn(log.commit - 5)))
        if number % 3 == 2:
            expected = sorted(((row, 1) for row in log.rows.values()), key=repr)
            assert relation(spark, trace, Lsn(log.commit + 1)) == expected
    assert all(column.is_open for column in trace.columns)


def test_an_unknown_row_loses_its_columns(spark: SparkSession) -> None:
    trace = Trace(spark, KEYED.table)
    trace.capture(KEYED.columns, Lsn(1))
    trace.append(
        [
            StampedRow(ChangeRow(Op.DELETE, Stamp(Lsn(5), 0), 1, 0, (None, 1, None, "a"), unknown=OLD), KEYED),
            StampedRow(ChangeRow(Op.INSERT, Stamp(Lsn(5), 1), 1, 0, (7, 1, None, "a"), unknown=KEPT_LARGE), KEYED),
        ]
    )
    assert [column.name for column in trace.columns if not column.is_open] == ["v", "large"]
    assert "the row that it changes is not known" in str(trace.columns[2].reason)
