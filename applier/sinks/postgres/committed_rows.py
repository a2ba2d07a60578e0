"""A stream table in; its committed rows, for a sink that lacks them, out: deltas of the outbox, or all rows."""

from __future__ import annotations

import pyarrow as pa

from applier.catalog.database import Database
from applier.plan.stream_table import StreamTable
from applier.sinks.delta import ComputedDelta, MemoryDelta, OutboxDelta
from applier.sinks.outbox import pending_deltas
from applier.sinks.postgres.full_diff import target_rows
from applier.sinks.postgres.gather import DriverLimit, collect_delta
from shared_schema.lsn import Lsn, LsnRange


class CommittedRows:
    """Reads committed rows for a sink that has to catch up."""

    def __init__(self, database: Database, driver_rows: int) -> None:
        self._database = database
        self._driver_limit = DriverLimit(driver_rows, database.url)

    def pending_deltas(self, table: StreamTable, since: Lsn) -> list[MemoryDelta | OutboxDelta]:
        """Return the deltas of the outbox for sinks at frontier `since`, oldest first."""
        with self._database.connection.cursor() as cursor:
            return pending_deltas(cursor, table.id, since, self._database.url)

    def target_rows(self, table: StreamTable, lsn_range: LsnRange, schema: pa.Schema | None = None) -> ComputedDelta:
        """Return all rows of the stream table, each once with its count, as the delta over the range."""
        connection = self._database.connection
        with connection.transaction(), connection.cursor() as cursor:
            return collect_delta(cursor, table, target_rows(cursor, table, schema), lsn_range, self._driver_limit)
