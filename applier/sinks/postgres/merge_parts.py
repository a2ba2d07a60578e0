"""A staged delta into its table, part by part, and each part as early as the table's own constraints allow."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from applier.plan.stream_table import StreamTable
from applier.sinks.postgres.batches import target_diverged
from applier.sinks.postgres.merge_sql import Phases
from applier.sinks.postgres.write_progress import WriteProgress
from applier.sinks.staging.staged_delta import StagedDelta, StagedPart

Cursor = psycopg.Cursor[tuple[object, ...]]

_MORE_IS_UNIQUE = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_index i
    WHERE i.indrelid = %s::int8::oid AND (i.indisunique OR i.indisexclusion)
      AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL
           OR (SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)) IS DISTINCT FROM %s::text[]))
"""


def can_merge_in_any_order(cursor: Cursor, table: StreamTable, delta: StagedDelta) -> bool:
    """Whether the rows of one part cannot be in the way of another's: all rows of a key are in one part, so it is
    enough that nothing but the key makes rows unique."""
    if delta.is_fill:
        return True
    key = sorted(table.columns[i].name for i in table.key) if table.key else None
    cursor.execute(_MORE_IS_UNIQUE, (table.relid, key))
    return cursor.fetchone() == (False,)


def merge_parts(
    cursor: Cursor, table: StreamTable, delta: StagedDelta, url: str, phases: Callable[[StagedPart], Phases]
) -> tuple[int, int]:
    """Each part while the executors still make the next, or, where the order matters, when all of them are there: then
    what leaves any of them before what is updated, and that before what comes. Returns how many rows came and left.

    Outside of a transaction each statement is one of its own.
    """
    done = [0, 0, 0]
    parts: list[StagedPart] = []
    at_once = can_merge_in_any_order(cursor, table, delta)

    def run(phase: int, part: StagedPart) -> None:
        for statement in phases(part)[phase]:
            cursor.execute(statement)
            done[phase] += cursor.rowcount

    with WriteProgress(url, table) as progress:
        for part in delta.parts():
            parts.append(part)
            if at_once:
                for phase in range(3):
                    run(phase, part)
                rows = sum(p.rows for p in parts)
                progress.tell(rows, max(rows, rows * delta.expected // len(parts)))
        total = sum(part.rows for part in parts)
        for phase in range(0 if at_once else 3):
            for number, part in enumerate(parts, start=1):
                run(phase, part)
                progress.tell(total * (phase * len(parts) + number) // (3 * len(parts)), total)
    came, left = sum(part.came for part in parts), sum(part.left for part in parts)
    if (done[1] + done[2], done[0] + done[1]) != (came, left):
        raise target_diverged(table, came + left, sum(done) + done[1])
    return came, left
