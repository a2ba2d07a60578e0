"""Rows of captured tables are routed to a topic, beginning with their snapshot."""

from __future__ import annotations

from typing import cast

from cdc_consumer.pgoutput.messages import Relation, RelationColumn
from cdc_consumer.pgoutput.relations import RelationFacts, Relations, TypeFacts
from cdc_consumer.routes import Routes
from cdc_consumer.sinks.sink import Sink
from cdc_consumer.snapshot.captures import CapturedTables
from shared_schema.lsn import Lsn
from shared_schema.table_schema import ReplicaIdentity, TableId, TableSchema

FACTS = RelationFacts(frozenset({("id", 23, -1)}), ("id",), {23: TypeFacts("int4", -1)}, {(23, -1): "integer"})


class FakeTables:
    def __init__(self, captured: dict[tuple[int, TableId], Lsn]) -> None:
        self.captured = captured

    def since(self, relid: int, table: TableId) -> Lsn | None:
        return self.captured.get((relid, table))


class FakeSink:
    def row_writer(self, schema: TableSchema) -> str:
        return f"t.{schema.table}"


def routes(captured: dict[tuple[int, TableId], Lsn]) -> Routes:
    return Routes(Relations(lambda _: FACTS), cast(CapturedTables, FakeTables(captured)), cast(Sink, FakeSink()))


def relation(relid: int, name: str, *columns: str) -> Relation:
    described = tuple(RelationColumn(c, 23, -1, True) for c in columns or ("id",))
    return Relation(relid, "public", name, ReplicaIdentity.FULL, described)


def test_commits_in_the_snapshot_are_left_out() -> None:
    found = routes({(5, TableId("public", "a")): Lsn(99)})
    found.describe(relation(5, "a"))
    assert found.find(5, Lsn(98)) is None
    route = found.find(5, Lsn(100))
    assert route is not None and str(route.row_writer) == "t.public.a"


def test_a_table_that_is_not_captured_or_was_renamed_has_no_route() -> None:
    found = routes({(5, TableId("public", "a")): Lsn(99)})
    found.describe(relation(6, "b"))
    found.describe(relation(5, "renamed"))
    assert found.find(6, Lsn(100)) is None
    assert found.find(5, Lsn(100)) is None


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
