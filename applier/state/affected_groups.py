"""Groups that a window touches, on their way from the driver to Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from applier.operators.support.inputs import AffectedGroups
from applier.spark.views import create_view
from applier.zset import WEIGHT

FEW_GROUPS = 1_000
"""So many are sent twice, and are answered while Spark plans, without a job; with more, a job is faster."""


def upload_affected_groups(spark: SparkSession, both: pa.Table, schema: StructType) -> tuple[AffectedGroups, str]:
    """What the groups are made of at both ends, for the operators; and the view to drop when the window is over."""
    signed = both.num_rows <= FEW_GROUPS
    if signed:
        weights = (pa.array([weight] * both.num_rows, pa.int64()) for weight in (-1, 1))
        both = pa.concat_tables([both.append_column(WEIGHT, column) for column in weights])
        schema = StructType([*schema.fields, StructField(WEIGHT, LongType())])
    view = create_view(spark.createDataFrame(both, schema))
    return AffectedGroups(f"SELECT * FROM {view}", signed), view
