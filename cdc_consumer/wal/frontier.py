"""Positions of the stream and the rules by which they move. Pure; the law of what may be acknowledged.

received     how far the server has sent everything (end of the last whole commit, a keepalive between commits)
published    the frontier in the last committed Progress record
durable      how far the stream is on the topics: the same, but ahead of it while a table is copied, whose rows belong
             below the frontier
acknowledged the flush position sent to the server: never beyond durable, never backwards

A keepalive moves `received` only while no transaction is open: it says that everything before it was *sent*, and
what was sent of an open transaction is not complete. Nothing moves `published` but a committed Kafka transaction.
"""

from __future__ import annotations

from shared_schema.lsn import Lsn


class Frontier:
    """Where one slot's stream stands."""

    def __init__(self, resume_at: Lsn) -> None:
        self.resume_at = resume_at
        """Commits that start before this are on the topics already."""
        self.received = resume_at
        self.published = resume_at
        self.durable = resume_at
        self.open_commit: Lsn | None = None
        """Where the commit record of the transaction being received starts."""
        self.last_commit = Lsn(0)
        """Where the last commit record starts that was handed on."""
        self.limit: Lsn | None = None
        """A capture waits at this consistent point: nothing at or after it may be published before."""

    def resume(self, at: Lsn) -> None:
        """The instance before us got as far as `at`, further than first read."""
        self.resume_at = max(self.resume_at, at)
        self.received = max(self.received, at)
        self.published = max(self.published, at)
        self.durable = max(self.durable, at)

    def begin(self, commit_lsn: Lsn) -> bool:
        """A transaction starts; False when it is on the topics already and must be dropped."""
        self.open_commit = commit_lsn
        if commit_lsn < self.resume_at:
            return False
        self.last_commit = max(self.last_commit, commit_lsn)
        return True

    def commit(self, end_lsn: Lsn) -> None:
        """The open transaction was received whole."""
        self.open_commit = None
        self.received = max(self.received, end_lsn)

    def reach(self, position: Lsn) -> None:
        """A keepalive or a non-transactional message at `position`."""
        if self.open_commit is None:
            self.received = max(self.received, position)

    @property
    def publishable(self) -> Lsn:
        """The frontier a Kafka transaction may claim now that it holds everything received."""
        if self.limit is None:
            return self.received
        return max(self.published, min(self.received, Lsn(self.limit.value - 1)))

    def mark_published(self, frontier: Lsn, written: Lsn) -> None:
        """The Kafka transaction with this frontier is committed, and with it everything before `written`."""
        self.published = max(self.published, frontier)
        self.durable = max(self.durable, self.published, written)

    def arrived(self, point: Lsn) -> bool:
        """Whether every commit before `point` was received and none after it was handed on."""
        return self.open_commit is None and self.received >= point

    def passed(self, point: Lsn) -> bool:
        """Whether it is too late to insert something at `point`."""
        return self.published >= point or self.last_commit >= point
