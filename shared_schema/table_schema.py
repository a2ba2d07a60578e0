"""The schema of a captured relation at one point in the log: columns, types, key and replica identity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.pg_types import PgType


class ReplicaIdentity(Enum):
    """Which columns the old image of a changed row contains (pg_class.relreplident)."""

    DEFAULT = "d"
    FULL = "f"
    INDEX = "i"
    NOTHING = "n"


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """The schema and the name of a relation, unquoted."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The quoted name, safe in SQL text."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


def quote_identifier(name: str) -> str:
    """Quote a name for PostgreSQL: `a"b` -> `"a""b"`."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column, in the order of the row record."""

    name: str
    type: PgType


LEAF_COLUMN = Column("tableoid", PgType(26, -1, "oid", "oid"))
"""The last column of the change rows of a partitioned table: the oid of the leaf partition that holds the row.
PostgreSQL reserves the name, so no table has a column of its own with it."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns and key of one relation; `key` names the primary-key columns, empty for a table without a key."""

    table: TableId
    relid: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replica_identity: ReplicaIdentity

    @property
    def leaf_ordinal(self) -> int | None:
        """The place of the leaf column; None for a table that is not partitioned."""
        return len(self.columns) - 1 if self.columns and self.columns[-1] == LEAF_COLUMN else None

    def column(self, name: str) -> Column:
        """Return the column of that name; the KeyError names the table and its columns."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.table} has no column {name!r}, only {', '.join(c.name for c in self.columns)}")
