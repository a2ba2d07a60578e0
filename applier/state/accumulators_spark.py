"""σ(A) of one aggregate, kept between windows: a base in Spark's memory and an overlay on the driver.

Shares add up (see `operators.calls`), so a window's are simply put beside those there are. Everything can be computed
again from the traces; nothing here is durable.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from applier.operators.support.accumulators import key_names, sum_accumulators, sum_types, value_names
from applier.operators.support.inputs import Accumulators
from applier.plan.nodes import Aggregate
from applier.spark.views import create_view, drop_view

FOLD_ROWS = 20_000
"""An overlay larger than this, and than a tenth of the base, becomes part of the base."""


class SparkAccumulators:
    """The shares of one node as of some frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, frame: DataFrame) -> None:
        self.node = node
        self._spark = spark
        self._hold(frame)
        self.schema = self._frame.schema
        self._overlay: pa.Table | None = None
        self._overlay_view: str | None = None

    def _hold(self, frame: DataFrame) -> None:
        self._frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.rows = self._frame.count()
        self._view = create_view(self._frame)

    def collected(self) -> pa.Table:
        """All of them, on the driver."""
        return self._frame.toArrow()

    def before(self) -> str:
        """A SELECT of all of them."""
        views = [self._view, *([self._overlay_view] if self._overlay_view else [])]
        return " UNION ALL ".join(f"SELECT * FROM {view}" for view in views)

    def with_window(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """With the shares of a window; and the views to drop when it is over."""
        view = self._view_of(rows)
        return Accumulators(self.before, f"SELECT * FROM {view}"), [view]

    def _view_of(self, rows: pa.Table) -> str:
        return create_view(self._spark.createDataFrame(rows, self.schema))

    def add(self, rows: pa.Table) -> None:
        """Put the shares of a window beside them."""
        self._overlay = rows if self._overlay is None else sum_accumulator_rows(self.node, [self._overlay, rows])
        drop_view(self._spark, self._overlay_view)
        self._overlay_view = self._view_of(self._overlay)
        if self._overlay.num_rows > max(FOLD_ROWS, self.rows // 10):
            self._fold()

    def _fold(self) -> None:
        frame, view = self._frame, self._view
        self._hold(self._spark.sql(sum_accumulators(self.node, self.before())))
        drop_view(self._spark, view)
        drop_view(self._spark, self._overlay_view)
        frame.unpersist()
        self._overlay = self._overlay_view = None

    def release(self) -> None:
        """Give the memory back."""
        drop_view(self._spark, self._view)
        drop_view(self._spark, self._overlay_view)
        self._frame.unpersist()


def sum_accumulator_rows(node: Aggregate, tables: list[pa.Table]) -> pa.Table:
    """The sum of shares on the driver, without those that are zero."""
    schema = tables[0].schema
    rows = pa.concat_tables([table.cast(schema) for table in tables])
    names, sums = [*key_names(node), *value_names(node)], list(sum_types(node))
    # With 76 digits no sum of ours overflows on the way; one that has no place in 38 fails in the cast back.
    for name in sums:
        kind = schema.field(name).type
        if pa.types.is_decimal(kind):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, rows[name].cast(pa.decimal256(76, kind.scale)))
    if not names:
        rows = rows.append_column("one", pa.nulls(rows.num_rows, pa.int8()))
    summed = rows.group_by(names or ["one"], use_threads=False).aggregate([(name, "sum") for name in sums])
    columns = [summed[name] for name in names] + [summed[f"{name}_sum"] for name in sums]
    total = pa.Table.from_arrays(columns, names=[*names, *sums]).select(schema.names).cast(schema)
    zero = [pc.equal(total[name], pa.scalar(0).cast(schema.field(name).type)) for name in sums]
    return total.filter(pc.invert(reduce(pc.and_, zero)))
