"""Looks at the catalog in; up to which frontier readers elsewhere may trust the captured tables, out. Pure.

A look begins with the end of the log. If nothing differs afterwards, and no commit was under way, every frontier up to
that position is right. After a difference nothing is confirmed until rows were copied again, and then only frontiers
that include these rows.
"""

from __future__ import annotations

from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import ComparedRange


class ComparedPositions:
    """Continues the range of an earlier instance; None if there is none, or if something differs since then."""

    def __init__(self, stored: ComparedRange | None, *, differs: bool) -> None:
        self._range = stored or ComparedRange(ORIGIN, ORIGIN)
        self._differs = differs or stored is None

    @property
    def range(self) -> ComparedRange:
        """What the next progress record says."""
        return self._range

    def lose(self) -> None:
        """Something differs: the range ends where it ends now."""
        self._differs = True

    def confirm(self, position: Lsn, next_point: Lsn) -> bool:
        """Nothing differs up to `position` -> whether this ends a difference.

        Then a frontier must be at `next_point` or later to include everything that was written since.
        """
        ended, self._differs = self._differs, False
        since = next_point if ended else self._range.since
        self._range = ComparedRange(since, max(self._range.until, position))
        return ended
