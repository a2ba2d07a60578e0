"""The state of one node in, its files out; and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from applier.operators.support.inputs import StatefulNode
from applier.plan.nodes import Aggregate, Recursion, TopK
from applier.state.accumulators_driver import DriverAccumulators
from applier.state.accumulators_spark import SparkAccumulators
from applier.state.exported import ExportedRows, HeldFrame
from applier.state.fixpoint import FixpointState
from applier.state.min_max import MinMaxState
from applier.state.state_files import StateFiles
from applier.state.stored import StoredFile, StoredNode
from applier.state.top_k_buffer import TopKBuffer

NodeState = SparkAccumulators | DriverAccumulators | MinMaxState | FixpointState | TopKBuffer
"""The state of one node."""

_Kind = TypeVar("_Kind", Aggregate, Recursion, TopK)


@dataclass(frozen=True)
class ExportedNode:
    """The state of one node as it was at one moment."""

    place: int
    state: NodeState
    version: int
    rows: ExportedRows
    added: pa.Table | None
    """What the last LSN range added, which is not among the rows yet."""

    @classmethod
    def of(cls, place: int, state: NodeState, added: pa.Table | None) -> ExportedNode:
        """Take what there is now; it takes no longer than a copy of references."""
        return cls(place, state, state.version, state.export(), added)

    def write(self, files: StateFiles, table_id: int) -> StoredNode:
        """Write the rows, those that are not in files yet."""
        base = () if self.rows.base is None else _write_base(files, table_id, self.rows.base)
        added = () if self.added is None else (files.write_rows(table_id, self.added),)
        extra, schema = dict(self.rows.extra), self.rows.schema.json()
        return StoredNode(self.place, self.rows.kind, schema, extra, base, self._write_rows(files, table_id), added)

    def _write_rows(self, files: StateFiles, table_id: int) -> tuple[StoredFile, ...]:
        if self.rows.rows is None:
            return ()
        if (stored := self.state.stored_rows) is None or stored[0] != self.version:
            stored = self.version, (files.write_rows(table_id, self.rows.rows()),)
            self.state.stored_rows = stored
        return stored[1]

    def close(self) -> None:
        """Hold nothing any longer."""
        if self.rows.base is not None:
            self.rows.base.release()


def _write_base(files: StateFiles, table_id: int, base: HeldFrame) -> tuple[StoredFile, ...]:
    if base.files is None:
        base.files = files.write_frame(table_id, base.frame)
    return base.files


def read_node(spark: SparkSession, files: StateFiles, node: StatefulNode, stored: StoredNode) -> NodeState:
    """Return the state of a node from its files, without what was added last."""
    schema = StructType.fromJson(json.loads(stored.schema))
    rows = files.read_rows(stored.rows[0]) if stored.rows else None
    state: NodeState
    if stored.kind == "accumulators":
        in_spark = SparkAccumulators(spark, _expect(node, Aggregate), files.read_frame(spark, stored.base, schema))
        in_spark.base.files = stored.base
        if rows is not None:
            in_spark.add(rows)
        state = in_spark
    elif rows is not None:
        state = _read_rows(spark, node, stored, schema, rows)
    else:
        raise ValueError(f"no rows of {stored.kind}")
    state.stored_rows = state.version, stored.rows
    return state


def read_added(files: StateFiles, stored: StoredNode) -> pa.Table | None:
    """Return what the last LSN range added to the state of a node."""
    return files.read_rows(stored.added[0]) if stored.added else None


def _read_rows(
    spark: SparkSession, node: StatefulNode, stored: StoredNode, schema: StructType, rows: pa.Table
) -> NodeState:
    extra: Mapping[str, int] = stored.extra
    match stored.kind:
        case "sums":
            return DriverAccumulators(spark, _expect(node, Aggregate), schema, rows)
        case "min_max":
            return MinMaxState(spark, _expect(node, Aggregate), schema, rows)
        case "fixpoint":
            return FixpointState(spark, _expect(node, Recursion), schema, rows)
        case "top_k":
            return TopKBuffer.restored(spark, _expect(node, TopK), schema, rows, extra)
        case _:
            raise ValueError(f"the kind {stored.kind} is not known")


def _expect(node: StatefulNode, kind: type[_Kind]) -> _Kind:
    if not isinstance(node, kind):
        raise ValueError(f"the state is that of a {kind.__name__}, the node a {type(node).__name__}")
    return node
