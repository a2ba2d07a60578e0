"""The content of the open transaction of the sink: how many rows and commits it holds, since when, who waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_consumer.pgoutput.messages import Begin


@dataclass(slots=True)
class OpenBatch:
    """One batch after the other. The fields are written only by the methods; `now` is a monotonic clock in seconds."""

    rows: int = 0
    commits: int = 0
    began_at: float = 0.0
    """When the first frame for it was received; 0 if there was none."""
    ended_at: float = 0.0
    """When its first source commit was complete; 0 if none is."""
    oldest_us: int = 0
    """Commit time of its first source commit."""
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

    def add_rows(self, rows: int, now: float) -> None:
        """Add rows of the frames that were received."""
        self.rows += rows
        self.began_at = self.began_at or now

    def commit(self, begin: Begin | None, rows: int, now: float) -> None:
        """End a source commit, after its last `rows` rows; `begin` is None if its rows were dropped."""
        self.rows += rows
        self.last_begin = begin or self.last_begin
        if begin is not None and (self.rows or self.is_cut):
            self.ended_at = self.ended_at or now
            self.commits += 1
        elif not self.commits:
            self.oldest_us = 0
        self.is_cut = False

    def add_message(self, now: float) -> None:
        """Add a message outside of transactions: it counts like a commit."""
        self.rows += 1
        self.commits += 1
        self.ended_at = self.ended_at or now

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
        self.rows = self.commits = self.oldest_us = 0
        self.began_at = self.ended_at = 0.0
        self.is_cut = cut
        self.forget_requests()
