"""The columns of a change-buffer table: their types, the treatment of old ones, and refused names."""

from __future__ import annotations

from tests.cdc_consumer.conftest import MakeConsumer
from tests.cdc_consumer.harness import Connection, refused, scalar

NO_KAFKA = "127.0.0.1:1"


def test_a_retyped_column_keeps_old_and_new_values(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int); ALTER PUBLICATION pg_trickle ADD TABLE t")
    consumer.start()
    db.execute("INSERT INTO t VALUES (1, 7)")
    db.execute("ALTER TABLE t ALTER v TYPE text USING 'text ' || v; INSERT INTO t VALUES (2, 'eight')")
    db.execute("ALTER TABLE t RENAME v TO w; INSERT INTO t VALUES (3, 'nine')")
    consumer.caught_up()
    relid = scalar(db, "SELECT 't'::regclass::oid")
    found = db.execute(
        f"SELECT id, v__before_1, v, w, __pgt_version FROM pgtrickle_changes.changes_{relid} ORDER BY id".encode()
    ).fetchall()
    assert found == [(1, 7, None, None, 1), (2, None, "eight", None, 2), (3, None, None, "nine", 3)]


def test_types_of_the_buffer_columns(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute(
        "CREATE DOMAIN price AS numeric(10,2) NOT NULL; CREATE TYPE mood AS ENUM ('sad');"
        "CREATE TABLE t (id int8 PRIMARY KEY, p price, c char(4), a int[], r int4range, m mood, ms mood[], k regclass);"
        "ALTER PUBLICATION pg_trickle ADD TABLE t"
    )
    consumer.start()
    relid = scalar(db, "SELECT 't'::regclass::oid")
    types = db.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND attname NOT LIKE '\\_\\_%%' ORDER BY attnum",
        (f"pgtrickle_changes.changes_{relid}",),
    ).fetchall()
    assert dict(types) == {
        "id": "bigint",
        "p": "numeric(10,2)",
        "c": "character(4)",
        "a": "integer[]",
        "r": "int4range",
        "m": "text",
        "ms": "text",
        "k": "text",
    }


def test_a_column_with_a_name_of_ours_is_refused(make_consumer: MakeConsumer, db: Connection) -> None:
    consumer = make_consumer(mode="sidecar", kafka_bootstrap=NO_KAFKA)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, __pgt_lsn int); ALTER PUBLICATION pg_trickle ADD TABLE t")
    text = refused(consumer)
    assert "__pgt_lsn" in text and "public.t" in text
