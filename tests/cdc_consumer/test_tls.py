"""TLS to PostgreSQL: the TLS options of a URL apply to every connection of both programs."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from applier.catalog.database import connect
from applier.errors import Infrastructure
from applier.refresh.computing.pinned_snapshot import PinnedSnapshots
from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, check
from tests.fixtures import choice
from tests.security.tls_front import TlsFront, certificate


@pytest.mark.skipif(
    choice.stack_choice() != choice.EMBEDDED or shutil.which("openssl") is None,
    reason="for the embedded server; needs openssl",
)
def test_both_programs_verify_the_server(
    make_consumer: MakeConsumer, db: Connection, database: str, tmp_path: Path
) -> None:
    made = certificate(tmp_path, "server")
    front = TlsFront(urlsplit(database).port or 5432, made)
    secured = make_conninfo(database, port=front.port, sslmode="verify-full", sslrootcert=str(made[0]))

    consumer = make_consumer(database_url=secured)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    db.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 50) i; ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    db.execute("UPDATE t SET v = 'w' WHERE id < 9")
    check(consumer, ["public.t"])
    assert front.served >= 3, "the stream, the catalog and the copy"

    with connect(secured) as connection:
        assert connection.pgconn.ssl_in_use
    with PinnedSnapshots(secured).pin() as (reader, _):
        assert reader.pgconn.ssl_in_use

    # An authority that did not sign the server's certificate.
    other, _ = certificate(tmp_path, "other")
    wrong = make_conninfo(secured, sslrootcert=str(other))
    with pytest.raises(Infrastructure, match="certificate"):
        connect(wrong)
    refused = make_consumer(database_url=wrong).command("status")
    assert refused.returncode == 1 and "certificate" in refused.stderr and "Traceback" not in refused.stderr
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(make_conninfo(database, port=front.port, sslmode="disable"))
