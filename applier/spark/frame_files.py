"""Arrow rows that are too many bytes for the JVM's heap in; a Spark frame that reads them from a file out."""

from __future__ import annotations

import weakref
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

LARGE_BYTES = 64 << 20
"""Spark holds a frame that is made of Arrow rows in its heap for as long as somebody may read it."""


def needs_file(spark: SparkSession, rows: pa.Table) -> bool:
    """Whether rows are too large for the heap. Only in local mode: elsewhere executors would not find the file."""
    return rows.nbytes > LARGE_BYTES and str(spark.sparkContext.master).startswith("local")


def frame_from_file(spark: SparkSession, rows: pa.Table, schema: StructType, group_rows: int | None) -> DataFrame:
    """Write the rows to a file and return a frame that reads it; the file is deleted together with `rows`."""
    file = Path(spark.sparkContext._temp_dir or gettempdir(), f"rows-{uuid4().hex}.parquet")
    # Before it is written: on a full disk a part of it would stay.
    weakref.finalize(rows, file.unlink, missing_ok=True)
    pq.write_table(rows.select(schema.names), file, row_group_size=group_rows, compression="lz4")
    return spark.read.schema(schema).parquet(str(file))
