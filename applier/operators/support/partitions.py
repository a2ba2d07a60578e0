"""Rows of a Z-set one by one, and those of the partitions a change touches, as they were and as they are.

What depends on the order or the number of rows is not linear. So it is computed anew for every partition that ΔA
touches, over its rows before and after; a partition nothing touches cannot change:

    Δ f(A) = f(A'_K) − f(A_K),   K = the partitions of ΔA

Both are one Spark query over one scan of A: a row belongs to a SIDE, −1 as it was or 1 as it is, which is a key of the
partition and in the end the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.functions.emit import spark_sql
from applier.operators.support.key_filter import KeyFilter
from applier.plan.expr import Expr
from applier.plan.nodes import Field
from applier.plan.sort import SortKey
from applier.zset import WEIGHT, column_name, column_names

SIDE = "__side"
_FLOATS = ("float", "double")


def expand_weights(columns: Sequence[Field], zset: str) -> str:
    """Every row of the Z-set as often as it is there, columns and SIDE 1."""
    once = group_equal_rows(columns, f"SELECT * FROM ({zset})", f"1L AS {SIDE}, sum({WEIGHT}) AS n")
    return _copied(len(columns), once)


def affected_rows(
    columns: Sequence[Field], keys: Sequence[Expr], before: Callable[[KeyFilter], str], delta: str, *, small: bool
) -> str:
    """The rows of the partitions that the delta touches, columns and SIDE −1 or 1, each as often as it is there."""
    names = [*column_names(len(columns)), WEIGHT]
    # NULL is a partition like any other.
    touched = before(KeyFilter.of(keys, [spark_sql(key) for key in keys], delta, null_safe=True, small=small))
    both = (
        f"SELECT {', '.join(names)}, 0L AS __new FROM ({touched})"
        f" UNION ALL SELECT {', '.join(names)}, 1L AS __new FROM ({delta})"
    )
    netted = group_equal_rows(columns, both, f"sum(if(__new = 0, {WEIGHT}, 0L)) AS old, sum({WEIGHT}) AS new")
    sides = ", ".join([*column_names(len(columns)), f"stack(2, -1L, old, 1L, new) AS ({SIDE}, n)"])
    return _copied(len(columns), f"SELECT {sides} FROM ({netted})")


def group_equal_rows(columns: Sequence[Field], rows: str, sums: str) -> str:
    """One row per distinct row; floats by their text, for -0 and 0 are one key to Spark and two values."""
    keys = [
        f"CAST({column_name(i)} AS string)" if field.type.spark in _FLOATS else column_name(i)
        for i, field in enumerate(columns)
    ]
    shown = [
        f"CAST({key} AS {field.type.spark}) AS {column_name(i)}" if field.type.spark in _FLOATS else key
        for i, (key, field) in enumerate(zip(keys, columns, strict=True))
    ]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*shown, sums])} FROM ({rows}){grouping}"


def _copied(width: int, counted: str) -> str:
    names = ", ".join([*column_names(width), SIDE])
    return (
        f"SELECT {names} FROM ({counted}) LATERAL VIEW explode(array_repeat(0, CAST(greatest(n, 0L) AS int))) t AS copy"
    )


def drop_cancelled(columns: Sequence[Field], signed: str) -> str:
    """Rows with their weights summed, without those that cancel out."""
    netted = group_equal_rows(columns, signed, f"sum({WEIGHT}) AS {WEIGHT}")
    return f"SELECT * FROM ({netted}) WHERE {WEIGHT} <> 0"


def over_clause(keys: Sequence[str], order: Sequence[str], frame: str = "") -> str:
    """The OVER clause of a window within one side."""
    ordering = f" ORDER BY {', '.join(order)}" if order else ""
    return f"OVER (PARTITION BY {', '.join([SIDE, *keys])}{ordering}{' ' + frame if frame else ''})"


def order_by_key(key: SortKey) -> str:
    """A key of ORDER BY; where NULLs go is always said."""
    direction = "DESC" if key.descending else "ASC"
    return f"{spark_sql(key.expr)} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
