"""Ordinals of a transaction are the same whatever is captured: a restart in its middle receives it again."""

from __future__ import annotations

from typing import cast

import pytest

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.routes import Routes
from cdc_consumer.rows import TransactionRows
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captured_tables import CapturedTables, LeafGone
from cdc_consumer.tree_news import TreeNews
from shared_schema.change_row import ChangeRow
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import LEAF_COLUMN, ReplicaIdentity, TableId, TableSchema

ROOT = TableId("public", "root")


class FakeRoutes:
    """Collects T rows of leaves."""

    def __init__(self) -> None:
        self.rows: list[ChangeRow] = []

    def leaf_writer(self, gone: LeafGone, commit_lsn: Lsn) -> tuple[FakeRoutes, TableSchema]:
        return self, TableSchema(gone.root.table, gone.root.relid, (LEAF_COLUMN,), (), ReplicaIdentity.FULL)

    def append(self, row: ChangeRow) -> None:
        self.rows.append(row)

    def forget(self) -> None:
        pass


@pytest.mark.parametrize(
    ("leaves", "written"), [((), []), ((5,), [(0, 5)]), ((6,), [(1, 6)]), ((5, 6), [(0, 5), (1, 6)])]
)
def test_leaves_that_left(leaves: tuple[int, ...], written: list[tuple[int, int]]) -> None:
    root = Capture("s", ROOT, 1, Lsn(10), 0, leaves=dict.fromkeys(leaves, Lsn(10)))
    metrics, routes = Metrics(Health()), FakeRoutes()
    tables = CapturedTables({ROOT: root}, metrics)
    versions, sink = SchemaVersions({}, lambda _: None), cast(Sink, None)
    rows = TransactionRows(cast(Routes, routes), tables, versions, sink, metrics=metrics, part=None)
    rows.begin(Begin(Lsn(20), 0, 7))
    rows.follow_leaves(TreeNews({}, (5, 6), {}, frozenset()))
    assert rows.transaction is not None and rows.transaction.ordinal == 2
    assert [(row.stamp.seq, row.values and row.values[-1]) for row in routes.rows] == written
