"""Rows of captured tables are routed to a topic, beginning with their snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from cdc_consumer.pgoutput.messages import Relation, RelationColumn
from cdc_consumer.pgoutput.relations import RelationFacts, Relations, TypeFacts
from cdc_consumer.ring.segments import Segments
from cdc_consumer.ring.spool import Spool
from cdc_consumer.routes import Routes
from cdc_consumer.schema_versions import SchemaVersions
from cdc_consumer.sinks.sink import Sink, Write
from cdc_consumer.snapshot.captured_tables import CapturedTables
from cdc_consumer.snapshot.watch import is_new
from cdc_consumer.wal.catalog import PublishedTable
from shared_schema.lsn import Lsn
from shared_schema.progress import Capture
from shared_schema.table_schema import ReplicaIdentity, TableId, TableSchema

FACTS = RelationFacts(frozenset({("id", 23, -1)}), ("id",), {23: TypeFacts("int4", -1)}, {(23, -1): "integer"})


class FakeTables(CapturedTables):
    def __init__(self, captured: dict[tuple[int, TableId], Lsn]) -> None:
        super().__init__({}, Metrics(Health()))
        self.captured = captured

    def find(self, relid: int) -> Capture | None:
        found = [Capture("s", table, oid, at, 0) for (oid, table), at in self.captured.items() if oid == relid]
        return found[0] if found else None


class FakeSink:
    def row_writer(self, schema: TableSchema) -> str:
        return f"t.{schema.table}"


class KeepingWriter:
    def redirect(self, write: Write) -> Write:
        return write


class KeepingSink:
    def row_writer(self, schema: TableSchema) -> KeepingWriter:
        return KeepingWriter()


def routes(captured: dict[tuple[int, TableId], Lsn]) -> Routes:
    versions = SchemaVersions({}, lambda _: None)
    return Routes(Relations(lambda _: FACTS), FakeTables(captured), cast(Sink, FakeSink()), versions, lambda _: ())


def relation(relid: int, name: str, *columns: str) -> Relation:
    described = tuple(RelationColumn(c, 23, -1, True) for c in columns or ("id",))
    return Relation(relid, "public", name, ReplicaIdentity.FULL, described)


def test_commits_in_the_snapshot_are_left_out() -> None:
    found = routes({(5, TableId("public", "a")): Lsn(99)})
    found.describe(relation(5, "a"))
    assert found.find(5, Lsn(98)) is None
    route = found.find(5, Lsn(100))
    assert route is not None and str(route.row_writer) == "t.public.a"


def test_a_table_keeps_its_topic_under_another_name_and_one_that_is_not_captured_has_none() -> None:
    found = routes({(5, TableId("public", "a")): Lsn(99)})
    found.describe(relation(6, "b"))
    found.describe(relation(5, "renamed"))
    assert found.find(6, Lsn(100)) is None
    route = found.find(5, Lsn(100))
    assert route is not None and str(route.row_writer) == "t.public.a"


def test_of_two_captures_of_one_table_the_later_one_counts() -> None:
    names = TableId("public", "a"), TableId("public", "b")
    late, early = Capture("s", names[0], 5, Lsn(200), 0), Capture("s", names[1], 5, Lsn(100), 0)
    tables = CapturedTables({late.table: late, early.table: early}, Metrics(Health()))
    assert tables.find(5) == late
    again = PublishedTable(names[1], 5, partitioned=False, columns=("id",), row_filter="", membership="")
    assert is_new(again, {late.table: late, early.table: early})


def test_a_route_follows_new_captures_and_descriptions() -> None:
    captured: dict[tuple[int, TableId], Lsn] = {}
    found = routes(captured)
    found.describe(relation(5, "a"))
    assert found.find(5, Lsn(100)) is None
    captured[5, TableId("public", "a")] = Lsn(99)
    found.forget()
    first = found.find(5, Lsn(100))
    found.describe(relation(5, "a", "id", "more"))
    second = found.find(5, Lsn(100))
    assert first is not None and second is not None
    assert (len(first.reader.schema.columns), len(second.reader.schema.columns)) == (1, 2)


def test_rows_of_an_awaited_leaf_are_kept_while_a_copy_of_the_whole_table_is_prepared(tmp_path: Path) -> None:
    root = Capture("s", TableId("public", "root"), 1, Lsn(50), 0, leaves={2: Lsn(50)}, awaited={3: Lsn(60)})
    tables = CapturedTables({root.table: root}, Metrics(Health()))
    versions = SchemaVersions({}, lambda _: None)
    found = Routes(Relations(lambda _: FACTS), tables, cast(Sink, KeepingSink()), versions, lambda _: ())
    found.describe(relation(3, "leaf"))
    assert found.find(3, Lsn(100)) is None, "its copy will contain the row"
    spool = Spool(Lsn(90), Segments(str(tmp_path)))
    found.repeat_rows(1, spool)
    route = found.find(3, Lsn(110))
    assert route is not None and route.spool is spool
    # A copy that has begun without the leaf does not want its rows.
    found.redirect_rows(1, spool)
    assert found.find(3, Lsn(120)) is None
