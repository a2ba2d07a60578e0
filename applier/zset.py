"""Z-sets on DataFrames: rows c0..cn-1 with an integer weight. The few words every operator is written with.

A table is the Z-set whose weights count its rows; a delta has negative weights for what leaves.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WEIGHT = "__w"


def column_name(ordinal: int) -> str:
    """The name of a node's output column."""
    return f"c{ordinal}"


def column_names(width: int) -> list[str]:
    """c0..c(width-1)."""
    return [column_name(i) for i in range(width)]


def plus(*terms: DataFrame | None) -> DataFrame | None:
    """A + B + …; a term that is None is proven empty, and so is a sum of such terms."""
    given = [term for term in terms if term is not None]
    return reduce(DataFrame.unionAll, given) if given else None


def negate(zset: DataFrame) -> DataFrame:
    """-A."""
    return zset.withColumn(WEIGHT, -F.col(WEIGHT))


def rename(zset: DataFrame, offset: int, width: int) -> DataFrame:
    """The same rows under the names c<offset>.., the weight as `__w<offset>`: one side of a join."""
    columns = [F.col(column_name(i)).alias(column_name(offset + i)) for i in range(width)]
    return zset.select(*columns, F.col(WEIGHT).alias(f"{WEIGHT}{offset}"))


def net(zset: DataFrame, width: int) -> DataFrame:
    """Σ weights per distinct row, zeros dropped."""
    return zset.groupBy(*column_names(width)).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)


def weighted(columns: list[Column], weight: Column) -> list[Column]:
    """Output columns under their positional names, then the weight."""
    return [c.alias(column_name(i)) for i, c in enumerate(columns)] + [weight.alias(WEIGHT)]
