"""Holds σ(A) of one aggregate between LSN ranges: a base in Spark's memory and an overlay on the driver.

    σ(A + ΔA) = σ(A) + σ(ΔA)

Accumulators add up (see `operators.support.accumulators`), so those of a delta are appended to the overlay. Everything
can be computed again from the traces. A checkpoint writes the base only when it is another one than that in its files.

Intuitively: a small change is noted next to the large total, and added into it only now and then.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from applier.operators.support.accumulators import accumulator_columns, sum_accumulators, sum_types
from applier.operators.support.inputs import Accumulators
from applier.plan.nodes import Aggregate
from applier.spark.views import create_view, drop_view
from applier.state.exact_sums import report_overflow
from applier.state.exported import ExportedRows, HeldFrame, Storable
from applier.zset import ZSet

FOLD_ROWS = 20_000
"""An overlay that is larger than this, and than a tenth of the base, is folded into the base."""


class SparkAccumulators(Storable):
    """The accumulators of one node at one frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, frame: DataFrame) -> None:
        self.node = node
        self._spark = spark
        self._columns = tuple(accumulator_columns(node))
        self._persist(frame)
        self.schema = self._base.frame.schema
        self._overlay: pa.Table | None = None
        self._overlay_view: str | None = None

    def _persist(self, frame: DataFrame) -> None:
        self._base = HeldFrame(frame)
        self.rows = self._base.rows
        self._view = create_view(self._base.frame)

    def collect_base(self) -> pa.Table:
        """Return all accumulators of the base, on the driver."""
        return self._base.frame.toArrow()

    def before(self) -> ZSet:
        """Return all accumulators."""
        views = [self._view, *([self._overlay_view] if self._overlay_view else [])]
        return ZSet(" UNION ALL ".join(f"SELECT * FROM {view}" for view in views), self._columns)

    def with_delta(self, rows: pa.Table) -> tuple[Accumulators, list[str]]:
        """Return the state with the accumulators of a delta, and the views to drop after the refresh."""
        view = self._upload(rows)
        return Accumulators(self.before, ZSet(f"SELECT * FROM {view}", self._columns)), [view]

    def _upload(self, rows: pa.Table) -> str:
        return create_view(self._spark.createDataFrame(rows, self.schema))

    def add(self, rows: pa.Table) -> None:
        """Add the accumulators of a delta to the state."""
        self.version += 1
        self._overlay = rows if self._overlay is None else sum_accumulator_rows(self.node, [self._overlay, rows])
        drop_view(self._spark, self._overlay_view)
        self._overlay_view = self._upload(self._overlay)
        if self._overlay.num_rows > max(FOLD_ROWS, self.rows // 10):
            self._fold()

    def _fold(self) -> None:
        base, view = self._base, self._view
        self._persist(self._spark.sql(sum_accumulators(self.node, self.before()).sql))
        drop_view(self._spark, view)
        drop_view(self._spark, self._overlay_view)
        base.release()
        self._overlay = self._overlay_view = None

    def export(self) -> ExportedRows:
        """Return the rows as they are now, for files. Who exports releases the base."""
        overlay = self._overlay
        rows = None if overlay is None else (lambda: overlay)
        return ExportedRows("accumulators", self.schema, rows, self._base.hold())

    @property
    def base(self) -> HeldFrame:
        """What Spark holds."""
        return self._base

    def release(self) -> None:
        """Release the memory."""
        drop_view(self._spark, self._view)
        drop_view(self._spark, self._overlay_view)
        self._base.release()


def sum_accumulator_rows(node: Aggregate, tables: list[pa.Table]) -> pa.Table:
    """Add up accumulators on the driver; those that become zero are dropped."""
    schema = tables[0].schema
    rows = pa.concat_tables([table.cast(schema) for table in tables])
    names, sums = accumulator_columns(node), list(sum_types(node))
    # With 76 digits no intermediate sum overflows; a result that does not fit into 38 digits fails in the cast back.
    for name in sums:
        arrow_type = schema.field(name).type
        if pa.types.is_decimal(arrow_type):
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, rows[name].cast(pa.decimal256(76, arrow_type.scale)))
    if not names:
        rows = rows.append_column("one", pa.nulls(rows.num_rows, pa.int8()))
    summed = rows.group_by(names or ["one"], use_threads=False).aggregate([(name, "sum") for name in sums])
    columns = [summed[name] for name in names] + [summed[f"{name}_sum"] for name in sums]
    with report_overflow():
        total = pa.Table.from_arrays(columns, names=[*names, *sums]).select(schema.names).cast(schema)
    zero = [pc.equal(total[name], pa.scalar(0).cast(schema.field(name).type)) for name in sums]
    return total.filter(pc.invert(reduce(pc.and_, zero)))
