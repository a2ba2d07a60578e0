"""Z-sets, as Spark SQL text and in Arrow: rows with an integer weight. All operators are written with these.

A table is the Z-set whose weights count its rows; a delta has negative weights for rows that leave. An operator maps
Z-sets to a Z-set, each a SELECT, so Spark parses and analyses a whole plan once, however deep it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

WEIGHT = "__w"
LEFT, RIGHT = "l", "r"
"""The names of the two inputs of a join in its text."""

Row = tuple[Any, ...]


def column_name(ordinal: int) -> str:
    """Return the name of a node's output column."""
    return f"c{ordinal}"


def column_names(width: int) -> list[str]:
    """Return c0..c(width-1)."""
    return [column_name(i) for i in range(width)]


@dataclass(frozen=True, slots=True)
class ZSet:
    """A SELECT of the columns and of the weight. A Z-set that is proven empty is not written at all: it is None.

    The columns of a node's result are c0, c1 …; the columns of accumulators are k0, k1 … and their weight is several
    sums, which add up in the same way.
    """

    sql: str
    columns: tuple[str, ...]

    @classmethod
    def of_view(cls, view: str, width: int) -> ZSet:
        """Return the rows of a view with the columns c0, c1 … and the weight."""
        return cls(f"SELECT * FROM {view}", tuple(column_names(width)))

    @classmethod
    def select_from(cls, source: str, exprs: Sequence[str], weight: str) -> ZSet:
        """Return expressions under the names c0, c1 …, then the weight; `source` is what follows FROM."""
        names = tuple(column_names(len(exprs)))
        selected = [f"{text} AS {name}" for text, name in zip(exprs, names, strict=True)]
        return cls(f"SELECT {', '.join([*selected, f'{weight} AS {WEIGHT}'])} FROM {source}", names)

    def select(self, exprs: Sequence[str], weight: str = WEIGHT) -> ZSet:
        """Return π of the Z-set: one column per expression, c0, c1 …"""
        return ZSet.select_from(f"({self.sql})", exprs, weight)

    def filter(self, condition: str) -> ZSet:
        """Return σ of the Z-set: the rows for which the condition is true."""
        return ZSet(f"SELECT * FROM ({self.sql}) WHERE {condition}", self.columns)

    def plus(self, *others: ZSet) -> ZSet:
        """Return A + B + …"""
        return ZSet(" UNION ALL ".join([self.sql, *(other.sql for other in others)]), self.columns) if others else self

    def negate(self) -> ZSet:
        """Return −A."""
        return ZSet(
            f"SELECT {', '.join([*self.columns, f'-{WEIGHT} AS {WEIGHT}'])} FROM ({self.sql})",
            self.columns,
        )

    def place(self, places: Sequence[int]) -> ZSet:
        """Return the Z-set with its columns named by their places in a wider one."""
        names = tuple(column_name(place) for place in places)
        renamed = [f"{own} AS {name}" for own, name in zip(self.columns, names, strict=True)]
        return ZSet(f"SELECT {', '.join([*renamed, WEIGHT])} FROM ({self.sql})", names)

    def keep_columns(self, ordinals: Sequence[int]) -> ZSet:
        """Return some columns; rows that are equal in them become one, with the sum of their weights."""
        names = [self.columns[i] for i in ordinals]
        grouping = f" GROUP BY {', '.join(names)}" if names else ""
        summed = f"SELECT {', '.join([*names, f'sum({WEIGHT}) AS total'])} FROM ({self.sql}){grouping}"
        return ZSet.select_from(f"({summed}) WHERE total <> 0", names, "total")

    def times(self, other: ZSet, conditions: Sequence[str], broadcast: str | None = None) -> ZSet:
        """Return A ⋈ B; the columns already have their places in the output. `broadcast`: LEFT or RIGHT."""
        hint = f"/*+ BROADCAST({broadcast}) */ " if broadcast else ""
        return ZSet(
            f"SELECT {hint}* EXCEPT (__wl, __wr), __wl * __wr AS {WEIGHT}"
            f" FROM (SELECT * EXCEPT ({WEIGHT}), {WEIGHT} AS __wl FROM ({self.sql})) {LEFT}"
            f" JOIN (SELECT * EXCEPT ({WEIGHT}), {WEIGHT} AS __wr FROM ({other.sql})) {RIGHT}"
            f" ON {' AND '.join(conditions) or 'true'}",
            self.columns + other.columns,
        )


def plus(*terms: ZSet | None) -> ZSet | None:
    """Return A + B + …; a term that is None is proven empty, and so is a sum of such terms."""
    given = [term for term in terms if term is not None]
    return given[0].plus(*given[1:]) if given else None


def ddl(types: Sequence[str]) -> str:
    """Return the schema of a Z-set as Spark DDL, from the Spark types of its columns."""
    return ", ".join([*(f"{column_name(i)} {spark}" for i, spark in enumerate(types)), f"{WEIGHT} bigint"])


def empty_zset(types: Sequence[str]) -> ZSet:
    """Return a Z-set without rows, with columns of these Spark types."""
    return ZSet.select_from("(SELECT 1) WHERE false", [f"CAST(NULL AS {spark})" for spark in types], "0L")


def net(rows: pa.Table) -> pa.Table:
    """Return Σ weights per distinct row, without zeros.

    Every column of the result is nullable: which columns Spark proves to be never null depends on the query that made
    the rows, and the deltas of one stream table come from several queries.
    """
    rows = rows.cast(pa.schema([column.with_nullable(True) for column in rows.schema]))
    if not rows.num_rows:
        return rows
    names = [name for name in rows.column_names if name != WEIGHT]
    summed = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")]).select([*names, f"{WEIGHT}_sum"])
    summed = summed.rename_columns([*names, WEIGHT])
    return summed.filter(pc.not_equal(summed[WEIGHT], 0))


def copies_of(rows: pa.Table, width: int) -> pa.Table:
    """Return each row with a positive weight as often as the weight says, without the weight."""
    weights = rows[WEIGHT]
    if rows.num_rows and (pc.min(weights).as_py(), pc.max(weights).as_py()) == (1, 1):
        return rows.select(column_names(width))
    counts = weights.to_pylist()
    places = [place for place, n in enumerate(counts) for _ in range(max(0, n))]
    return rows.select(column_names(width)).take(pa.array(places, pa.int64()))


def identity(row: Row) -> Row:
    """Return the row in a form that equals itself: in PostgreSQL NaN equals NaN, in Python it does not."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)
