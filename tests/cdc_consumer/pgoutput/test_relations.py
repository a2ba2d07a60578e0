"""Relation messages become schemas: the stream decides, the catalog only adds facts."""

from __future__ import annotations

import pytest

from cdc_consumer.errors import MalformedMessage
from cdc_consumer.pgoutput.messages import Relation, RelationColumn
from cdc_consumer.pgoutput.relations import RelationFacts, Relations, TypeFacts, pg_type, table_schema
from shared_schema.pg_types import PhysicalType
from shared_schema.table_schema import ReplicaIdentity

INT4, NUMERIC, DOMAIN, GONE = 23, 1700, 9001, 9002
MONEY_LIKE = ((10 << 16) | 2) + 4

FACTS = RelationFacts(
    columns=frozenset({("id", INT4, -1), ("v", DOMAIN, -1)}),
    key=("id",),
    types={INT4: TypeFacts("int4", -1), DOMAIN: TypeFacts("numeric", MONEY_LIKE), NUMERIC: TypeFacts("numeric", -1)},
    displays={(INT4, -1): "integer", (DOMAIN, -1): "public.price"},
)


def relation(identity: ReplicaIdentity, *columns: tuple[str, int, bool]) -> Relation:
    return Relation(5, "public", "t", identity, tuple(RelationColumn(n, oid, -1, key) for n, oid, key in columns))


def test_a_domain_takes_its_bounds_from_the_base_type() -> None:
    price = pg_type(DOMAIN, -1, FACTS)
    assert (price.name, price.display, price.precision_scale) == ("numeric", "public.price", (10, 2))
    assert price.physical_type is PhysicalType.DECIMAL


def test_a_type_that_is_gone_travels_as_text() -> None:
    assert pg_type(GONE, -1, FACTS).physical_type is PhysicalType.TEXT


def test_under_full_identity_the_key_is_the_catalogs() -> None:
    schema = table_schema(relation(ReplicaIdentity.FULL, ("id", INT4, True), ("v", DOMAIN, True)), FACTS, None)
    assert schema.key == ("id",)


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX])
def test_otherwise_the_key_is_the_identity(identity: ReplicaIdentity) -> None:
    schema = table_schema(relation(identity, ("id", INT4, False), ("v", DOMAIN, True)), FACTS, None)
    assert schema.key == ("v",)


def test_a_catalog_of_another_time_is_not_trusted_with_the_key() -> None:
    past = relation(ReplicaIdentity.FULL, ("id", NUMERIC, True))
    assert table_schema(past, FACTS, None).key == ()
    before = table_schema(relation(ReplicaIdentity.FULL, ("id", INT4, True)), FACTS, None)
    assert table_schema(past, FACTS, before).key == ("id",)
    assert table_schema(relation(ReplicaIdentity.FULL, ("other", INT4, True)), FACTS, before).key == ()


def test_the_catalog_is_queried_once_per_description() -> None:
    status_requested: list[Relation] = []

    def lookup(described: Relation) -> RelationFacts:
        status_requested.append(described)
        return FACTS

    relations = Relations(lookup)
    first = relation(ReplicaIdentity.FULL, ("id", INT4, True))
    relations.describe(first)
    assert relations.schema(5) is relations.schema(5)
    relations.describe(first)
    relations.schema(5)
    assert status_requested == [first]
    second = relation(ReplicaIdentity.FULL, ("id", INT4, True), ("v", DOMAIN, True))
    relations.describe(second)
    assert [c.name for c in relations.schema(5).columns] == ["id", "v"]
    assert status_requested == [first, second]


def test_rows_without_a_description_are_malformed() -> None:
    with pytest.raises(MalformedMessage):
        Relations(lambda _: FACTS).schema(5)
