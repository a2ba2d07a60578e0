"""What a captured relation looks like at one point in the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.pg_types import PgType


class ReplicaIdentity(Enum):
    """What the old image of a changed row holds (pg_class.relreplident)."""

    DEFAULT = "d"
    FULL = "f"
    INDEX = "i"
    NOTHING = "n"


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A relation by its two names, unquoted."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """Safe to paste into SQL text."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


def quote_identifier(name: str) -> str:
    """`a"b` -> `"a""b"`, as PostgreSQL reads it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column, in the order of the row record."""

    name: str
    type: PgType


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns and key of one relation; `key` names the primary-key columns, empty for a keyless table."""

    table: TableId
    relid: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replica_identity: ReplicaIdentity

    def column(self, name: str) -> Column:
        """The column of that name; a KeyError names the table and what it has."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.table} has no column {name!r}, only {', '.join(c.name for c in self.columns)}")
