"""A recursion, round by round: one Spark query over the rows of the last round, its result held on the driver."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from applier.errors import CalculationError
from applier.plan.nodes import Recursion, fields
from applier.spark.collect import collect
from applier.spark.views import create_view, drop_view
from applier.zset import WEIGHT, column_names, ddl, net

DEEPEST = 1_000
"""Rounds after which a recursion is taken for one without an end: PostgreSQL would not stop either."""


def fixpoint(spark: SparkSession, node: Recursion, base: str, step: Callable[[str], str]) -> str:
    """The name of a view of the whole result; whoever asked drops it."""
    names = column_names(len(fields(node)))
    schema = ddl([field.type.spark for field in fields(node)])

    def run(text: str) -> pa.Table:
        rows = collect(spark.sql(text))
        return net(pa.Table.from_arrays(rows.columns, names=[*names, WEIGHT]))

    working = found = _once(run(base)) if node.distinct else run(base)
    for _ in range(DEEPEST):
        view = create_view(spark.createDataFrame(working, schema))
        try:
            produced = run(step(f"SELECT * FROM {view}"))
        finally:
            drop_view(spark, view)
        working = _unseen(_once(produced), found, names) if node.distinct else produced
        found = pa.concat_tables([found, working])
        # After the first round, as in PostgreSQL: a step may make rows of other tables though there are none to go on.
        if not working.num_rows:
            return create_view(spark.createDataFrame(found, schema))
    raise CalculationError(
        f"a recursion does not end within {DEEPEST} rounds",
        hint="is there a cycle in the data? use UNION instead of UNION ALL, or bound the depth in WHERE",
    )


def _once(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.num_columns - 1, WEIGHT, pa.array([1] * rows.num_rows, pa.int64()))


def _unseen(rows: pa.Table, seen: pa.Table, names: list[str]) -> pa.Table:
    """The rows that are not among those seen; NULL is equal to NULL."""
    old = pa.concat_tables([_once(rows), seen.select([*names, WEIGHT])])
    tag = pa.array([1] * rows.num_rows + [0] * seen.num_rows, pa.int64())
    least = old.set_column(old.num_columns - 1, WEIGHT, tag).group_by(names, use_threads=False)
    new = least.aggregate([(WEIGHT, "min")]).select([*names, f"{WEIGHT}_min"]).rename_columns([*names, WEIGHT])
    return new.filter(pc.equal(new[WEIGHT], 1))
