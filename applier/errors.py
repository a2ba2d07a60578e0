"""Expected errors of the applier: each has a message and a hint, and is either retried or not.

TrickleError
├── InstallError         the catalog could not be installed, or has another version
├── AnotherApplier       another process maintains the stream tables
├── SinkAhead            a sink has rows of a later frontier than PostgreSQL: the database was restored
├── ServerRestored       the server lacks changes that were published from it: it was restored to an older state
├── StreamLost           the topics no longer hold what a trace needs
├── SourceChanged        the columns of a source, or of its old rows, changed under a stream table
├── SourceStopped        the consumer cannot follow a source
├── PublicationChanged   the publications no longer stream all changes of a source
├── SourcesElsewhere     only PostgreSQL can run the query, and its rows are in another database
├── SourceBusy           what a stream table reads is locked, altered or gated at this moment: for a later tick
├── TargetDiverged       a stream table does not hold the rows it should: another program wrote to it
├── FuseBlown            more change rows than the fuse of a stream table lets through: it waits for reset_fuse
├── GroupCommitRefused   PostgreSQL rejects several stream tables in one transaction: write them one by one
├── PublishingFailed     the rows of one stream table cannot be written to its topic
├── CheckFailed          a stream table could not be compared with its query
├── Superseded           a later request replaced this one while it was carried out
├── PlanningCrashed      the applier ended several times while it planned a query
├── FillCrashed          the applier ended several times while it computed the rows of a query
├── QueryTooLarge        a query is too large in form: its plan, its text or the time to plan it
├── RefreshFailed        one refresh failed on the present rows: tried again, then suspended
│   ├── TargetError          PostgreSQL rejected the rows of one stream table
│   │   ├── TargetLocked         another session held a lock on it for too long
│   │   └── TargetFull           PostgreSQL has no space for its rows; tried again until it has
│   ├── CalculationError     the query itself failed on the data (division by zero, overflow)
│   ├── HistoryGone          the traces no longer hold the rows at that position: the next refresh is FULL
│   └── UnexpectedFailure    an error that nobody foresaw, raised for one stream table
└── Infrastructure       a service is not available; the tick is repeated
    └── HistoryUnconfirmed   the server may lack published changes; the consumer has not said so or otherwise yet
"""

from __future__ import annotations

from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn


class InstallError(TrickleError):
    """The catalog could not be installed, or has another version."""


class AnotherApplier(TrickleError):
    """The frontier moved without us: two appliers maintain the same stream tables."""


class SinkAhead(TrickleError):
    """A sink has rows of a later frontier than PostgreSQL: the database was restored to an older state."""


class ServerRestored(TrickleError):
    """The server lacks changes that were published from it: it was restored, or replaced by another one."""


class StreamLost(TrickleError):
    """The topics no longer hold what a trace needs."""


class SourceChanged(TrickleError):
    """The columns of a source, or of its old rows, changed under a stream table."""


class SourceStopped(TrickleError):
    """The consumer cannot follow a source: its changes are not on the topics."""


class PublicationChanged(TrickleError):
    """The publications no longer stream all changes of a source."""


class SourcesElsewhere(TrickleError):
    """Only PostgreSQL can run the query, and its rows are in another database."""


class SourceBusy(TrickleError):
    """What a stream table reads is locked, altered or gated at this moment; it is for a later tick."""


class TargetDiverged(TrickleError):
    """A stream table does not hold the rows it should."""


class FuseBlown(TrickleError):
    """An LSN range up to `until` has more change rows (`changes`) than a fuse lets through (`limit`); or nobody can
    count them any more: then `changes` is None."""

    def __init__(self, problem: str, *, hint: str, until: Lsn, changes: int | None, limit: int) -> None:
        super().__init__(problem, hint=hint)
        self.until, self.changes, self.limit = until, changes, limit


class GroupCommitRefused(TrickleError):
    """PostgreSQL rejects several stream tables in one transaction; it may accept them one by one."""


class PublishingFailed(TrickleError):
    """The rows of one stream table, `pgt_id`, cannot be written to its topic."""

    def __init__(self, problem: str, *, hint: str, pgt_id: int) -> None:
        super().__init__(problem, hint=hint)
        self.pgt_id = pgt_id


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


class PlanningCrashed(TrickleError):
    """The applier ended several times while it planned a query; it is not tried again by itself."""


class FillCrashed(TrickleError):
    """The applier ended several times while it computed the rows of a query; it is not tried again by itself."""


class QueryTooLarge(TrickleError):
    """A query is too large in form; `problem` is a noun phrase for the message "... is not supported"."""


class CalculationError(RefreshFailed):
    """The query itself failed on the data, as it would in PostgreSQL."""


class HistoryGone(RefreshFailed):
    """The traces no longer hold the rows at that position; the next refresh is FULL, at a position that they hold."""


class UnexpectedFailure(RefreshFailed):
    """An error that nobody foresaw, raised for one stream table; it shows no value of a row."""


class Infrastructure(TrickleError):
    """A service is not available; the tick is repeated."""

    retryable = True


class HistoryUnconfirmed(Infrastructure):
    """The server may lack changes that were published from it; the consumer finds out, and then goes on or refuses."""
