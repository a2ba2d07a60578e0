"""A checkpoint's manifest is read back unchanged; one of another form is refused with a clear message."""

from __future__ import annotations

from typing import Any

import pytest

from applier.catalog.checkpoints import EMPTY_MANIFEST, Checkpoints, Manifest
from applier.catalog.database import Connection, Database
from applier.catalog.install import install_catalog
from applier.errors import InstallError
from shared_schema.lsn import Lsn


def test_what_was_written_is_read() -> None:
    manifest = Manifest(Lsn(16), {"t": {0: 5}}, [], {"1": {"topic": "0/10"}})
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "stored",
    [
        {},
        EMPTY_MANIFEST.to_json() | {"offsets": {"t": 5}},
        {name: value for name, value in EMPTY_MANIFEST.to_json().items() if name != "sinks"},
    ],
)
def test_another_form_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(InstallError, match="has a form that this version does not know"):
        Manifest.from_json(stored)


def test_a_checkpoint_is_durable_whatever_the_role_says(database: str) -> None:
    """A lost one looks like a server that was restored."""

    def commit_soon(connection: Connection) -> None:
        connection.execute("SET synchronous_commit = off")

    own = Database(database, commit_soon)
    install_catalog(own.connection)
    checkpoints = Checkpoints(own)
    for number in range(20):
        before = own.connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        checkpoints.save("test", Manifest(Lsn(number), {}, [], {}))
        is_flushed = own.connection.execute("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", before).fetchone()
        assert is_flushed == (True,)
    own.close()
