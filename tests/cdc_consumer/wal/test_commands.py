"""The commands and queries that are sent to each server version."""

from __future__ import annotations

import pytest

from cdc_consumer.wal import commands
from cdc_consumer.wal.catalog import published_columns, published_query
from shared_schema.lsn import Lsn
from tests.cdc_consumer.harness import Connection

VERSIONS = [140018, 150013, 160009, 170005, 180000]


@pytest.mark.parametrize("version", VERSIONS)
def test_creating_a_slot(version: int) -> None:
    made = commands.create_slot(version, 'a"b', temporary=True, export=True)
    plain = commands.create_slot(version, "s", temporary=False, export=False)
    assert made.startswith('CREATE_REPLICATION_SLOT "a""b" TEMPORARY LOGICAL pgoutput ')
    if version < 150000:
        assert made.endswith(" EXPORT_SNAPSHOT") and plain.endswith(" NOEXPORT_SNAPSHOT")
    else:
        assert made.endswith(" (SNAPSHOT 'export')") and plain.endswith(" (SNAPSHOT 'nothing')")


def test_starting_is_the_same_for_all() -> None:
    text = commands.start_replication("s", Lsn(0x1_0000_0010), ("one", 'it\'s "two"'))
    assert text == (
        'START_REPLICATION SLOT "s" LOGICAL 1/10 '
        "(proto_version '1', publication_names '\"one\",\"it''s \"\"two\"\"\"', messages 'true')"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_catalog_is_queried_only_for_existing_columns(version: int) -> None:
    query = published_query(version)
    assert ("pg_publication_namespace" in query) == (version >= 150000)
    assert ("p.attnames" in query and "p.rowfilter" in query) == (version >= 150000)


@pytest.mark.parametrize("version", VERSIONS)
def test_generated_columns_by_version(version: int) -> None:
    """Version 15 lists them though no stream before 18 has them; 14 lists nothing."""
    listed = None if version < 150000 else ["id", "made", "v"]
    expected = ("id", "made", "v") if version >= 180000 else ("id", "v")
    assert published_columns(listed, ["id", "v"], version) == expected


def test_the_queries_of_older_versions_run(db: Connection) -> None:
    """They use fewer columns, so the server of this run must accept them all."""
    names = {"publications": ["pg_trickle"], "own": ["pgtrickle"]}
    db.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER PUBLICATION pg_trickle ADD TABLE t")
    for version in VERSIONS:
        if version < db.info.server_version + 10000:
            rows = db.execute(published_query(version).encode(), names).fetchall()
            assert [row[1] for row in rows] == ["t"]
