"""Topic names: legal for Kafka, injective, reversible."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.errors import SettingsError
from shared_schema.table_schema import TableId
from shared_schema.topics import (
    check_prefix,
    progress_topic,
    schemas_topic,
    subscribe_pattern,
    table_of_topic,
    table_topic,
)

# PostgreSQL allows any character but NUL, up to 63 bytes; short names keep the topic within Kafka's limit.
names = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.text("ab_.-5f", min_size=1, max_size=6),
)
tables = st.builds(TableId, names, names)


@given(tables)
def test_round_trip_and_legal(table: TableId) -> None:
    topic = table_topic("trickle.eu", table)
    assert table_of_topic("trickle.eu", topic) == table
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic)
    assert re.fullmatch(subscribe_pattern("trickle.eu"), topic)


@given(tables, tables)
def test_two_tables_never_share_a_topic(a: TableId, b: TableId) -> None:
    assert (table_topic("t", a) == table_topic("t", b)) == (a == b)


@given(tables, tables)
def test_kafka_can_tell_the_topics_of_two_tables_apart(a: TableId, b: TableId) -> None:
    """Kafka compares names with every dot replaced by an underscore."""
    colliding = table_topic("t_x.y", a).replace(".", "_") == table_topic("t_x.y", b).replace(".", "_")
    assert colliding == (a == b)


@pytest.mark.parametrize(
    ("schema", "name", "topic"),
    [("public", "order_items", "t.public.order_items"), ("a", "b_c", "t.a.b_c"), ("a_b", "c", "t.a-5fb.c")],
)
def test_ordinary_names_stay_as_they_are(schema: str, name: str, topic: str) -> None:
    assert table_topic("t", TableId(schema, name)) == topic
    assert table_of_topic("t", topic) == TableId(schema, name)


def test_control_topics_are_no_tables() -> None:
    assert table_of_topic("t", progress_topic("t")) is None
    assert table_of_topic("t", schemas_topic("t")) is None
    assert table_of_topic("t", "other.public.orders") is None


def test_a_name_too_long_for_kafka_is_refused() -> None:
    with pytest.raises(SettingsError):
        table_topic("t", TableId("é" * 31, "é" * 31 + "x" * 60))


@pytest.mark.parametrize("prefix", ["", ".", "a.", ".a", "a..b", "a b", "ü"])
def test_unusable_prefixes(prefix: str) -> None:
    with pytest.raises(SettingsError):
        check_prefix(prefix)
