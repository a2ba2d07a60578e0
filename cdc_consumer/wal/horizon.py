"""The text of a PostgreSQL snapshot in; which transactions it surely contains, out. Pure.

A commit is in the log before it is visible, so somebody who follows the log may know more than the catalog shows. A
snapshot does not name the subtransactions of running transactions. Hence only what is older than the oldest running
transaction is surely visible.
"""

from __future__ import annotations

from dataclasses import dataclass

XIDS = 1 << 32
"""Rows have the lower half of a transaction id: ids repeat after so many."""

AHEAD = 1 << 24
"""Ids after the snapshot's last one that may have been assigned by the time somebody asks. The more there are, the more
old ids look like new ones."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """All transactions before `oldest` have ended; `next` is the first that had not begun, or had not ended."""

    oldest: int
    next: int

    def sees(self, joined: str) -> bool:
        """Return whether the transactions in the attachment of a leaf partition are surely visible."""
        recent = self.next - self.oldest + AHEAD
        return all((int(xid) - self.oldest) % XIDS >= recent for xid in joined.split(".") if xid)


NO_HORIZON = Horizon(0, 0)


def read_horizon(snapshot: str) -> Horizon:
    """Return the horizon of the text of a snapshot."""
    oldest, following, _ = snapshot.split(":")
    return Horizon(int(oldest), int(following))
