"""A copy whose schema is missing concerns its relation; the stream goes on."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from applier.arrange.traces import Traces
from applier.ingest.inbox import Inbox
from applier.refresh.intake import Intake
from applier.trace.stamped_rows import StampedRow
from shared_schema.change_row import ChangeRow, Op, Stamp
from shared_schema.errors import ContractError
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.pg_types import PgType
from shared_schema.progress import Capture, Progress
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

INT = PgType(23, -1, "int4", "integer")
PROGRESS = ("t.progress", 0)
LOST, KEPT = TableId("public", "lost"), TableId("public", "kept")


def schema_of(table: TableId) -> TableSchema:
    return TableSchema(table, 1, (Column("x", INT),), (), ReplicaIdentity.FULL)


def capture(table: TableId, at: int) -> Capture:
    return Capture("slot", table, 1, Lsn(at), 1, schema_id="00")


def add_copy(inbox: Inbox, table: TableId, at: int, offset: int) -> None:
    row = ChangeRow(Op.INSERT, Stamp(Lsn(at), 0), 1, 0, (7,))
    inbox.add_row((f"t.public.{table.name}", 0), offset, StampedRow(row, schema_of(table)))


def test_the_schema_of_a_copy_is_missing(spark: SparkSession) -> None:
    inbox, missing = Inbox(), {LOST}

    def read_schema(of: Capture) -> TableSchema:
        if of.table in missing:
            raise ContractError("schema 00 is not on t.schemas")
        return schema_of(of.table)

    traces = Traces(spark, {}, 100)
    intake = Intake(inbox, threading.Condition(), traces, read_schema, False)

    def advance(to: int, *copies: tuple[TableId, int]) -> None:
        for number, (table, at) in enumerate(copies):
            add_copy(inbox, table, at, to + number)
            inbox.add_record(PROGRESS, to + number, capture(table, at))
        inbox.add_record(PROGRESS, to + 9, Progress("slot", "", 0, ORIGIN, Lsn(to), {}))
        assert intake.advance() == Lsn(to)

    advance(10, (LOST, 5), (KEPT, 5))
    kept = traces.get(KEPT)
    assert "schemas topic" in traces.stopped[LOST] and traces.get(LOST) is None
    assert KEPT not in traces.stopped and kept is not None and kept.overlay_volume == 1
    # The rows of that copy are gone, so the schema does not help any more: only the next copy does.
    missing.clear()
    advance(30)
    assert LOST in traces.stopped and traces.get(LOST) is None
    advance(50, (LOST, 45))
    lost = traces.get(LOST)
    assert LOST not in traces.stopped and lost is not None and lost.overlay_volume == 1
