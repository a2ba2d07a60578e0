"""The expected errors of the consumer; every instance carries a problem and a hint what to do.

TrickleError
├── SourceError              PostgreSQL does not meet a requirement
│   ├── ConnectionLost       the server cannot be reached (retryable)
│   ├── ServerOutOfMemory    the server had no memory for a request (retryable)
│   ├── MissingRights        the role lacks a privilege that capturing needs
│   ├── WrongWalLevel        wal_level is not logical
│   ├── NoFreeSlot           max_replication_slots or max_wal_senders is used up
│   ├── SlotActive           another process streams from the slot (retryable)
│   ├── StandbyTimeout       the slot is still active after slot_wait_s
│   ├── SlotLost             the slot was dropped or invalidated: changes may be lost
│   ├── ForeignSlot          the stored progress belongs to another slot
│   ├── ForeignServer        the stored progress belongs to another server or timeline
│   ├── ServerBehind         the server's log ends before the stored progress
│   ├── PublicationMissing   a publication was dropped while streaming
│   ├── ColumnListsDiffer    a table has different column lists in two publications
│   ├── TableUnreadable      the rows of one table cannot be copied
│   ├── CaptureOutdated      rows of a captured table changed without being in the log (retryable)
│   └── CaptureFailed        a table cannot be copied now (retryable)
├── MalformedMessage         the stream has bytes that are not a valid pgoutput message
├── UnreadableValue          a column's text is not a valid value of its type: its table is stopped
└── TopicError               Kafka does not meet a requirement
    ├── BrokerUnavailable    no broker answers (retryable)
    ├── Fenced               another instance writes for this slot (retryable, as its standby)
    ├── OversizeMessage      a change row is larger than the broker accepts
    ├── TopicUnfit           a topic that exists would lose rows: its table is stopped
    ├── ForeignTopics        the topics are written by another slot
    ├── RegistryUnavailable  the schema registry does not answer (retryable)
    ├── RegistryRefused      the schema registry denies access, or is none
    ├── SchemaRefused        a schema version is rejected: its table is stopped
    └── PublishFailed        a Kafka transaction failed
"""

from __future__ import annotations

from shared_schema.errors import TrickleError
from shared_schema.table_schema import TableId


class StopRequested(Exception):
    """Not an error: the process received a stop request while it waited for something."""


class SourceError(TrickleError):
    """PostgreSQL does not meet a requirement."""


class ConnectionLost(SourceError):
    """The server cannot be reached, or it closed the connection."""

    retryable = True


class ServerOutOfMemory(SourceError):
    """The server had no memory for a request."""

    retryable = True


class MissingRights(SourceError):
    """The role lacks a privilege."""


class WrongWalLevel(SourceError):
    """Logical decoding is disabled."""


class NoFreeSlot(SourceError):
    """The server has no free replication slot or WAL sender."""


class SlotActive(SourceError):
    """Another process streams from the slot."""

    retryable = True


class StandbyTimeout(SourceError):
    """The slot did not become free within slot_wait_s."""


class SlotLost(SourceError):
    """The slot no longer holds the changes after the stored frontier."""


class ForeignSlot(SourceError):
    """A slot of the configured name exists, but it is not the one that the stored progress belongs to."""


class ForeignServer(SourceError):
    """The stored progress belongs to another server, or to another branch of its history."""


class ServerBehind(SourceError):
    """The server's log ends before the stored frontier, so the server was restored to an older state."""


class PublicationMissing(SourceError):
    """A publication that is to be streamed does not exist."""


class ColumnListsDiffer(SourceError):
    """A table has different column lists in two publications, which one stream cannot carry."""


class PublishedViaRoot(SourceError):
    """A publication publishes the changes of leaf partitions as those of their root."""


class TableUnreadable(SourceError):
    """The rows of one table cannot be copied; the next session goes on without it."""

    def __init__(self, problem: str, *, hint: str = "", table: TableId) -> None:
        super().__init__(problem, hint=hint)
        self.table = table


class CaptureOutdated(SourceError):
    """Rows of a captured table changed without being in the log: the next session copies it again."""

    retryable = True

    def __init__(self, problem: str, table: TableId) -> None:
        super().__init__(problem, hint="the table is copied again automatically")
        self.table = table


class CaptureFailed(SourceError):
    """A table cannot be copied at the moment."""

    retryable = True


class MalformedMessage(TrickleError):
    """The stream has bytes that do not follow the protocol; `offset` is the byte at which decoding failed."""

    def __init__(self, problem: str, *, offset: int) -> None:
        super().__init__(
            f"malformed replication message: {problem} at byte {offset}",
            hint="nothing was acknowledged, so no change is lost; report this together with the server's version",
        )
        self.offset = offset


class UnreadableValue(TrickleError):
    """The text of a column is not a valid value of its type; the next session goes on without its table."""

    def __init__(self, problem: str, *, hint: str = "", table: TableId) -> None:
        super().__init__(problem, hint=hint)
        self.table = table


class TopicError(TrickleError):
    """Kafka does not meet a requirement."""


class BrokerUnavailable(TopicError):
    """No broker answered in time."""

    retryable = True


class Fenced(TopicError):
    """Another producer with the same transactional id has started, so this instance becomes its standby."""

    retryable = True


class OversizeMessage(TopicError):
    """A change row is larger than the producer or the broker accepts; `topic` is where it should go, if known."""

    def __init__(self, problem: str, *, hint: str = "", topic: str | None = None) -> None:
        super().__init__(problem, hint=hint)
        self.topic = topic


class TopicUnfit(TopicError):
    """A topic that exists would lose rows; the next session goes on without its table."""

    def __init__(self, problem: str, *, hint: str = "", table: TableId) -> None:
        super().__init__(problem, hint=hint)
        self.table = table


class ForeignTopics(TopicError):
    """The topics with the configured prefix are written by another slot."""


class RegistryUnavailable(TopicError):
    """The schema registry does not answer."""

    retryable = True


class RegistryRefused(TopicError):
    """The schema registry denies access, or does not answer as one: no table can be written."""


class SchemaRefused(TopicError):
    """A schema version is rejected, so no row may be written with it; the next session goes on without its table."""

    def __init__(self, problem: str, *, hint: str = "", table: TableId) -> None:
        super().__init__(problem, hint=hint)
        self.table = table


class PublishFailed(TopicError):
    """A Kafka transaction failed, cannot be retried, and was aborted."""
