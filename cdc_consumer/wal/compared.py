"""Looks at the catalog in; up to which frontier readers elsewhere may trust the captured tables, out. Pure.

A look begins with the end of the log. If nothing differs afterwards, and no commit was under way, every frontier up to
that position is right. After a difference nothing is confirmed until the rows are right again, and then only frontiers
that include these rows. A new session does not know what the one before it had seen, so it begins in the same way.
"""

from __future__ import annotations

from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import ComparedRange


class ComparedPositions:
    """The frontiers of one session that were compared."""

    def __init__(self) -> None:
        self._range = ComparedRange(ORIGIN, ORIGIN)
        self._differs = True

    @property
    def range(self) -> ComparedRange:
        """What the next progress record says."""
        return self._range

    def lose(self) -> None:
        """Something differs: the range ends where it ends now."""
        self._differs = True

    def confirm(self, position: Lsn, next_point: Lsn) -> bool:
        """Nothing differs up to `position` -> whether this begins a new range.

        Then a frontier must be at `next_point` or later to include everything that was written since.
        """
        begins, self._differs = self._differs, False
        since = next_point if begins else self._range.since
        self._range = ComparedRange(since, max(self._range.until, position))
        return begins
