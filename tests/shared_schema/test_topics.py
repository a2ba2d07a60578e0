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

# PostgreSQL allows any character but NUL, up to 63 bytes; short ones keep the topic inside Kafka's limit.
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
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
