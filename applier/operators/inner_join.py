"""Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB, where B' = B + ΔB; the weights of joined rows multiply."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from applier.expressions.emit import emit
from applier.plan.expr import shift
from applier.plan.nodes import Join, fields
from applier.zset import WEIGHT, column_name, plus, rename


def join(node: Join, left: DataFrame, right: DataFrame, *, small: str | None = None) -> DataFrame:
    """A ⋈ B of two Z-sets; `small` names the side ("left" or "right") that is a delta and worth broadcasting."""
    width = len(fields(node.left))
    right_width = len(fields(node.right))
    a, b = rename(left, 0, width), rename(right, width, right_width)
    conditions: list[Column] = [emit(le) == emit(shift(re, width)) for le, re in node.equi]
    if node.residual is not None:
        conditions.append(emit(node.residual))
    if small == "left":
        a = F.broadcast(a)
    elif small == "right":
        b = F.broadcast(b)
    joined = a.join(b, reduce(Column.__and__, conditions), "inner") if conditions else a.crossJoin(b)
    columns = [F.col(column_name(i)) for i in range(width + right_width)]
    return joined.select(*columns, (F.col(f"{WEIGHT}0") * F.col(f"{WEIGHT}{width}")).alias(WEIGHT))


def delta_join(
    node: Join,
    deltas: tuple[DataFrame | None, DataFrame | None],
    *,
    left_before: Callable[[], DataFrame],
    right_after: Callable[[], DataFrame],
    small: bool,
) -> DataFrame | None:
    """ΔA ⋈ B' + A ⋈ ΔB.   Reads the traces of both inputs, keeps no state.

    A snapshot is only built when the other side changed, so a quiet input costs its partner nothing.
    """
    left, right = deltas
    return plus(
        None if left is None else join(node, left, right_after(), small="left" if small else None),
        None if right is None else join(node, left_before(), right, small="right" if small else None),
    )
