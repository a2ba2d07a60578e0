"""Expected errors of the applier.

TrickleError
├── InstallError         the catalog could not be installed or is of another version
├── AnotherApplier       the stream tables are being kept by another process
├── StreamLost           the topics no longer hold what a trace needs
├── SourceChanged        a source's columns, or what its old rows carry, changed under a stream table
├── SourcesElsewhere     a query that only PostgreSQL can run, over rows that are in another database
├── TargetDiverged       a stream table does not hold the rows it should: somebody else wrote to it
├── NotTogether          PostgreSQL does not take several stream tables in one transaction: one by one, then
├── CheckFailed          a stream table could not be compared with its query
├── Superseded           a wish was replaced by another while it was carried out
├── MayPass              fails on what is there now: tried again, then suspended
│   ├── TargetError          PostgreSQL refused the rows of one stream table
│   │   ├── TargetLocked         somebody held a lock on it for too long
│   │   └── TargetFull           there is no room for its rows; tried again until there is
│   └── CalculationError     the query itself failed on the data (division by zero, overflow)
└── Infrastructure       a service is away; the tick is tried again
"""

from __future__ import annotations

from shared_schema.errors import TrickleError


class InstallError(TrickleError):
    """The catalog could not be installed or is of another version."""


class AnotherApplier(TrickleError):
    """The frontier moved without us: two appliers keep the same stream tables."""


class StreamLost(TrickleError):
    """The topics no longer hold what a trace needs."""


class SourceChanged(TrickleError):
    """A source's columns, or what its old rows carry, changed under a stream table."""


class SourcesElsewhere(TrickleError):
    """A query that only PostgreSQL can run, over rows that are in another database."""


class TargetDiverged(TrickleError):
    """A stream table does not hold the rows it should."""


class GroupCommitRefused(TrickleError):
    """PostgreSQL does not take several stream tables in one transaction; one by one it may."""


class CheckFailed(TrickleError):
    """A stream table could not be compared with its query."""


class RefreshFailed(TrickleError):
    """Fails on what is there now; with other rows a later refresh may succeed, so it is tried again a few times."""


class TargetError(RefreshFailed):
    """PostgreSQL refused the rows of one stream table."""


class TargetLocked(TargetError):
    """Somebody held a lock on the stream table for too long."""


class TargetFull(TargetError):
    """There is no room for the stream table's rows; tried again until there is."""


class Superseded(TrickleError):
    """A wish was replaced by another while it was carried out."""


class CalculationError(RefreshFailed):
    """The query itself failed on the data, as it would in PostgreSQL."""


class Infrastructure(TrickleError):
    """A service is away; the tick is tried again."""

    retryable = True
