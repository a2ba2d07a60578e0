"""Z-sets, as Spark SQL text and in Arrow: rows c0..cn-1 with an integer weight. All operators are written with these.

A table is the Z-set whose weights count its rows; a delta has negative weights for rows that leave. An operator maps
SELECT texts to a SELECT text, so Spark parses and analyses a whole plan once, however deep it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def select(columns: list[str], weight: str, source: str) -> str:
    """Return a SELECT of the columns under their positional names, then the weight; `source` is what follows FROM."""
    named = [f"{text} AS {column_name(i)}" for i, text in enumerate(columns)]
    return f"SELECT {', '.join([*named, f'{weight} AS {WEIGHT}'])} FROM {source}"


def place_columns(zset: str, places: Sequence[int]) -> str:
    """Return the Z-set with its columns named by their places in a wider one."""
    names = [f"{column_name(i)} AS {column_name(place)}" for i, place in enumerate(places)]
    return f"SELECT {', '.join([*names, WEIGHT])} FROM ({zset})"


def select_columns(zset: str, columns: Sequence[int]) -> str:
    """Return some columns of a Z-set; rows that are equal in them become one, with the sum of their weights."""
    names = [column_name(i) for i in columns]
    grouping = f" GROUP BY {', '.join(names)}" if names else ""
    summed = f"SELECT {', '.join([*names, f'sum({WEIGHT}) AS total'])} FROM ({zset}){grouping}"
    return select(names, "total", f"({summed}) WHERE total <> 0")


def times(left: str, right: str, conditions: Sequence[str], broadcast: str | None = None) -> str:
    """Return A ⋈ B of two Z-sets whose columns already have their places in the output; `broadcast`: LEFT or RIGHT."""
    hint = f"/*+ BROADCAST({broadcast}) */ " if broadcast else ""
    return (
        f"SELECT {hint}* EXCEPT (__wl, __wr), __wl * __wr AS {WEIGHT}"
        f" FROM (SELECT * EXCEPT ({WEIGHT}), {WEIGHT} AS __wl FROM ({left})) {LEFT}"
        f" JOIN (SELECT * EXCEPT ({WEIGHT}), {WEIGHT} AS __wr FROM ({right})) {RIGHT}"
        f" ON {' AND '.join(conditions) or 'true'}"
    )


def plus(*terms: str | None) -> str | None:
    """Return A + B + …; a term that is None is proven empty, and so is a sum of such terms."""
    given = [term for term in terms if term is not None]
    return " UNION ALL ".join(given) if given else None


def ddl(types: Sequence[str]) -> str:
    """Return the schema of a Z-set as Spark DDL, from the Spark types of its columns."""
    return ", ".join([*(f"{column_name(i)} {spark}" for i, spark in enumerate(types)), f"{WEIGHT} bigint"])


def empty_zset(types: Sequence[str]) -> str:
    """Return a Z-set without rows, with columns of these Spark types."""
    return select([f"CAST(NULL AS {spark})" for spark in types], "0L", "(SELECT 1) WHERE false")


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
