"""The first rows of what a LIMIT chooses from, somewhat more than it takes: a guard against rows that leave.

Let L be the last place the LIMIT takes, and hold every row of the input A up to some place `reach` ≥ L, by rank, so
that rows equal in order stay together. A window that takes D rows away moves what comes behind them up by D places at
most, so of A' every row up to place reach − D is held again once the window's rows are put beside them, and rows that
come behind do no harm: there are as many before them as before. As long as reach − D ≥ L nothing else need be read;
after that A is read once.

    τ(A') − τ(A) = τ(held + ΔA) − τ(held)
"""

from __future__ import annotations

from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.operators.top_k import last_place, rows_up_to
from applier.plan.nodes import TopK
from applier.spark.collect import collect
from applier.state.fixpoint import DriverRows, weighted_rows
from applier.zset import net

SPARE = 1_000
"""Places behind the last that is taken, at least."""

ALL = 2**62
"""The place of a row that no input has."""


class TopKBuffer(DriverRows):
    """Of one node, as of some frontier."""

    def __init__(self, spark: SparkSession, node: TopK, schema: StructType, rows: pa.Table, asked: int) -> None:
        self.node = node
        self.reach = asked if sum(weight for _, weight in weighted_rows(rows)) >= asked else ALL
        self._most = 4 * rows.num_rows + SPARE
        super().__init__(spark, schema, rows)

    @classmethod
    def of(cls, spark: SparkSession, node: TopK, zset: str, leaving: int = 0) -> Self:
        """Of this input, with places to spare for so many rows that leave."""
        asked = last_place(node) + max(SPARE, 2 * leaving)
        frame = spark.sql(rows_up_to(node, zset, asked))
        return cls(spark, node, frame.schema, net(collect(frame)), asked)

    def stands(self, rows: pa.Table) -> bool:
        """Whether a window with these changes can be answered from what is held."""
        return self.reach - count_leaving(rows) >= last_place(self.node)

    def add(self, rows: pa.Table) -> None:
        """Put a window's changes beside them."""
        self.reach -= count_leaving(rows)
        super().add(rows)

    def moved(self) -> Self | None:
        """The same without what is far behind, where that has become much."""
        if self.rows <= self._most:
            return None
        fewer = self.of(self._spark, self.node, self.before())
        fewer.reach = min(fewer.reach, self.reach)
        return fewer


def count_leaving(rows: pa.Table) -> int:
    """How many rows these changes take away."""
    return -sum(weight for _, weight in weighted_rows(rows) if weight < 0)
