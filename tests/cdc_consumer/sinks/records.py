"""A progress record, a capture and a schema to write."""

from __future__ import annotations

from shared_schema.lsn import Lsn
from shared_schema.pg_types import PgType
from shared_schema.progress import Capture, Offsets, Progress
from shared_schema.table_schema import Column, ReplicaIdentity, TableId, TableSchema

TABLE = TableId("public", "t")
INT, TEXT = PgType(23, -1, "int4", "integer"), PgType(25, -1, "text", "text")


def progress(slot: str, frontier: int = 2, offsets: Offsets | None = None) -> Progress:
    return Progress(slot, "1", 1, Lsn(1), Lsn(frontier), offsets or {})


def capture(slot: str) -> Capture:
    return Capture(slot, TABLE, 7, Lsn(1), 0)


def schema(*columns: Column) -> TableSchema:
    return TableSchema(TABLE, 7, (Column("id", INT), *columns), ("id",), ReplicaIdentity.DEFAULT)
