"""Checks that the server still has the history that was published from it.

A server whose files were restored to an older state has the same system identifier and timeline. Once it has written
enough, its log ends after the stored frontier again. Positions alone would then skip what it committed meanwhile. But
the progress record contains the last commit before the frontier. So streaming starts there, not at the frontier: the
server must send exactly that commit again (unless the slot is already past it), and no commit between it and the
frontier.
"""

from __future__ import annotations

from cdc_consumer.errors import ServerBehind
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.wal.slot import new_history_hint
from shared_schema.lsn import Lsn
from shared_schema.progress import LastCommit, Progress


class HistoryCheck:
    """Checks the commits before the frontier; `begins_at` is the position from which the server sends."""

    def __init__(self, progress: Progress, begins_at: Lsn) -> None:
        self._slot = progress.slot
        self._frontier = progress.resume_at
        self._last = progress.last_commit
        self._expected = self._last is not None and begins_at <= self._last.lsn

    def begin(self, begin: Begin) -> None:
        """Check a commit that begins; it may be anywhere in the stream."""
        last = self._last
        if last is None or begin.commit_lsn < last.lsn:
            return
        if begin.commit_lsn == last.lsn and (begin.xid, begin.commit_ts_us) == (last.xid, last.commit_ts_us):
            self._expected = False
        elif self._expected or begin.commit_lsn < self._frontier:
            raise self._other_history(last)

    def reach(self, position: Lsn) -> None:
        """Check a position before which every commit was sent."""
        if self._last is not None and self._expected and position > self._last.lsn:
            raise self._other_history(self._last)

    def _other_history(self, last: LastCommit) -> ServerBehind:
        return ServerBehind(
            f"the server does not have the commit at {last.lsn}, which was published from it: "
            "the server was restored to an older state",
            hint=new_history_hint(self._slot),
        )
