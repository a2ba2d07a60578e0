"""A Spark frame in, the name under which SQL texts can use it out."""

from __future__ import annotations

from itertools import count

from pyspark.sql import DataFrame, SparkSession

_numbers = count()


def create_view(frame: DataFrame) -> str:
    """Register a frame as a temporary view; return its name."""
    name = f"pgt_{next(_numbers)}"
    frame.createOrReplaceTempView(name)
    return name


def drop_view(spark: SparkSession, name: str | None) -> None:
    """Drop the temporary view."""
    if name is not None:
        spark.catalog.dropTempView(name)
