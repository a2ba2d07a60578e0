"""A snapshot of the server in; which attachments of partitions it can see, out. Pure.

What a look at the catalog does not show is gone only if the look would have shown it: a partition may have been
attached by a transaction that was still open then, or whose commit is in the log and not visible yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_schema.lsn import Lsn

_WRAPS, _HALF = 1 << 32, 1 << 31


@dataclass(frozen=True, slots=True)
class Sight:
    """What a transaction could see: its snapshot, and the end of the log before the snapshot was taken."""

    oldest: int
    """The first transaction that may still have been open; xids have 64 bits here, and 32 bits in the catalog."""
    next: int
    """The first transaction that had not begun."""
    open: frozenset[int]
    at: Lsn
    own: int | None = None
    """The transaction that looked, with 32 bits: it sees what it did itself."""

    def includes(self, attachment: str, since: Lsn) -> bool:
        """Whether it shows a partition that was attached by these transactions and is streamed from `since` on."""
        xids = [int(xid) for xid in attachment.split(".") if xid]
        return (since < self.at or self.own in xids) and all(map(self._sees, xids))

    def _sees(self, xid: int) -> bool:
        if xid == self.own:
            return True
        age = (self.next - xid) % _WRAPS
        if not 0 < age < _HALF:
            return False
        whole = self.next - age
        return whole < self.oldest or whole not in self.open


def read_sight(snapshot: str, at: str, own: int | None = None) -> Sight:
    """Return the sight for a text of pg_current_snapshot() and a position."""
    oldest, following, opened = snapshot.split(":")
    return Sight(int(oldest), int(following), frozenset(map(int, filter(None, opened.split(",")))), Lsn.parse(at), own)
