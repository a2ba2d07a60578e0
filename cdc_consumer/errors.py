"""Every expected way to fail, each with what to do about it.

TrickleError
├── SourceError              PostgreSQL is not as we need it
│   ├── ConnectionLost       the server went away (retryable)
│   ├── MissingRights        the role may not do what capturing needs
│   ├── WrongWalLevel        wal_level is not logical
│   ├── NoFreeSlot           max_replication_slots or max_wal_senders is used up
│   ├── SlotActive           somebody else streams from our slot (retryable)
│   ├── StoodByInVain        it still does after slot_wait_s
│   ├── SlotLost             the slot is gone or invalidated: changes were missed
│   ├── ForeignSlot          the slot is not the one our progress belongs to
│   ├── ForeignServer        another system or timeline
│   ├── ServerBehind         the server's log ends before our progress
│   ├── PublicationMissing   a publication was dropped while streaming
│   ├── ColumnListsDiffer    a table has different column lists in two publications
│   └── CaptureFailed        a table cannot be copied now (retryable)
├── MalformedMessage         bytes that are no pgoutput message
├── UnreadableValue          a column's text is not what its type prints
└── TopicError               Kafka is not as we need it
    ├── BrokerUnavailable    no answer (retryable)
    ├── Fenced               another instance writes for this slot (retryable: as its standby)
    ├── OversizeMessage      a change row is larger than the broker takes
    ├── RegistryUnavailable  the schema registry does not answer (retryable)
    ├── SchemaRefused        the schema registry does not take a schema version
    └── PublishFailed        a Kafka transaction was refused
"""

from __future__ import annotations

from shared_schema.errors import TrickleError


class StopRequested(Exception):
    """No error: the process was asked to stop while it waited for something."""


class SourceError(TrickleError):
    """PostgreSQL is not as we need it."""


class ConnectionLost(SourceError):
    """The server cannot be reached or closed the connection."""

    retryable = True


class MissingRights(SourceError):
    """The role lacks a right."""


class WrongWalLevel(SourceError):
    """Logical decoding is switched off."""


class NoFreeSlot(SourceError):
    """The server has no replication slot or sender left."""


class SlotActive(SourceError):
    """The slot is streaming to somebody else."""

    retryable = True


class StandbyTimeout(SourceError):
    """The slot did not become free in the time we were to wait."""


class SlotLost(SourceError):
    """The slot no longer holds the changes after our frontier."""


class ForeignSlot(SourceError):
    """A slot of our name that is not ours."""


class ForeignServer(SourceError):
    """Our progress belongs to another server or to another branch of its history."""


class ServerBehind(SourceError):
    """The server's log ends before our frontier, so it was restored to an older state."""


class PublicationMissing(SourceError):
    """A publication we stream from does not exist."""


class ColumnListsDiffer(SourceError):
    """A table is published with different columns, which one stream cannot carry."""


class CaptureFailed(SourceError):
    """A table could not be copied at this moment."""

    retryable = True


class MalformedMessage(TrickleError):
    """Bytes of the stream that follow no known layout; `offset` is where reading failed."""

    def __init__(self, problem: str, *, offset: int) -> None:
        super().__init__(
            f"malformed replication message: {problem} at byte {offset}",
            hint="nothing was acknowledged; report this with the server's version",
        )
        self.offset = offset


class UnreadableValue(TrickleError):
    """A column's text is not in the form its type prints."""


class TopicError(TrickleError):
    """Kafka is not as we need it."""


class BrokerUnavailable(TopicError):
    """No broker answered in time."""

    retryable = True


class Fenced(TopicError):
    """Another producer with our transactional id has started: this instance becomes its standby."""

    retryable = True


class OversizeMessage(TopicError):
    """A change row is larger than the producer or the broker allows."""


class RegistryUnavailable(TopicError):
    """The schema registry does not answer."""

    retryable = True


class SchemaRefused(TopicError):
    """The schema registry does not take a schema version, so no row may be written with it."""


class PublishFailed(TopicError):
    """A Kafka transaction failed for good and was aborted."""
