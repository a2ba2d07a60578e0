"""The content of the open transaction of the sink: how many rows and commits it holds, since when, who waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_consumer.pgoutput.messages import Begin

ORDINARY_LAG_S = 0.1
"""Commits that are not older than this are published as soon as possible."""

LAG_SHARE, MAX_PATIENCE_S = 0.25, 0.3
"""Of older ones a batch collects more for this part of the further lag, so nobody notices. MAX_PATIENCE_S is enough for
the broker: ten times as long makes its work less by a tenth."""

QUIET_SHARE = 0.1
"""The server has sent everything that waited if nothing came for this part of that time, or for the linger time. The
server may pause while it decodes, or while others use its processor."""


@dataclass(slots=True)
class OpenBatch:
    """One batch after the other. The fields are written only by the methods; `now` is a monotonic clock in seconds."""

    rows: int = 0
    commits: int = 0
    began_at: float = 0.0
    """When the first frame for it was received; 0 if there was none."""
    ended_at: float = 0.0
    """When its first source commit was complete; 0 if none is."""
    received_at: float | None = None
    """When the last frames were handled; None while further ones are at hand."""
    oldest_us: int = 0
    """Commit time of its first source commit."""
    newest_us: int = 0
    """Commit time of its last complete source commit; 0 if there is none."""
    is_urgent: bool = False
    """Whether a message requests that it is published now."""
    is_status_requested: bool = False
    """Whether the server requested a status update."""
    is_cut: bool = False
    """Whether a first part of the open source commit was published with an earlier batch."""
    last_begin: Begin | None = None
    """The Begin message of the last commit that was received completely, in this batch or an earlier one."""

    def begin(self, begin: Begin) -> None:
        """Begin a source commit whose rows are written."""
        self.oldest_us = self.oldest_us or begin.commit_ts_us

    def receive(self) -> None:
        """Begin to handle frames that were received."""
        self.received_at = None

    def add_rows(self, rows: int, now: float) -> None:
        """Add rows of the frames that were received: all of them are handled now."""
        self.rows += rows
        self.began_at = self.began_at or now
        self.received_at = now

    def commit(self, begin: Begin | None, rows: int, now: float) -> None:
        """End a source commit, after its last `rows` rows; `begin` is None if its rows were dropped."""
        self.rows += rows
        self.last_begin = begin or self.last_begin
        if begin is not None and (self.rows or self.is_cut):
            self.ended_at = self.ended_at or now
            self.newest_us = begin.commit_ts_us
            self.commits += 1
        elif not self.commits:
            self.oldest_us = 0
        self.is_cut = False

    def add_message(self, now: float) -> None:
        """Add a message outside of transactions: it counts like a commit."""
        self.rows += 1
        self.commits += 1
        self.ended_at = self.ended_at or now

    def due_at(self, linger_s: float, source_us: int) -> float:
        """Return when a batch with commits is due, by the monotonic clock; `source_us` is the source's clock now.

        At once after `linger_s`, unless the stream lags and more commits are at hand or on their way.
        """
        lag_s = max(0, source_us - self.newest_us) / 1_000_000 if self.newest_us else 0.0
        patience_s = max(linger_s, min(LAG_SHARE * (lag_s - ORDINARY_LAG_S), MAX_PATIENCE_S))
        longest = self.ended_at + patience_s
        if self.received_at is None:
            return longest
        quiet = self.received_at + max(linger_s, QUIET_SHARE * patience_s)
        return max(self.ended_at + linger_s, min(longest, quiet))

    def request_publication(self) -> None:
        """Request that the batch is published without delay."""
        self.is_urgent = True

    def request_status(self) -> None:
        """Note that the server waits for a newer position."""
        self.is_status_requested = True

    def forget_requests(self) -> None:
        """Forget the requests: everything received is published."""
        self.is_urgent = self.is_status_requested = False

    def clear(self, *, cut: bool) -> None:
        """Begin the next batch; `cut` says whether the open source commit continues in it."""
        self.rows = self.commits = self.oldest_us = self.newest_us = 0
        self.began_at = self.ended_at = 0.0
        self.is_cut = cut
        self.forget_requests()
