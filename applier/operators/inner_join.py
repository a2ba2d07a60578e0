"""Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB, where B' = B + ΔB; the weights of joined rows multiply."""

from __future__ import annotations

from collections.abc import Callable

from applier.expressions.emit import spark_sql
from applier.plan.expr import shift
from applier.plan.nodes import Join, fields
from applier.zset import WEIGHT, column_name, column_names, plus, select

LEFT, RIGHT = "l", "r"


def join(node: Join, left: str, right: str, *, small: str | None = None) -> str:
    """A ⋈ B of two Z-sets; `small` names the side (LEFT or RIGHT) that is a delta and worth broadcasting."""
    width, right_width = len(fields(node.left)), len(fields(node.right))
    conditions = [f"{spark_sql(le)} = {spark_sql(shift(re, width))}" for le, re in node.equi]
    if node.residual is not None:
        conditions.append(spark_sql(node.residual))
    moved = [f"{column_name(i)} AS {column_name(width + i)}" for i in range(right_width)]
    sources = (
        f"(SELECT {', '.join([*column_names(width), f'{WEIGHT} AS __wl'])} FROM ({left})) {LEFT}"
        f" JOIN (SELECT {', '.join([*moved, f'{WEIGHT} AS __wr'])} FROM ({right})) {RIGHT}"
        f" ON {' AND '.join(conditions) or 'true'}"
    )
    text = select(column_names(width + right_width), "__wl * __wr", sources)
    return text if small is None else text.replace("SELECT", f"SELECT /*+ BROADCAST({small}) */", 1)


def delta_join(
    node: Join,
    deltas: tuple[str | None, str | None],
    *,
    left_before: Callable[[], str],
    right_after: Callable[[], str],
    small: bool,
) -> str | None:
    """ΔA ⋈ B' + A ⋈ ΔB.   Reads the traces of both inputs, keeps no state.

    A snapshot is only asked for when the other side changed, so a quiet input costs its partner nothing.
    """
    left, right = deltas
    return plus(
        None if left is None else join(node, left, right_after(), small=LEFT if small else None),
        None if right is None else join(node, left_before(), right, small=RIGHT if small else None),
    )
