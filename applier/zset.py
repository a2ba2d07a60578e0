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

from applier.errors import QueryTooLarge

WEIGHT = "__w"
LEFT, RIGHT = "l", "r"
"""The names of the two inputs of a join in its text."""

FLOATS = ("float", "double")
"""The Spark types in which equal values may differ: 0 and -0."""
MAX_TEXT = 8_000_000
"""No text is longer, whatever the settings say: each operator may write its inputs several times, so a text that is too
long must not grow any further."""

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

    def __post_init__(self) -> None:
        if len(self.sql) > MAX_TEXT:
            raise QueryTooLarge(
                f"a query whose delta is a text of more than {MAX_TEXT} characters",
                hint="create a stream table for a part of it, and read that",
            )

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

    def keep_columns(self, ordinals: Sequence[int], types: Sequence[str]) -> ZSet:
        """Return some columns, of these Spark types; rows that are the same in them become one, with the sum of their
        weights."""
        names = [self.columns[i] for i in ordinals]
        summed = sum_same_rows(self.sql, list(zip(names, types, strict=True)), [f"sum({WEIGHT}) AS total"])
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


def is_negative_zero(name: str) -> str:
    """Return the condition that a float column is -0."""
    # CAST is evaluated for zeros only.
    return f"({name} = 0 AND CAST({name} AS string) = '-0.0')"


def with_sign_of_zero(name: str, spark: str, condition: str) -> str:
    """Return a float column with the sign that Spark took from its zeros; `condition` says where it was -0."""
    return f"if({condition}, CAST('-0.0' AS {spark}), {name}) AS {name}"


def sum_same_rows(rows: str, columns: Sequence[tuple[str, str]], sums: Sequence[str]) -> str:
    """Return one row per distinct row of a SELECT, with sums over those that are the same.

    `columns` are names and Spark types. To Spark -0 and 0 are one key, which it shows as 0; but only rows that are the
    same to the last bit cancel out, so the sign of a zero is a key of its own.
    """
    signs = {name: is_negative_zero(name) for name, spark in columns if spark in FLOATS}
    keys = [*(name for name, _ in columns), *signs.values()]
    shown = [with_sign_of_zero(name, spark, signs[name]) if name in signs else name for name, spark in columns]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*shown, *sums])} FROM ({rows}){grouping}"


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
    rows = _with_one_nan(rows)
    names = [name for name in rows.column_names if name != WEIGHT]
    summed = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")]).select([*names, f"{WEIGHT}_sum"])
    summed = summed.rename_columns([*names, WEIGHT])
    return summed.filter(pc.not_equal(summed[WEIGHT], 0))


def _with_one_nan(rows: pa.Table) -> pa.Table:
    """Return the rows with the same bits for every NaN: some calculations return one with a sign, and Arrow compares
    bits, as rows should be compared otherwise (0 and -0 look different)."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_floating(column.type) and pc.any(is_nan := pc.is_nan(rows[place])).as_py():
            same = pc.if_else(is_nan, pa.scalar(math.nan, column.type), rows[place])
            rows = rows.set_column(place, column, same)
    return rows


def copies_of(rows: pa.Table, width: int) -> pa.Table:
    """Return each row with a positive weight as often as the weight says, without the weight."""
    weights = rows[WEIGHT]
    if rows.num_rows and (pc.min(weights).as_py(), pc.max(weights).as_py()) == (1, 1):
        return rows.select(column_names(width))
    counts = weights.to_pylist()
    places = [place for place, n in enumerate(counts) for _ in range(max(0, n))]
    return rows.select(column_names(width)).take(pa.array(places, pa.int64()))


def identity(row: Row) -> Row:
    """Return the row in a form that equals the same row only: to Python NaN is not NaN, and 0 is -0."""
    return tuple(
        str(value) if isinstance(value, float) and (not value or math.isnan(value)) else value for value in row
    )
