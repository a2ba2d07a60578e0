"""Keys -> the current rows of a trace with those keys: one Spark query over the base, the overlay on the driver."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from applier.spark.collect import collect
from applier.spark.views import create_view, drop_view
from applier.trace.align import trace_schema
from applier.trace.columns import TraceColumn
from applier.zset import WEIGHT, Row, column_name, column_names, net


def lookup_rows(
    spark: SparkSession,
    columns: Sequence[TraceColumn],
    parts: tuple[Sequence[str], pa.Table],
    places: Sequence[int],
    keys: Sequence[Row],
) -> list[Row]:
    """Return the rows whose columns at `places` are equal to one of the keys; NULL for columns that are not known.

    `parts` are the views of the base, and the overlay.
    """
    views, overlay = parts
    schema, names = trace_schema(columns), column_names(len(columns))
    # The values of a lost column do not add up: equal rows would count as different ones.
    known = [i for i, column in enumerate(columns) if column.is_open]
    read = [*(names[i] for i in known), WEIGHT]
    key_table = pa.table(
        {names[i]: pa.array([key[n] for key in keys], schema.field(i).type) for n, i in enumerate(places)}
    )
    found = [overlay.join(key_table, key_table.column_names, join_type="left semi").select(read)]
    if views:
        kinds = ", ".join(f"{names[i]} {columns[i].type.spark_ddl}" for i in places)
        found.append(_lookup_in_base(spark, views, spark.createDataFrame(key_table, kinds), read).cast(found[0].schema))
    rows = net(pa.concat_tables(found))
    values = {i: rows[column_name(i)].to_pylist() for i in known}
    nothing = [None] * rows.num_rows
    counted = zip(rows[WEIGHT].to_pylist(), *(values.get(i, nothing) for i in range(len(columns))), strict=True)
    # A key is unique in PostgreSQL: a row that occurs more than once is not a valid result.
    return [tuple(row) for weight, *row in counted if weight == 1]


def _lookup_in_base(spark: SparkSession, views: Sequence[str], key_table: DataFrame, read: Sequence[str]) -> pa.Table:
    keys = create_view(key_table)
    try:
        same = " AND ".join(f"b.{name} = k.{name}" for name in key_table.columns)
        columns = ", ".join(f"b.{name}" for name in read)
        texts = (
            f"SELECT /*+ BROADCAST(k) */ {columns} FROM {view} b LEFT SEMI JOIN {keys} k ON {same}" for view in views
        )
        return collect(spark.sql(" UNION ALL ".join(texts)))
    finally:
        drop_view(spark, keys)
