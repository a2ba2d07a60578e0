"""The text of a schema in, Spark's schema out. Each text is parsed once: Spark's parser is several calls of the JVM."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql.types import StructType

MAX_SCHEMAS = 1_000


@lru_cache(maxsize=MAX_SCHEMAS)
def parse_schema(ddl: str) -> StructType:
    """Return the schema. Callers share it and do not change it."""
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise AssertionError(f"{ddl} is not the schema of a table")
    return schema
