"""A stream table whose fuse was reset with 'skip_changes' in; its frontier beyond the range, without the changes, out.

The topic and Delta get all rows that PostgreSQL has at that frontier: what they lack of earlier deltas is among them,
and nobody computes the skipped changes for them later.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from applier.catalog.frontiers import RefreshTimes, move_frontier
from applier.catalog.fuses import note_skipped
from applier.catalog.history import HistoryRow, RefreshExecution, record_refresh
from applier.catalog.stream_tables import StreamTableRow
from applier.sinks.outbox import enqueue_refill
from applier.sinks.postgres.transaction import WriteSession
from shared_schema.lsn import Lsn, LsnRange

log = logging.getLogger(__name__)


def skip_changes(session: WriteSession, row: StreamTableRow) -> None:
    """Move the frontier past the range that the fuse stopped, in one transaction. A repeated call changes nothing."""
    until = Lsn.parse(row.fuse_skips_until or "0/0")
    now = datetime.now(UTC)
    with session.transaction() as cursor:
        if row.lsn < until:
            move_frontier(cursor, row.pgt_id, row.lsn, until, RefreshTimes(now))
            enqueue_refill(cursor, row.pgt_id, until)
            execution = RefreshExecution("SKIP", "CHANGES_SKIPPED", "reset_fuse", "MANUAL", now, 0, 0.0)
            record_refresh(cursor, HistoryRow(row.pgt_id, execution, 0, 0, 0.0, LsnRange(row.lsn, until)))
        note_skipped(cursor, row.pgt_id, until)
    log.warning("changes skipped", extra={"table": str(row.table), "since": str(row.lsn), "until": str(until)})
