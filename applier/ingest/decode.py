"""Many messages of one schema version -> change rows in Arrow, decoded in the JVM.

A single row is decoded faster on the driver, but there a hundred thousand rows become as many Python objects. Rows that
need special treatment (a partial image, a TRUNCATE, a value that has no exact physical type) are left to the driver.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from applier.trace.align import LSN, SEQ, arrow_type
from applier.trace.stamped_rows import Chunk
from applier.zset import WEIGHT, column_name
from shared_schema.avro import HEADER_BYTES, ChangeCodec, avro_name
from shared_schema.table_schema import Column


def decode_messages(spark: SparkSession, codec: ChangeCodec, messages: pa.ChunkedArray) -> Chunk | None:
    """Return the rows of the messages, in the same order; None where the driver must decode them one by one."""
    frame = spark.createDataFrame(pa.table({"message": messages}), "message binary").coalesce(1)
    body = F.expr(f"substring(message, {HEADER_BYTES + 1})")
    # With its default calendar Spark would reject dates that PostgreSQL accepts.
    record = from_avro(body, codec.text, {"datetimeRebaseMode": "CORRECTED", "mode": "FAILFAST"})
    columns = codec.schema.columns
    special = [f"r.row.`{avro_name(c.name)}`.member1 IS NOT NULL" for c in columns if can_be_text(c)]
    try:
        rows = (
            frame.select(record.alias("r"))
            .selectExpr(
                *(f"{_value_sql(c)} AS {column_name(i)}" for i, c in enumerate(columns)),
                f"CASE r.op WHEN 'I' THEN 1L WHEN 'D' THEN -1L END AS {WEIGHT}",
                f"r.lsn AS {LSN}",
                f"r.seq AS {SEQ}",
                " OR ".join(["r.partial IS NOT NULL", "r.op = 'T'", "r.row IS NULL", *special]) + " AS odd",
            )
            .toArrow()
        )
    except (PySparkException, Py4JJavaError):
        # The driver decodes the messages one by one, and reports which one is wrong.
        return None
    if pc.any(rows["odd"]).as_py():
        return None
    kinds = [*(arrow_type(column.type) for column in columns), *[pa.int64()] * 3]
    names = rows.column_names[: len(kinds)]
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])
    return Chunk(rows.select(names).cast(schema), codec.schema)


def can_be_text(column: Column) -> bool:
    """Whether some values of the column can be held only as text: then the Avro union has a branch for them."""
    return len(column.type.avro) > 2


def _value_sql(column: Column) -> str:
    field = f"r.row.`{avro_name(column.name)}`"
    return f"{field}.member0" if can_be_text(column) else field
