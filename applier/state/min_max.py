"""Holds the minimum and maximum of every group on the driver, next to its sums, so that groups are rarely read again.

Let e be the maximum of a group, a the largest value that comes and r the largest that leaves, each value netted:

    if r < max(e, a), the new maximum is max(e, a): whichever of the two it is, no row with it leaves

Otherwise the values of the group are read again, at the upper end of the LSN range. The same for the minimum.

Intuitively: a maximum can become wrong only when the maximum itself leaves.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from applier.operators.aggregate import NEW, OLD, group_rows, signed_group_rows
from applier.operators.incrementalize import snapshot_where
from applier.operators.support.accumulators import COUNT_COLUMN, key_names, min_max_calls
from applier.operators.support.delta_plan import GivenRows
from applier.operators.support.inputs import AffectedMinMax, Inputs, Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Aggregate
from applier.spark.collect import collect
from applier.spark.views import create_view, drop_view
from applier.state.affected_groups import upload_affected_groups
from applier.state.exact_sums import add_exact, arrow_table, arrow_table_in_parts, rows_as_tuples, zero_of
from applier.state.exported import ExportedRows, Storable
from applier.zset import Row, ZSet, identity


class MinMaxState(Storable):
    """The minima, maxima and sums of one node at one frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, schema: StructType, rows: pa.Table) -> None:
        self.node = node
        self._spark = spark
        self._width = len(key_names(node))
        self._arrow_schema = rows.schema
        self._row_schema = schema
        self._names = rows.column_names[self._width :]
        self._count = self._names.index(f"{NEW}_{COUNT_COLUMN}")
        found = min_max_calls(node) or {}
        self._is_largest = {self._names.index(f"{NEW}_{number}"): is_largest for number, is_largest in found.items()}
        self._nothing = tuple(
            None if place in self._is_largest else zero_of(rows.schema.field(name).type)
            for place, name in enumerate(self._names)
        )
        old_and_new = [StructField(_old_name(name), schema[name].dataType) for name in self._names]
        self._schema = StructType([*schema.fields[: self._width], *old_and_new, *schema.fields[self._width :]])
        self._key_schema = pa.schema([self._arrow_schema.field(i) for i in range(self._width)])
        before = [self._arrow_schema.field(name).with_name(_old_name(name)) for name in self._names]
        self._both_schema = pa.schema(
            [*self._key_schema, *before, *(self._arrow_schema.field(name) for name in self._names)]
        )
        self._groups: dict[Row, tuple[Row, Row]] = {}
        for row in rows_as_tuples(rows):
            self._set_group(row[: self._width], row[self._width :])

    @property
    def rows(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def change(self, changed: ZSet, inputs: Inputs) -> pa.Table | None:
        """Return the groups that this delta affects, with their columns before and after; None when there is none."""
        affected = collect(self._spark.sql(signed_group_rows(self.node, changed)))
        if not affected.num_rows:
            return None
        columns = [*self._key_schema.names, *(_old_name(name) for name in self._names), *self._names]
        old_and_new, keys_to_read = {}, []
        for row in rows_as_tuples(affected.select(columns)):
            key, leaves, comes = _split_row(row, self._width, len(self._names))
            old = self._groups.get(identity(key), (key, self._nothing))[1]
            new = self._apply_delta(old, leaves, comes)
            old_and_new[identity(key)] = key, old, new
            if new is None:
                keys_to_read.append(key)
        read_again = self._read_groups(keys_to_read, inputs) if keys_to_read else {}
        rows = [
            (*key, *old, *(read_again.get(name, self._nothing) if new is None else new))
            for name, (key, old, new) in old_and_new.items()
        ]
        return arrow_table(rows, self._both_schema)

    def _apply_delta(self, old: Row, leaves: Row, comes: Row) -> Row | None:
        """Return the columns of a group at the upper end of the LSN range; None when the group must be read again."""
        new: list[Any] = []
        if not old[self._count] + comes[self._count]:
            return self._nothing
        for place, (e, r, a) in enumerate(zip(old, leaves, comes, strict=True)):
            if place not in self._is_largest:
                new.append(add_exact(e, a))
                continue
            is_largest = self._is_largest[place]
            best = _better_of(e, a, is_largest=is_largest)
            if r is not None and (best is None or _better_of(best, r, is_largest=is_largest) == r):
                return None
            new.append(best)
        return tuple(new)

    def _read_groups(self, keys: list[Row], inputs: Inputs) -> dict[Row, Row]:
        """Return the groups at the upper end of the LSN range, computed from the rows of the input."""
        view = None
        if self._width:
            frame = self._spark.createDataFrame(
                arrow_table(keys, self._key_schema), StructType(self._schema.fields[: self._width])
            )
            view = create_view(frame)
        try:
            names = key_names(self.node)
            affected = ZSet(f"SELECT * FROM {view}", tuple(names))
            key_filter = KeyFilter.of(
                self.node.keys, names, GivenRows(affected), null_safe=True, broadcast=inputs.small
            )
            text = group_rows(self.node, snapshot_where(self.node.input, Side.AFTER, key_filter, inputs))
            found = collect(self._spark.sql(text)).select(self._arrow_schema.names)
        finally:
            drop_view(self._spark, view)
        return {identity(row[: self._width]): row[self._width :] for row in rows_as_tuples(found)}

    def with_delta(self, old_and_new: pa.Table) -> tuple[AffectedMinMax, list[str]]:
        """Return the affected groups for the operators, and the views to drop after the refresh."""
        affected, view = upload_affected_groups(self._spark, key_names(self.node), old_and_new, self._schema)
        return AffectedMinMax(affected), [view]

    def add(self, old_and_new: pa.Table) -> None:
        """Apply the changes of an LSN range to the state."""
        self.version += 1
        for row in rows_as_tuples(old_and_new):
            key, _, new = _split_row(row, self._width, len(self._names))
            self._set_group(key, new)

    def _set_group(self, key: Row, values: Row) -> None:
        # Without GROUP BY the one group always exists; without rows its columns are `_nothing`.
        if values[self._count]:
            self._groups[identity(key)] = key, values
        else:
            self._groups.pop(identity(key), None)

    def export(self) -> ExportedRows:
        """Return the rows as they are now, for a file."""
        groups, schema = list(self._groups.values()), self._arrow_schema
        return ExportedRows(
            "min_max", self._row_schema, lambda: arrow_table_in_parts([(*key, *row) for key, row in groups], schema)
        )

    def release(self) -> None:
        """Release the memory."""
        self._groups.clear()


def _old_name(name: str) -> str:
    return OLD + name.removeprefix(NEW)


def _better_of(one: Any, other: Any, *, is_largest: bool) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other) if is_largest else min(one, other)


def _split_row(row: Row, keys: int, values: int) -> tuple[Row, Row, Row]:
    return row[:keys], row[keys : keys + values], row[keys + values :]
