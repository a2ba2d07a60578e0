"""σ(A) of one aggregate whose groups are few and whose shares are sums: held on the driver, a row per group.

A window then reads exactly the groups it touches, and Spark is only asked for the answers, which it computes from one
small relation without a join or a shuffle.
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
from applier.state.exact_sums import add_sums, arrow_table, rows_as_tuples, zero_of
from applier.state.uploaded_rows import UploadedRows
from applier.zset import Row, identity

_Groups = dict[Row, tuple[Row, Row]]
"""By what identifies it, the key of a group and its sums."""

MAX_DRIVER_GROUPS = 50_000
"""Some 25 MB for a few sums; beyond, Spark's memory is the better place."""


class DriverAccumulators:
    """The sums of every group as of some frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, schema: StructType, rows: pa.Table) -> None:
        self.node = node
        self._spark = spark
        self._schema = schema
        self._arrow = rows.schema
        self._keys = len(key_names(node))
        self._zero = tuple(zero_of(rows.schema.field(name).type) for name in sum_types(node))
        self._groups: _Groups = {}
        self._sent = UploadedRows(spark, schema)
        self.add(rows)

    @property
    def rows(self) -> int:
        """How many groups."""
        return len(self._groups)

    def before(self) -> str:
        """A SELECT of all of them."""
        return self._sent.select(lambda: self._table(self._groups))

    def with_window(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """What a window's shares make of the touched groups; and the views to drop when it is over."""
        both = []
        for key, share in self._rows_of(rows):
            old = self._groups.get(identity(key), (key, self._zero))[1]
            both.append((*key, *old, *add_sums(old, share)))
        fields, columns = list(self._schema)[: self._keys], [self._arrow.field(i) for i in range(self._keys)]
        for side in (OLD, NEW):
            for name in sum_types(self.node):
                fields.append(StructField(f"{side}_{name}", self._schema[name].dataType))
                columns.append(pa.field(f"{side}_{name}", self._arrow.field(name).type))
        touched, view = upload_affected_groups(self._spark, arrow_table(both, pa.schema(columns)), StructType(fields))
        added = [
            f"CAST({NEW}_{name} - {OLD}_{name} AS {kind}) AS {name}" for name, kind in sum_types(self.node).items()
        ]
        delta = f"SELECT {', '.join([*key_names(self.node), *added])} FROM ({touched.once()})"
        return Accumulators(self.before, delta, touched), [view]

    def summed(self, rows: pa.Table) -> pa.Table:
        """Shares of single rows -> one per group, without those that are zero."""
        groups: _Groups = {}
        self._put(groups, rows)
        return self._table(groups)

    def add(self, rows: pa.Table) -> None:
        """Put the shares of a window beside them."""
        self._put(self._groups, rows)
        self._sent.added(rows, self.rows)

    def _put(self, groups: _Groups, rows: pa.Table) -> None:
        for key, added in self._rows_of(rows):
            name = identity(key)
            new = add_sums(groups.get(name, (key, self._zero))[1], added)
            if any(new):
                groups[name] = key, new
            else:
                groups.pop(name, None)

    def moved(self) -> SparkAccumulators | None:
        """The same in Spark's memory, once there are too many for the driver."""
        if self.rows <= 2 * MAX_DRIVER_GROUPS:
            return None
        view = create_view(self._spark.createDataFrame(self._table(self._groups), self._schema))
        try:
            return SparkAccumulators(self._spark, self.node, self._spark.sql(f"SELECT * FROM {view}"))
        finally:
            drop_view(self._spark, view)

    def release(self) -> None:
        """Give the memory back."""
        self._sent.forget()
        self._groups.clear()

    def _rows_of(self, rows: pa.Table) -> list[tuple[Row, Row]]:
        return [(row[: self._keys], row[self._keys :]) for row in rows_as_tuples(rows.select(self._arrow.names))]

    def _table(self, groups: _Groups) -> pa.Table:
        return arrow_table([(*key, *sums) for key, sums in groups.values()], self._arrow)
