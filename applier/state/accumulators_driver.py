"""Holds σ(A) of one aggregate on the driver, one row per group, where groups are few and accumulators are sums.

    σ(A + ΔA) = σ(A) + σ(ΔA)

A refresh then reads exactly the affected groups. Spark computes only their results, from one small relation without a
join or a shuffle.

Intuitively: a sum is updated by adding the change to it, so a large group costs no more than a small one.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from applier.operators.aggregate import NEW, OLD
from applier.operators.support.accumulators import key_names, sum_types
from applier.operators.support.inputs import Accumulators
from applier.plan.nodes import Aggregate
from applier.spark.views import create_view, drop_view
from applier.state.accumulators_spark import SparkAccumulators
from applier.state.affected_groups import upload_affected_groups
from applier.state.exact_sums import add_sums, arrow_table, arrow_table_in_parts, rows_as_tuples, zero_of
from applier.state.exported import ExportedRows, Storable
from applier.state.uploaded_rows import UploadedRows
from applier.zset import Row, ZSet, identity

_Groups = dict[Row, tuple[Row, Row]]
"""The key and the sums of each group, by the key in a form that equals itself."""

MAX_DRIVER_GROUPS = 50_000
"""About 25 MB for a few sums; more groups are better held in Spark's memory."""


class DriverAccumulators(Storable):
    """The sums of every group at one frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, schema: StructType, rows: pa.Table) -> None:
        self.node = node
        self._spark = spark
        self._schema = schema
        self._arrow = rows.schema
        self._keys = len(key_names(node))
        self._zero = tuple(zero_of(rows.schema.field(name).type) for name in sum_types(node))
        self._groups: _Groups = {}
        self._uploaded = UploadedRows(spark, schema, key_names(node))
        self.add(rows)

    @property
    def rows(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def before(self) -> ZSet:
        """Return all groups."""
        return self._uploaded.select(lambda: self._to_arrow(self._groups))

    def with_delta(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """Return the state with the accumulators of a delta, and the views to drop after the refresh."""
        old_and_new = []
        for key, accumulator in self._split_keys(rows):
            old = self._groups.get(identity(key), (key, self._zero))[1]
            old_and_new.append((*key, *old, *add_sums(old, accumulator)))
        fields, columns = list(self._schema)[: self._keys], [self._arrow.field(i) for i in range(self._keys)]
        for side in (OLD, NEW):
            for name in sum_types(self.node):
                fields.append(StructField(f"{side}_{name}", self._schema[name].dataType))
                columns.append(pa.field(f"{side}_{name}", self._arrow.field(name).type))
        keys = key_names(self.node)
        affected, view = upload_affected_groups(
            self._spark, keys, arrow_table(old_and_new, pa.schema(columns)), StructType(fields)
        )
        delta_columns = [
            f"CAST({NEW}_{name} - {OLD}_{name} AS {kind}) AS {name}" for name, kind in sum_types(self.node).items()
        ]
        delta = f"SELECT {', '.join([*keys, *delta_columns])} FROM ({affected.once().sql})"
        return Accumulators(self.before, ZSet(delta, tuple(keys)), affected), [view]

    def sum_rows(self, rows: pa.Table) -> pa.Table:
        """Add up the accumulators of single rows to one per group, without zeros."""
        groups: _Groups = {}
        self._add_to(groups, rows)
        return self._to_arrow(groups)

    def add(self, rows: pa.Table) -> None:
        """Add the accumulators of a delta to the state."""
        self.version += 1
        self._add_to(self._groups, rows)
        self._uploaded.append(rows, self.rows)

    def _add_to(self, groups: _Groups, rows: pa.Table) -> None:
        for key, sums in self._split_keys(rows):
            name = identity(key)
            new = add_sums(groups.get(name, (key, self._zero))[1], sums)
            if any(new):
                groups[name] = key, new
            else:
                groups.pop(name, None)

    def rebuild_if_large(self) -> SparkAccumulators | None:
        """Return the same state in Spark's memory, once there are too many groups for the driver; otherwise None."""
        if self.rows <= 2 * MAX_DRIVER_GROUPS:
            return None
        view = create_view(self._spark.createDataFrame(self._to_arrow(self._groups), self._schema))
        try:
            return SparkAccumulators(self._spark, self.node, self._spark.sql(f"SELECT * FROM {view}"))
        finally:
            drop_view(self._spark, view)

    def export(self) -> ExportedRows:
        """Return the rows as they are now, for a file."""
        groups = list(self._groups.values())
        return ExportedRows(
            "sums", self._schema, lambda: arrow_table_in_parts([(*key, *sums) for key, sums in groups], self._arrow)
        )

    def release(self) -> None:
        """Release the memory."""
        self._uploaded.forget()
        self._groups.clear()

    def _split_keys(self, rows: pa.Table) -> list[tuple[Row, Row]]:
        return [(row[: self._keys], row[self._keys :]) for row in rows_as_tuples(rows.select(self._arrow.names))]

    def _to_arrow(self, groups: _Groups) -> pa.Table:
        return arrow_table([(*key, *sums) for key, sums in groups.values()], self._arrow)
