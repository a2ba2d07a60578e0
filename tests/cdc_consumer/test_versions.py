"""A short test of every PostgreSQL from 14 on: copy, random changes, partitions, an added table, a kill, the status.

The other tests run on one version, `PG_MAJOR`. `VERSIONS=all` includes the versions between.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from applier.spark.jars import JarsUnavailable
from deploy.local.postgres import Postgres
from tests.cdc_consumer.harness import Consumer, check, connect
from tests.cdc_consumer.history import SCHEMA, TABLES, run_transaction
from tests.cdc_consumer.test_capture import add, captured
from tests.fixtures import choice
from tests.fixtures.kafka import KafkaBroker

MAJORS = [14, 15, 16, 17] if os.environ.get("VERSIONS") == "all" else [14, 16]

MORE = """
CREATE TABLE parts (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parts_low (v text, id int NOT NULL);
ALTER TABLE parts ATTACH PARTITION parts_low FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE parts_high PARTITION OF parts DEFAULT;
ALTER TABLE parts REPLICA IDENTITY FULL; ALTER TABLE parts_low REPLICA IDENTITY FULL;
ALTER TABLE parts_high REPLICA IDENTITY FULL;
INSERT INTO parts SELECT g, 'copied' FROM generate_series(1, 20) g;
CREATE TABLE late (id int PRIMARY KEY, n numeric, t timestamptz, a int[], j jsonb);
ALTER TABLE late REPLICA IDENTITY FULL;
INSERT INTO late VALUES (1, 'NaN', 'infinity', '{1,NULL}', '{"a": 1.10}'), 
  (2, 1e30, '0044-03-15 12:00+00 BC', NULL, NULL);
"""


@pytest.fixture(params=MAJORS)
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    if choice.stack_choice() != choice.EMBEDDED:
        pytest.skip("other versions are only run embedded")
    with choice.server_folder("version") as folder:
        postgres = Postgres(folder, major=request.param, durable=False)
        try:
            postgres.start()
        except JarsUnavailable as error:
            pytest.skip(f"this version is fetched when it is asked for, and could not be: {error.problem}")
        yield postgres
        postgres.stop()


def test_the_topics_equal_the_tables(server: Postgres, kafka: KafkaBroker, topic_prefix: str, tmp_path: Path) -> None:
    consumer, pick = Consumer(server.url, kafka.bootstrap, topic_prefix, tmp_path), random.Random(server.major)
    with connect(server.url) as db:
        assert db.info.server_version // 10_000 == server.major
        db.execute("CREATE PUBLICATION pg_trickle")
        db.execute(SCHEMA.encode())
        db.execute(MORE.encode())
        add(db, "parts")
        try:
            for _ in range(10):
                run_transaction(db, pick)
            consumer.start()
            for _ in range(20):
                run_transaction(db, pick)
            db.execute("UPDATE parts SET id = id + 5, v = 'moved' WHERE id = 20; DELETE FROM parts WHERE id = 3")
            add(db, "late")
            captured(consumer, 6)
            consumer.kill()
            db.execute("UPDATE late SET n = '-1.50', t = now(); UPDATE parts SET v = 'later' WHERE id = 8")
            consumer.start()
            check(consumer, [*TABLES, "public.parts", "public.late"])
            status = json.loads(consumer.command("status", "--json").stdout)
            assert status["blocked"] is None and status["wal_status"] == "reserved"
            assert [table["publications"] for table in status["tables"]] == [["pg_trickle"]] * 6
        finally:
            consumer.end()
