"""The least and largest values of every group, kept on the driver beside its sums: a guard against reading the group.

Let e be the largest value of a group, a the largest that comes and r the largest that leaves, each value netted. As
long as r < max(e, a) the largest is max(e, a): whichever of the two it is, no row with it leaves. Else the values of
the group are read again, as they are after the window. The same for the least.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from applier.operators.aggregate import NEW, OLD, group_rows, signed_group_rows
from applier.operators.incrementalize import delta, snapshot_where
from applier.operators.support.accumulators import COUNT, key_names, min_max_calls
from applier.operators.support.inputs import AffectedMinMax, Inputs, Side
from applier.operators.support.key_filter import KeyFilter
from applier.plan.nodes import Aggregate
from applier.spark.collect import collect
from applier.spark.views import create_view, drop_view
from applier.state.affected_groups import upload_affected_groups
from applier.state.exact_sums import add_exact, arrow_table, rows_as_tuples, zero_of
from applier.zset import Row, identity


class MinMaxState:
    """Of one node, as of some frontier."""

    def __init__(self, spark: SparkSession, node: Aggregate, schema: StructType, rows: pa.Table) -> None:
        self.node = node
        self._spark = spark
        self._width = len(key_names(node))
        self._arrow = rows.schema
        self._names = rows.column_names[self._width :]
        self._count = self._names.index(f"{NEW}_{COUNT}")
        found = min_max_calls(node) or {}
        self._largest = {self._names.index(f"{NEW}_{number}"): largest for number, largest in found.items()}
        self._nothing = tuple(
            None if place in self._largest else zero_of(rows.schema.field(name).type)
            for place, name in enumerate(self._names)
        )
        both = [StructField(_old(name), schema[name].dataType) for name in self._names]
        self._schema = StructType([*schema.fields[: self._width], *both, *schema.fields[self._width :]])
        self._keys = pa.schema([self._arrow.field(i) for i in range(self._width)])
        before = [self._arrow.field(name).with_name(_old(name)) for name in self._names]
        self._both = pa.schema([*self._keys, *before, *(self._arrow.field(name) for name in self._names)])
        self._groups: dict[Row, tuple[Row, Row]] = {}
        for row in rows_as_tuples(rows):
            self._put(row[: self._width], row[self._width :])

    @property
    def rows(self) -> int:
        """How many groups."""
        return len(self._groups)

    def change(self, inputs: Inputs) -> pa.Table | None:
        """The groups a window touches, with what they are made of before and after; None when it touches none."""
        text = delta(self.node.input, inputs)
        if text is None:
            return None
        touched = collect(self._spark.sql(signed_group_rows(self.node, text)))
        if not touched.num_rows:
            return None
        columns = [*self._keys.names, *(_old(name) for name in self._names), *self._names]
        both, doubtful = {}, []
        for row in rows_as_tuples(touched.select(columns)):
            key, leaves, comes = _cut(row, self._width, len(self._names))
            old = self._groups.get(identity(key), (key, self._nothing))[1]
            new = self._after(old, leaves, comes)
            both[identity(key)] = key, old, new
            if new is None:
                doubtful.append(key)
        fresh = self._read(doubtful, inputs) if doubtful else {}
        rows = [
            (*key, *old, *(fresh.get(name, self._nothing) if new is None else new))
            for name, (key, old, new) in both.items()
        ]
        return arrow_table(rows, self._both)

    def _after(self, old: Row, leaves: Row, comes: Row) -> Row | None:
        """What a group is made of after the window; None when that does not follow from this."""
        new: list[Any] = []
        if not old[self._count] + comes[self._count]:
            return self._nothing
        for place, (e, r, a) in enumerate(zip(old, leaves, comes, strict=True)):
            if place not in self._largest:
                new.append(add_exact(e, a))
                continue
            largest = self._largest[place]
            best = _best(e, a, largest=largest)
            if r is not None and (best is None or _best(best, r, largest=largest) == r):
                return None
            new.append(best)
        return tuple(new)

    def _read(self, keys: list[Row], inputs: Inputs) -> dict[Row, Row]:
        """Groups as they are after the window, from the rows of the input."""
        view = None
        if self._width:
            frame = self._spark.createDataFrame(
                arrow_table(keys, self._keys), StructType(self._schema.fields[: self._width])
            )
            view = create_view(frame)
        try:
            asking, few = key_names(self.node), inputs.small
            key_filter = KeyFilter.of(self.node.keys, asking, f"SELECT * FROM {view}", null_safe=True, small=few)
            text = group_rows(self.node, snapshot_where(self.node.input, Side.AFTER, key_filter, inputs))
            found = collect(self._spark.sql(text)).select(self._arrow.names)
        finally:
            drop_view(self._spark, view)
        return {identity(row[: self._width]): row[self._width :] for row in rows_as_tuples(found)}

    def with_window(self, both: pa.Table) -> tuple[AffectedMinMax, list[str]]:
        """The groups of a window; and the views to drop when it is over."""
        touched, view = upload_affected_groups(self._spark, both, self._schema)
        return AffectedMinMax(touched), [view]

    def add(self, both: pa.Table) -> None:
        """The window counts now."""
        for row in rows_as_tuples(both):
            key, _, new = _cut(row, self._width, len(self._names))
            self._put(key, new)

    def _put(self, key: Row, values: Row) -> None:
        # Without GROUP BY the one group is always there, and nothing is what it is made of without rows.
        if values[self._count]:
            self._groups[identity(key)] = key, values
        else:
            self._groups.pop(identity(key), None)

    def release(self) -> None:
        """Give the memory back."""
        self._groups.clear()


def _old(name: str) -> str:
    return OLD + name.removeprefix(NEW)


def _best(one: Any, other: Any, *, largest: bool) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other) if largest else min(one, other)


def _cut(row: Row, keys: int, values: int) -> tuple[Row, Row, Row]:
    return row[:keys], row[keys : keys + values], row[keys + values :]
