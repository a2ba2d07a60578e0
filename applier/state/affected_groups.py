"""Uploads the affected groups of an aggregate from the driver to Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from applier.operators.support.inputs import AffectedGroups
from applier.spark.views import create_view
from applier.zset import WEIGHT, ZSet

FEW_GROUPS = 1_000
"""Up to so many groups are sent twice, and Spark computes their results while it plans, without a job. With more groups
a job is faster."""


def upload_affected_groups(
    spark: SparkSession, keys: Sequence[str], groups: pa.Table, schema: StructType
) -> tuple[AffectedGroups, str]:
    """Return the groups with their columns at both ends of the LSN range, and the view to drop after the refresh."""
    signed = groups.num_rows <= FEW_GROUPS
    if signed:
        weights = (pa.array([weight] * groups.num_rows, pa.int64()) for weight in (-1, 1))
        groups = pa.concat_tables([groups.append_column(WEIGHT, column) for column in weights])
        schema = StructType([*schema.fields, StructField(WEIGHT, LongType())])
    view = create_view(spark.createDataFrame(groups, schema))
    return AffectedGroups(ZSet(f"SELECT * FROM {view}", tuple(keys)), signed), view
