"""Expected errors of the applier: each has a message and a hint, and is either retried or not.

TrickleError
├── InstallError         the catalog could not be installed, or has another version
├── AnotherApplier       another process maintains the stream tables
├── StreamLost           the topics no longer hold what a trace needs
├── SourceChanged        the columns of a source, or of its old rows, changed under a stream table
├── SourcesElsewhere     only PostgreSQL can run the query, and its rows are in another database
├── TargetDiverged       a stream table does not hold the rows it should: another program wrote to it
├── GroupCommitRefused   PostgreSQL rejects several stream tables in one transaction: write them one by one
├── CheckFailed          a stream table could not be compared with its query
├── Superseded           a later request replaced this one while it was carried out
├── RefreshFailed        one refresh failed on the present rows: tried again, then suspended
│   ├── TargetError          PostgreSQL rejected the rows of one stream table
│   │   ├── TargetLocked         another session held a lock on it for too long
│   │   └── TargetFull           PostgreSQL has no space for its rows; tried again until it has
│   └── CalculationError     the query itself failed on the data (division by zero, overflow)
└── Infrastructure       a service is not available; the tick is repeated
"""

from __future__ import annotations

from shared_schema.errors import TrickleError


class InstallError(TrickleError):
    """The catalog could not be installed, or has another version."""


class AnotherApplier(TrickleError):
    """The frontier moved without us: two appliers maintain the same stream tables."""


class StreamLost(TrickleError):
    """The topics no longer hold what a trace needs."""


class SourceChanged(TrickleError):
    """The columns of a source, or of its old rows, changed under a stream table."""


class SourcesElsewhere(TrickleError):
    """Only PostgreSQL can run the query, and its rows are in another database."""


class TargetDiverged(TrickleError):
    """A stream table does not hold the rows it should."""


class GroupCommitRefused(TrickleError):
    """PostgreSQL rejects several stream tables in one transaction; it may accept them one by one."""


class CheckFailed(TrickleError):
    """A stream table could not be compared with its query."""


class RefreshFailed(TrickleError):
    """One refresh failed on the present rows. With other rows a later one may succeed: it is retried a few times."""


class TargetError(RefreshFailed):
    """PostgreSQL rejected the rows of one stream table."""


class TargetLocked(TargetError):
    """Another session held a lock on the stream table for too long."""


class TargetFull(TargetError):
    """PostgreSQL has no space for the rows of the stream table; tried again until it has."""


class Superseded(TrickleError):
    """A later request replaced this one while it was carried out."""


class CalculationError(RefreshFailed):
    """The query itself failed on the data, as it would in PostgreSQL."""


class Infrastructure(TrickleError):
    """A service is not available; the tick is repeated."""

    retryable = True
