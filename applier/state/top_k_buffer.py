"""Holds the first rows of the input of a LIMIT, and some more, so that rows can leave without reading the input again.

Let L be the last place that the LIMIT selects. Hold every row of the input A up to some place `reach` ≥ L, by rank, so
that rows that are equal in the order stay together. A delta that removes D rows moves the rows behind them up by at
most D places. So once the delta is added to the held rows, they contain every row of A' up to place reach − D. Held
rows beyond that place do no harm: at least that many rows come before them. As long as reach − D ≥ L nothing else is
read; after that A is read once.

    τ(A') − τ(A) = τ(held + ΔA) − τ(held)

Intuitively: if you need the ten best and know the hundred best, ninety of them may leave before you must look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.operators.top_k import last_place, rows_up_to
from applier.plan.nodes import TopK
from applier.spark.collect import collect
from applier.state.exported import ExportedRows
from applier.state.fixpoint import DriverRows, weighted_rows
from applier.zset import ZSet, net

SPARE = 1_000
"""How many places are held behind the last selected one, at least."""

ALL = 2**62
"""A place beyond the last row of any input: the buffer holds the whole input."""


class TopKBuffer(DriverRows):
    """The first rows of the input of one node, at one frontier."""

    def __init__(self, spark: SparkSession, node: TopK, schema: StructType, rows: pa.Table, places: int) -> None:
        self.node = node
        self.reach = places if sum(weight for _, weight in weighted_rows(rows)) >= places else ALL
        self._max_rows = 4 * rows.num_rows + SPARE
        super().__init__(spark, schema, rows)

    @classmethod
    def of(cls, spark: SparkSession, node: TopK, zset: ZSet, leaving: int = 0) -> Self:
        """Read the buffer from this input, with spare places for so many rows that leave."""
        places = last_place(node) + max(SPARE, 2 * leaving)
        frame = spark.sql(rows_up_to(node, zset, places).sql)
        return cls(spark, node, frame.schema, net(collect(frame)), places)

    def export(self) -> ExportedRows:
        """Return the rows as they are now, for a file."""
        return self._export("top_k", reach=self.reach, max_rows=self._max_rows)

    @classmethod
    def restored(
        cls, spark: SparkSession, node: TopK, schema: StructType, rows: pa.Table, extra: Mapping[str, int]
    ) -> Self:
        """Return a buffer that was stored with its rows, its reach and its limit."""
        buffer = cls(spark, node, schema, rows, ALL)
        buffer.reach, buffer._max_rows = extra["reach"], extra["max_rows"]
        return buffer

    def is_sufficient(self, rows: pa.Table) -> bool:
        """Whether the held rows are enough to compute the result after these changes."""
        return self.reach - count_leaving(rows) >= last_place(self.node)

    def add(self, rows: pa.Table) -> None:
        """Add a delta to the held rows."""
        self.reach -= count_leaving(rows)
        super().add(rows)

    def rebuild_if_large(self) -> Self | None:
        """Return a buffer without the rows far behind, once there are many of them; otherwise None."""
        if self.rows <= self._max_rows:
            return None
        fewer = self.of(self._spark, self.node, self.before())
        fewer.reach = min(fewer.reach, self.reach)
        return fewer


def count_leaving(rows: pa.Table) -> int:
    """Return how many rows these changes remove."""
    return -sum(weight for _, weight in weighted_rows(rows) if weight < 0)
