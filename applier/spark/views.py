"""Names for frames, so that SQL texts can use them."""

from __future__ import annotations

from itertools import count

from pyspark.sql import DataFrame, SparkSession

_numbers = count()


def create_view(frame: DataFrame) -> str:
    """Give a frame a name that SQL texts can use."""
    name = f"pgt_{next(_numbers)}"
    frame.createOrReplaceTempView(name)
    return name


def drop_view(spark: SparkSession, name: str | None) -> None:
    """Take the name back."""
    if name is not None:
        spark.catalog.dropTempView(name)
