"""A staged delta in; its rows in the stream table, merged part by part as early as constraints allow, out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import psycopg
from psycopg.pq import TransactionStatus

from applier.catalog.epochs import confirm_epoch
from applier.plan.stream_table import StreamTable
from applier.sinks.postgres.batches import divergence_error
from applier.sinks.postgres.merge_sql import Phases
from applier.sinks.postgres.write_progress import WriteProgress
from applier.sinks.staging.staged_delta import StagedDelta, StagedPart

Cursor = psycopg.Cursor[tuple[object, ...]]

_HAS_OTHER_UNIQUE_INDEX = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_index i
    WHERE i.indrelid = %s::int8::oid AND (i.indisunique OR i.indisexclusion)
      AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL
           OR (SELECT pg_catalog.array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C")
               FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey))
              OPERATOR(pg_catalog.<>) coalesce(%s::text[], '{}')))
"""


def can_merge_in_any_order(cursor: Cursor, table: StreamTable, delta: StagedDelta) -> bool:
    """Whether rows of one part cannot conflict with rows of another: all rows of a key are in one part, so it is enough
    that the table has no other unique index than the one of the key."""
    if delta.is_fill:
        return True
    key = sorted(table.columns[i].name for i in table.key) if table.key else None
    cursor.execute(_HAS_OTHER_UNIQUE_INDEX, (table.relid, key))
    return cursor.fetchone() == (False,)


def merge_parts(
    cursor: Cursor,
    table: StreamTable,
    delta: StagedDelta,
    url: str,
    phases: Callable[[StagedPart], Phases],
    *,
    any_order: bool,
) -> tuple[int, int]:
    """Merge each part while the executors still compute the next ones. Return how many rows were inserted and deleted.

    Not in `any_order`: wait for all parts: then all deletions come before all updates, and those before all
    insertions. Outside of a transaction each statement is a transaction of its own.
    """
    done = [0, 0, 0]
    parts: list[StagedPart] = []

    def run(phase: int, part: StagedPart) -> None:
        is_alone = cursor.connection.info.transaction_status == TransactionStatus.IDLE
        for statement in phases(part)[phase]:
            with cursor.connection.transaction() if is_alone else nullcontext():
                if is_alone:
                    confirm_epoch(cursor)
                cursor.execute(statement)
                done[phase] += cursor.rowcount

    with WriteProgress(url, table) as progress:
        for part in delta.parts():
            parts.append(part)
            if any_order:
                for phase in range(3):
                    run(phase, part)
                rows = sum(p.rows for p in parts)
                progress.report(rows, max(rows, rows * delta.expected // len(parts)))
        total = sum(part.rows for part in parts)
        for phase in range(0 if any_order else 3):
            for number, part in enumerate(parts, start=1):
                run(phase, part)
                progress.report(total * (phase * len(parts) + number) // (3 * len(parts)), total)
    inserted, deleted = sum(part.inserted for part in parts), sum(part.deleted for part in parts)
    if (done[1] + done[2], done[0] + done[1]) != (inserted, deleted):
        raise divergence_error(table, inserted + deleted, sum(done) + done[1])
    return inserted, deleted
