"""The options of a stream table's fuse and the figures of an LSN range in; whether the range is stopped, out. Pure.

A fuse has a limit in change rows of the sources: the lowest of its ceiling and of mean + k standard deviations of its
earlier refreshes. A range with more change rows is stopped. A stream table that catches up is measured by its largest
commit instead: many ordinary commits add up to a large range while it waits, and none of them is abnormal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from math import floor, sqrt

from applier.errors import FuseBlown
from shared_schema.lsn import Lsn, LsnRange
from shared_schema.table_schema import TableId

MIN_SAMPLES = 10
"""With fewer earlier refreshes, mean and deviation say nothing: only the ceiling counts."""

MAX_SAMPLES = 200
"""Older refreshes are not looked at: what is normal changes."""

MIN_LEARNED_LIMIT = 100
"""A limit from earlier refreshes is at least so many change rows: stream tables whose deltas are all alike have no
deviation, and a few more rows are no accident."""

MIN_SHARE = 2
"""A share of a small table is at least so many change rows: one row that is updated is no accident."""

DEFAULT_SENSITIVITY = 5.0
"""k of a fuse that is 'auto' and has none of its own."""

CATCH_UP_AFTER = timedelta(seconds=60)
"""A stream table that is overdue by more than this was paused, suspended, or without an applier: it catches up."""


class FuseMode(Enum):
    """The user's choice: pgt_stream_tables.fuse."""

    OFF = "off"
    ON = "on"
    """With its ceiling or the default one, and by its history when it has a sensitivity."""
    AUTO = "auto"
    """By its history, and with a ceiling where there is one."""


@dataclass(frozen=True, slots=True)
class FuseOptions:
    """What a stream table and the settings say; None where a stream table says nothing."""

    mode: FuseMode | None
    ceiling: float | None
    """Change rows, or a share of the sources' rows if below 1."""
    sensitivity: float | None
    default_ceiling: float
    """The ceiling of all that have none; 0 is none."""

    @property
    def used_ceiling(self) -> float:
        """The ceiling in use; 0 is none."""
        return self.default_ceiling if self.ceiling is None else self.ceiling

    @property
    def used_sensitivity(self) -> float | None:
        """The sensitivity in use; None when earlier refreshes do not count."""
        return DEFAULT_SENSITIVITY if self.sensitivity is None and self.mode is FuseMode.AUTO else self.sensitivity

    @property
    def is_on(self) -> bool:
        """Whether there is anything to compare with."""
        return self.mode is not FuseMode.OFF and (self.used_ceiling > 0 or self.used_sensitivity is not None)


@dataclass(frozen=True, slots=True)
class FuseLimit:
    """Most change rows that are let through, and where the figure comes from."""

    rows: int
    origin: str


@dataclass(frozen=True, slots=True)
class SourceCommit:
    """One transaction of the source: where it was committed, and its change rows per table."""

    lsn: Lsn
    rows: Mapping[TableId, int]

    @property
    def total(self) -> int:
        """All its change rows."""
        return sum(self.rows.values())


def find_limit(options: FuseOptions, source_rows: int, samples: Sequence[int]) -> FuseLimit | None:
    """Return the lowest limit that applies; None when none does.

    `source_rows` are those of the sources before the range, `samples` the change rows of earlier refreshes. A share of
    sources without rows is no limit: whatever is loaded first into them is more.
    """
    if not options.is_on:
        return None
    limits: list[FuseLimit] = []
    if (ceiling := options.used_ceiling) >= 1:
        limits.append(FuseLimit(floor(ceiling), f"fuse_ceiling {ceiling:.0f}"))
    elif ceiling > 0 and source_rows > 0:
        # 0.29 of 100 rows are 29, not 28.999….
        share = max(MIN_SHARE, floor(round(ceiling * source_rows, 6)))
        limits.append(FuseLimit(share, f"fuse_ceiling {ceiling:g} of {source_rows} source rows"))
    if (k := options.used_sensitivity) is not None and len(samples) >= MIN_SAMPLES:
        mean = sum(samples) / len(samples)
        deviation = sqrt(sum((sample - mean) ** 2 for sample in samples) / len(samples))
        learned = max(MIN_LEARNED_LIMIT, floor(mean + k * deviation))
        limits.append(
            FuseLimit(learned, f"mean {mean:.1f} + {k:g} x deviation {deviation:.1f} of {len(samples)} refreshes")
        )
    return min(limits, key=lambda limit: limit.rows, default=None)


def is_catching_up(due: datetime | None, now: datetime) -> bool:
    """Whether a stream table that was due at `due` has waited much longer than its schedule says."""
    return due is not None and now - due > CATCH_UP_AFTER


def is_stopped(limit: FuseLimit, changes: int, largest: SourceCommit, *, catching_up: bool) -> bool:
    """Whether a range is stopped."""
    return (largest.total if catching_up else changes) > limit.rows


def describe_blown(name: str, lsn_range: LsnRange, changes: int, limit: FuseLimit, largest: SourceCommit) -> FuseBlown:
    """Return the error of a stream table whose fuse has blown: the figures, and the calls that end it."""
    by_source = ", ".join(f"{table} {rows}" for table, rows in sorted(largest.rows.items(), key=lambda of: str(of[0])))
    return FuseBlown(
        f"the fuse is blown: {changes} change rows between {lsn_range.lower} and {lsn_range.upper}, more than "
        f"{limit.rows} ({limit.origin}); the largest source transaction (commit at {largest.lsn}) has "
        f"{largest.total} ({by_source}). Nothing of this range was computed or written",
        hint=_hint(name),
        until=lsn_range.upper,
        changes=changes,
        limit=limit.rows,
    )


def describe_uncounted(name: str, lsn_range: LsnRange, limit: FuseLimit) -> FuseBlown:
    """Return the error of a stream table with a fuse whose change rows are no longer held one by one."""
    return FuseBlown(
        f"the fuse is blown: the change rows between {lsn_range.lower} and {lsn_range.upper} are no longer held one by "
        f"one, so nobody knows whether they are more than {limit.rows} ({limit.origin}). Nothing of this range was "
        "computed or written",
        hint=_hint(name),
        until=lsn_range.upper,
        changes=None,
        limit=limit.rows,
    )


def _hint(name: str) -> str:
    calls = (f"pgtrickle.reset_fuse('{name}', '{action}')" for action in ("apply", "reinitialize", "skip_changes"))
    return "SELECT {}, SELECT {} or SELECT {}".format(*calls)


def find_held(blown: Iterable[int], reads: Mapping[int, Iterable[int]]) -> frozenset[int]:
    """Return the stream tables that read a blown one, directly or through others; `reads` is by id, of ids."""
    held: set[int] = set()
    stopped = set(blown)
    while more := {reader for reader, read in reads.items() if reader not in held and not stopped.isdisjoint(read)}:
        held |= more
        stopped |= more
    return frozenset(held)
