"""Spark groups 0 and -0 as one key; rows are netted as what they are, whatever way Spark evaluates the query."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import DataFrame, SparkSession

from applier.spark.net_frame import net_frame
from applier.spark.views import create_view, drop_view
from applier.zset import WEIGHT, sum_same_rows

ROWS = [
    (1, -0.0, -0.0, 1),
    (1, -0.0, -0.0, 1),
    (1, 0.0, -0.0, 1),
    (1, 0.0, -0.0, -1),
    (1, 0.0, 0.0, 1),
    (2, math.nan, None, 2),
    (2, math.nan, None, -1),
    (3, None, -0.0, 1),
    (4, 1.5, 2.5, -3),
]
EXPECTED = {
    (1, "-0.0", "-0.0", 2),
    (1, "0.0", "0.0", 1),
    (2, "nan", None, 1),
    (3, None, "-0.0", 1),
    (4, "1.5", "2.5", -3),
}


def shown(frame: DataFrame) -> set[tuple[object, ...]]:
    return {tuple(repr(value) if isinstance(value, float) else value for value in row) for row in frame.collect()}


@pytest.mark.parametrize("held", [False, True], ids=["literal rows", "data"])
def test_the_sign_of_a_zero_is_part_of_a_row(spark: SparkSession, held: bool) -> None:
    frame = spark.createDataFrame(ROWS, f"c0 int, c1 double, c2 float, {WEIGHT} bigint")
    frame = frame.localCheckpoint() if held else frame
    assert shown(net_frame(frame)) == EXPECTED
    view = create_view(frame)
    try:
        columns = [("c0", "int"), ("c1", "double"), ("c2", "float")]
        text = sum_same_rows(f"SELECT * FROM {view}", columns, [f"sum({WEIGHT}) AS {WEIGHT}"])
        assert shown(spark.sql(f"SELECT * FROM ({text}) WHERE {WEIGHT} <> 0")) == EXPECTED
    finally:
        drop_view(spark, view)
