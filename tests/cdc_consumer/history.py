"""Random transactions over four tables: inserts, updates, key changes, deletes, truncates, rollbacks, savepoints."""

from __future__ import annotations

import random

from tests.cdc_consumer.harness import Connection

TABLES = ["public.full_key", "public.default_key", "public.keyless", "public.two_keys"]

SCHEMA = """
CREATE TABLE full_key (id int PRIMARY KEY, v text, n numeric(12,2));
ALTER TABLE full_key REPLICA IDENTITY FULL;
CREATE TABLE default_key (id int PRIMARY KEY, v text, big text);
ALTER TABLE default_key ALTER big SET STORAGE EXTERNAL;
CREATE TABLE keyless (a int, b text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE two_keys (v text, b int, a text, PRIMARY KEY (a, b));
ALTER TABLE two_keys REPLICA IDENTITY FULL;
ALTER PUBLICATION pg_trickle ADD TABLE full_key, default_key, keyless, two_keys;
"""


def statement(pick: random.Random) -> str:
    """Return a statement that never fails, whatever the tables hold."""
    key, other, text = pick.randrange(40), pick.randrange(40), pick.choice(["NULL", "'x'", "'é''\"\\'", "''"])
    free = f"NOT EXISTS (SELECT FROM {{}} WHERE id = {other})"
    choices = [
        f"INSERT INTO full_key VALUES ({key}, {text}, {pick.randrange(999)}.5) "
        f"ON CONFLICT (id) DO UPDATE SET v = {text}",
        f"UPDATE full_key SET n = n + 1 WHERE id < {key}",
        f"UPDATE full_key SET id = {other} WHERE id = {key} AND {free.format('full_key')}",
        f"DELETE FROM full_key WHERE id = {key}",
        f"INSERT INTO default_key VALUES ({key}, {text}, repeat('toast', {pick.choice([1, 900])})) "
        "ON CONFLICT DO NOTHING",
        f"UPDATE default_key SET v = {text} WHERE id > {key}",
        f"UPDATE default_key SET big = repeat('t', {pick.choice([3, 5000])}) WHERE id = {key}",
        f"UPDATE default_key SET id = {other} WHERE id = {key} AND {free.format('default_key')}",
        f"DELETE FROM default_key WHERE id % 7 = {key % 7}",
        f"INSERT INTO keyless SELECT g % 3, {text} FROM generate_series(1, {pick.randrange(1, 9)}) g",
        f"UPDATE keyless SET b = {text} WHERE a = {key % 3}",
        f"DELETE FROM keyless WHERE a = {key % 3}",
        f"INSERT INTO two_keys VALUES ({text}, {key}, 'k{other % 3}') ON CONFLICT DO NOTHING",
        f"UPDATE two_keys SET v = {text} WHERE b < {key}",
        f"DELETE FROM two_keys WHERE b = {key}",
    ]
    if pick.random() < 0.03:
        return pick.choice(["TRUNCATE full_key", "TRUNCATE keyless, two_keys", "TRUNCATE default_key"])
    return pick.choice(choices)


def run_transaction(connection: Connection, pick: random.Random) -> None:
    """Run a few statements in one transaction, some of them rolled back."""
    parts = ["BEGIN"]
    for _ in range(pick.randrange(1, 5)):
        parts.append(statement(pick))
        if pick.random() < 0.15:
            undone = statement(pick)
            # TRUNCATE in a rolled-back savepoint must leave no trace either.
            parts += ["SAVEPOINT s", undone, pick.choice(["ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"])]
    parts.append("ROLLBACK" if pick.random() < 0.15 else "COMMIT")
    connection.execute(";".join(parts).encode())
