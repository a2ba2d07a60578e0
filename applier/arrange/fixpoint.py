"""A recursion -> its whole result, round by round: each round is one Spark query over the rows of the last one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from applier.errors import CalculationError
from applier.plan.nodes import Recursion, fields
from applier.spark.collect import collect
from applier.spark.ddl import parse_schema
from applier.spark.views import create_view, drop_view
from applier.zset import WEIGHT, ZSet, column_names, ddl, net

MAX_FIXPOINT_ROUNDS = 1_000
"""After so many rounds a recursion is considered endless; PostgreSQL would not stop either."""


def fixpoint(spark: SparkSession, node: Recursion, base: ZSet, step: Callable[[ZSet], ZSet]) -> str:
    """Return the name of a view of the whole result; the caller drops it."""
    names = column_names(len(fields(node)))
    schema = parse_schema(ddl([field.type.spark for field in fields(node)]))

    def run(zset: ZSet) -> pa.Table:
        rows = collect(spark.sql(zset.sql))
        return net(pa.Table.from_arrays(rows.columns, names=[*names, WEIGHT]))

    work_table = found = _with_weight_one(run(base)) if node.distinct else run(base)
    for _ in range(MAX_FIXPOINT_ROUNDS):
        view = create_view(spark.createDataFrame(work_table, schema))
        try:
            produced = run(step(ZSet.of_view(view, len(names))))
        finally:
            drop_view(spark, view)
        work_table = _drop_seen(_with_weight_one(produced), found, names) if node.distinct else produced
        found = pa.concat_tables([found, work_table])
        # Checked after the round, as in PostgreSQL: even over an empty work table a step may return rows of other
        # tables.
        if not work_table.num_rows:
            return create_view(spark.createDataFrame(found, schema))
    raise CalculationError(
        f"a recursion does not end within {MAX_FIXPOINT_ROUNDS} rounds",
        hint="is there a cycle in the data? use UNION instead of UNION ALL, or bound the depth in WHERE",
    )


def _with_weight_one(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.num_columns - 1, WEIGHT, pa.array([1] * rows.num_rows, pa.int64()))


def _drop_seen(rows: pa.Table, seen: pa.Table, names: list[str]) -> pa.Table:
    """Return the rows that are not among the seen ones; NULL is equal to NULL."""
    old = pa.concat_tables([_with_weight_one(rows), seen.select([*names, WEIGHT])])
    tag = pa.array([1] * rows.num_rows + [0] * seen.num_rows, pa.int64())
    grouped = old.set_column(old.num_columns - 1, WEIGHT, tag).group_by(names, use_threads=False)
    new = grouped.aggregate([(WEIGHT, "min")]).select([*names, f"{WEIGHT}_min"]).rename_columns([*names, WEIGHT])
    return new.filter(pc.equal(new[WEIGHT], 1))
