"""Unusual input that real databases have: each is maintained correctly, or refused with a clear message."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psycopg

from deploy.local.stack import Stack
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))

HOSTILE = "Robert'); DROP TABLE bi_plain; --"
SUBTRANSACTIONS = 10_000 if LONG else 1_000


@dataclass(frozen=True)
class Case:
    """Tables, a query over them, and changes after which the result must still be equal."""

    tables: str
    query: str
    changes: tuple[str, ...]


WIDE = ", ".join(f"c{i} int" for i in range(1_600))

MAINTAINED = {
    "bi_plain_kept": Case(
        "CREATE TABLE bi_plain (id int PRIMARY KEY, v text); INSERT INTO bi_plain VALUES (1, 'x')",
        "SELECT id, v FROM bi_plain",
        # Values that are code somewhere: SQL, Spark, Java's formats, COPY's escapes, CSV, JSON, nothing.
        (
            "INSERT INTO bi_plain SELECT 100 + row_number() OVER (), v FROM unnest(ARRAY["
            "$$'); DROP TABLE bi_plain; --$$,"
            " $$\\.$$, $$\\N$$, $${c0}$$, $$%s %d ${x}$$, $$\"a,b\"$$, $$<script>$$, '', ' ', chr(1), chr(65533),"
            " U&'\\+01F4A9', repeat('x', 100000)]) v",
        ),
    ),
    HOSTILE: Case(
        'CREATE TABLE "bi ""; DROP TABLE x; --" ("sel""ect" int PRIMARY KEY, "%s {0} \\" text, "c0" text);'
        "INSERT INTO \"bi \"\"; DROP TABLE x; --\" VALUES (1, 'a', 'b')",
        'SELECT "sel""ect", "%s {0} \\" AS "out; --", "c0" FROM "bi ""; DROP TABLE x; --"',
        (
            'INSERT INTO "bi ""; DROP TABLE x; --" VALUES (2, NULL, \'c\')',
            'UPDATE "bi ""; DROP TABLE x; --" SET c0 = c0 || c0',
        ),
    ),
    "bi_wide_kept": Case(
        f"CREATE TABLE bi_wide ({WIDE}); INSERT INTO bi_wide (c0, c799, c1599) VALUES (1, 2, 3)",
        "SELECT c0, c799, c1599 FROM bi_wide WHERE c1 IS NULL",
        ("INSERT INTO bi_wide (c0, c1599) VALUES (4, 5)", "UPDATE bi_wide SET c799 = c0 WHERE c0 = 1"),
    ),
    "bi_subtransactions": Case(
        "CREATE TABLE bi_sub (id int PRIMARY KEY, v int)",
        "SELECT v, count(*) AS n FROM bi_sub GROUP BY v",
        (
            f"""DO $$ BEGIN FOR i IN 1..{SUBTRANSACTIONS} LOOP
                BEGIN
                    INSERT INTO bi_sub SELECT i * 10 + j, i % 7 FROM generate_series(0, 9) j;
                    IF i % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL; END;
            END LOOP; END $$""",
        ),
    ),
    "bi_prepared_kept": Case(
        "CREATE TABLE bi_prepared (id int PRIMARY KEY, v int)",
        "SELECT id, v FROM bi_prepared",
        (
            "BEGIN; INSERT INTO bi_prepared VALUES (1, 1), (2, 2); PREPARE TRANSACTION 'bi_kept'",
            "BEGIN; INSERT INTO bi_prepared VALUES (3, 3); PREPARE TRANSACTION 'bi_gone'",
            "INSERT INTO bi_prepared VALUES (4, 4)",
            "COMMIT PREPARED 'bi_kept'",
            "ROLLBACK PREPARED 'bi_gone'",
        ),
    ),
    "bi_messages": Case(
        "CREATE TABLE bi_said (id int PRIMARY KEY)",
        "SELECT id FROM bi_said",
        (
            "BEGIN; SELECT pg_logical_emit_message(true, 'other', 'inside'); INSERT INTO bi_said VALUES (1);"
            " SELECT pg_logical_emit_message(false, 'pg_trickle', 'not ours'); COMMIT",
            "SELECT pg_logical_emit_message(true, 'pg_trickle', '{\"question\": 1}')",
            "SELECT pg_logical_emit_message(false, 'pg_trickle', '{\"kind\": \"capture\"')",
            "SELECT pg_logical_emit_message(false, 'x', '\\xff00'::bytea)",
            "INSERT INTO bi_said VALUES (2)",
        ),
    ),
    "bi_storm_kept": Case(
        "CREATE TABLE bi_storm (id int PRIMARY KEY, v int)",
        "SELECT id, v FROM bi_storm WHERE v > 0",
        tuple(
            f"ALTER TABLE bi_storm ADD COLUMN x{i} text DEFAULT 'd{i}'; INSERT INTO bi_storm (id, v) VALUES ({i}, {i});"
            f" ALTER TABLE bi_storm ALTER COLUMN x{i} TYPE varchar(9);"
            f" UPDATE bi_storm SET v = v + 1; ALTER TABLE bi_storm DROP COLUMN x{i}"
            for i in range(8)
        ),
    ),
    "bi_as_replica": Case(
        "CREATE TABLE bi_replica (id int PRIMARY KEY, v int)",
        "SELECT id, v FROM bi_replica",
        (
            "BEGIN; SET LOCAL ROLE postgres; SET LOCAL session_replication_role = replica;"
            " INSERT INTO bi_replica VALUES (1, 1); COMMIT",
        ),
    ),
    "bi_generated_kept": Case(
        "CREATE TABLE bi_generated (id int GENERATED ALWAYS AS IDENTITY, v int,"
        " twice int GENERATED ALWAYS AS (v * 2) STORED);"
        "INSERT INTO bi_generated (v) VALUES (1), (2)",
        "SELECT id, v FROM bi_generated",
        # PostgreSQL 18 refuses this if the publication does not have the generated column.
        ("INSERT INTO bi_generated (v) VALUES (3), (NULL)", "UPDATE bi_generated SET v = 9 WHERE id = 1"),
    ),
    "bi_identity_kept": Case(
        "CREATE TABLE bi_identity (id int PRIMARY KEY, code int CONSTRAINT bi_code UNIQUE NOT NULL, v int, big text);"
        "INSERT INTO bi_identity SELECT i, 100 + i, i, (SELECT string_agg(md5((i * 999 + g)::text), '')"
        " FROM generate_series(1, 200) g) FROM generate_series(1, 20) i",
        "SELECT id, code, v, big FROM bi_identity",
        # The old images in the log change between statements, also inside a transaction; unchanged long values
        # (TOAST) are not in the log.
        (
            "ALTER TABLE bi_identity REPLICA IDENTITY DEFAULT; UPDATE bi_identity SET v = v + 1;"
            " DELETE FROM bi_identity WHERE id = 3",
            "BEGIN; UPDATE bi_identity SET v = v + 1; ALTER TABLE bi_identity REPLICA IDENTITY FULL;"
            " UPDATE bi_identity SET v = v * 2 WHERE id > 4; DELETE FROM bi_identity WHERE id = 5;"
            " ALTER TABLE bi_identity REPLICA IDENTITY USING INDEX bi_code;"
            " UPDATE bi_identity SET code = code + 100 WHERE id < 7; UPDATE bi_identity SET id = 1009 WHERE id = 9;"
            " DELETE FROM bi_identity WHERE id = 7; COMMIT",
            "UPDATE bi_identity SET v = NULL WHERE id = 10; UPDATE bi_identity SET id = 2000, v = 1 WHERE id = 10",
            "ALTER TABLE bi_identity REPLICA IDENTITY NOTHING; INSERT INTO bi_identity VALUES (50, 50, 5, 'n')",
            "ALTER TABLE bi_identity REPLICA IDENTITY DEFAULT; UPDATE bi_identity SET v = 0 WHERE id IN (50, 1009);"
            " UPDATE bi_identity SET id = id + 10000; DELETE FROM bi_identity WHERE id = 10011",
            "ALTER TABLE bi_identity REPLICA IDENTITY FULL;"
            " UPDATE bi_identity SET v = v + 1, big = 'short' WHERE id < 10015",
        ),
    ),
}


def test_it_is_maintained(db: Connection, stack: Stack) -> None:
    for name, case in MAINTAINED.items():
        db.execute(case.tables.encode())
        quoted = '"' + name.replace('"', '""') + '"'
        db.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (quoted, case.query))
    verdict = oracle.judge(stack.addresses, list(MAINTAINED))
    assert verdict.equal, verdict
    for case in MAINTAINED.values():
        for change in case.changes:
            db.execute(change.encode())
    verdict = oracle.judge(stack.addresses, list(MAINTAINED))
    assert verdict.equal, verdict
