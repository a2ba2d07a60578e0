"""Messages of the pgoutput plugin, protocol version 1: the closed set that a stream is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.lsn import Lsn
from shared_schema.table_schema import ReplicaIdentity


class Unchanged(Enum):
    """The marker for a TOASTed value that the UPDATE did not change: the stream does not repeat it."""

    TOAST = "u"


Field = bytes | None | Unchanged
"""A column of a tuple: the text PostgreSQL prints, NULL, or not sent."""

Tuple = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A committed transaction follows; `commit_lsn` is where its commit record starts."""

    commit_lsn: Lsn
    commit_ts_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction is complete; `end_lsn` is the first byte after its commit record."""

    commit_lsn: Lsn
    end_lsn: Lsn


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction was replicated to this server from elsewhere."""

    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """pg_logical_emit_message(); `lsn` is where it ends. Non-transactional ones come outside Begin."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it; `in_key` means it is part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """How the tuples of `relid` look from here on."""

    relid: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """Name of a user type; for a domain the oid is the domain's and the name its base type's."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relid: int
    new: Tuple


@dataclass(frozen=True, slots=True)
class OldImage:
    """What is known of the row before: all of it, or only the replica identity's columns."""

    values: Tuple
    full: bool


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; `old` is None when the identity is not FULL and did not change."""

    relid: int
    old: OldImage | None
    new: Tuple


@dataclass(frozen=True, slots=True)
class Delete:
    """A removed row."""

    relid: int
    old: OldImage


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these relations removed by one statement."""

    relids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


RowMessage = Insert | Update | Delete
Message = Begin | Commit | Origin | LogicalMessage | Relation | TypeName | RowMessage | Truncate
