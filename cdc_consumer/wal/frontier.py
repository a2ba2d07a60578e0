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
        """A capture waits at this point: nothing at or after it may be published before."""
        self.held: Lsn | None = None
        """An unfinished copy of a table that readers know has stamps from here on: the frontier stays below it."""
        self._awaited: Lsn | None = None
        """A leaf partition joined a table in the commit at this position and is not copied yet: the frontier stays."""

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
        limits = [Lsn(limit.value - 1) for limit in (self.limit, self.held, self._awaited) if limit is not None]
        return max(self.published, min([self.received, *limits])) if limits else self.received

    def hold(self, published: Lsn, stamp: Lsn) -> None:
        """Stay at the frontier of an earlier instance, whose copy with this stamp did not finish."""
        self.published, self.held = published, stamp

    def await_leaf(self, since: Lsn | None) -> None:
        """Stay below this position until the leaf partitions that joined there are copied; None when there are none."""
        self._awaited = since

    def stay(self, published: Lsn) -> None:
        """Stay at the frontier of an earlier instance, which waited for leaf partitions."""
        self.published = min(self.published, published)

    def release(self) -> None:
        """Nothing unfinished is left behind: the frontier may pass it."""
        self.held = None

    @property
    def next_point(self) -> Lsn:
        """The first position that nothing handed on has reached and at which the byte before is free for stamps.

        Records of the log start at multiples of 8, so no commit record starts at the byte before.
        """
        reached = max(self.received, self.published, self.last_commit, self.open_commit or self.received)
        return Lsn((reached.value | 7) + 1)

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
