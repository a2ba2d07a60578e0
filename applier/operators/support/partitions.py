"""A Z-set and its delta -> the rows of the affected partitions, before and after, one by one.

What depends on the order or the number of rows is not linear. So it is evaluated again for every partition that ΔA
affects, over its rows before and after; a partition that is not affected cannot change:

    Δ f(A) = f(A'_K) − f(A_K),   K = the partitions of ΔA

Both are one Spark query over one scan of A: a row belongs to a SIDE, −1 before or 1 after, which is one of the keys of
the partition and in the end the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.emit import spark_sql
from applier.operators.support.delta_plan import OrderedDelta
from applier.operators.support.input_plans import InputPlans
from applier.operators.support.inputs import Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Field, TopK, Window
from applier.plan.sort import SortKey
from applier.zset import WEIGHT, ZSet, column_name, column_names, sum_same_rows

SIDE = "__side"


def expand_weights(columns: Sequence[Field], zset: ZSet) -> str:
    """Return every row of the Z-set as often as its weight says, with its columns and SIDE 1."""
    once = group_equal_rows(columns, f"SELECT * FROM ({zset.sql})", f"1L AS {SIDE}, sum({WEIGHT}) AS n")
    return _repeat_rows(len(columns), once)


def plan_partitions_delta(node: TopK | Window, inputs: InputPlans) -> OrderedDelta | None:
    """Plan the affected partitions of the node, before, and the delta of its input."""
    delta = inputs.delta_read_again(node.input)
    if delta is None:
        return None
    # NULL is a partition of its own, so keys are compared null-safe.
    keys = [spark_sql(key) for key in node.keys]
    key_filter = KeyFilter.of(node.keys, keys, delta, null_safe=True, broadcast=inputs.small)
    return OrderedDelta(node, inputs.snapshot_where(node.input, Side.BEFORE, key_filter), delta)


def affected_rows(columns: Sequence[Field], affected: ZSet, delta: ZSet) -> str:
    """Return the rows of the affected partitions, with their columns and SIDE −1 or 1, each as often as it occurs."""
    names = [*column_names(len(columns)), WEIGHT]
    old_and_new = (
        f"SELECT {', '.join(names)}, 0L AS __new FROM ({affected.sql})"
        f" UNION ALL SELECT {', '.join(names)}, 1L AS __new FROM ({delta.sql})"
    )
    net_rows = group_equal_rows(columns, old_and_new, f"sum(if(__new = 0, {WEIGHT}, 0L)) AS old, sum({WEIGHT}) AS new")
    sides = ", ".join([*column_names(len(columns)), f"stack(2, -1L, old, 1L, new) AS ({SIDE}, n)"])
    return _repeat_rows(len(columns), f"SELECT {sides} FROM ({net_rows})")


def group_equal_rows(columns: Sequence[Field], rows: str, sums: str) -> str:
    """Return one row per distinct row of a node with these columns, with sums over those that are the same."""
    return sum_same_rows(rows, [(column_name(i), field.type.spark) for i, field in enumerate(columns)], [sums])


def _repeat_rows(width: int, counted: str) -> str:
    names = ", ".join([*column_names(width), SIDE])
    return (
        f"SELECT {names} FROM ({counted}) LATERAL VIEW explode(array_repeat(0, CAST(greatest(n, 0L) AS int))) t AS copy"
    )


def drop_cancelled(columns: Sequence[Field], signed: ZSet) -> ZSet:
    """Sum the weights of equal rows and drop those that cancel out."""
    net_rows = group_equal_rows(columns, signed.sql, f"sum({WEIGHT}) AS {WEIGHT}")
    return ZSet(net_rows, signed.columns).filter(f"{WEIGHT} <> 0")


def over_clause(keys: Sequence[str], order: Sequence[str], frame: str = "") -> str:
    """Return the OVER clause of a window within one side."""
    ordering = f" ORDER BY {', '.join(order)}" if order else ""
    return f"OVER (PARTITION BY {', '.join([SIDE, *keys])}{ordering}{' ' + frame if frame else ''})"


def order_by_key(key: SortKey) -> str:
    """Return one key of ORDER BY; it always says where NULLs go."""
    direction = "DESC" if key.descending else "ASC"
    return f"{spark_sql(key.expr)} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
