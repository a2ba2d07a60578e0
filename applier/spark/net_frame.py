"""A Z-set as a DataFrame in; the same Z-set with each row once, without zeros, out."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from applier.zset import FLOATS, WEIGHT, is_negative_zero, with_sign_of_zero


def net_frame(frame: DataFrame) -> DataFrame:
    """Return Σ weights per distinct row. As in `sum_same_rows`, 0 and -0 are different."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema if field.name != WEIGHT}
    signs = {name: f"__sign_of_{name}" for name, spark in types.items() if spark in FLOATS}
    marked = frame.selectExpr("*", *(f"{is_negative_zero(name)} AS {sign}" for name, sign in signs.items()))
    summed = marked.groupBy(*types, *signs.values()).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")
    shown = [with_sign_of_zero(n, spark, signs[n]) if n in signs else n for n, spark in types.items()]
    return summed.selectExpr(*shown, WEIGHT)
