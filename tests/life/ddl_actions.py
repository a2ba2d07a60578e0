"""A random generator in; the next change of the fuzz, as SQL, out: rows, and DDL of every kind in docs/sources.md.

An action looks at the catalog, so that most of its statements are valid. None means that there is nothing to do it to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

Connection = psycopg.Connection[tuple[object, ...]]

PLAIN, PARTITIONED = ("customers", "orders"), ("events", "notes")


@dataclass
class Catalog:
    """What the actions ask: names and columns as they are now, by the object ids that the tables had at the start."""

    connection: Connection
    rng: random.Random
    oids: dict[str, int]
    major: int

    def names(self, query: str, *values: object) -> list[str]:
        """Return the first column of a query."""
        return [str(row[0]) for row in self.connection.execute(query.encode(), values).fetchall()]

    def table(self, name: str) -> str | None:
        """Return the qualified present name of a table; None when it is gone."""
        found = self.names(
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::int8::oid",
            self.oids.get(name, 0),
        )
        return found[0] if found else None

    def columns(self, name: str, kind: str = "%") -> list[str]:
        """Return the columns of a table whose type name matches."""
        return self.names(
            "SELECT quote_ident(a.attname) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid ="
            " %s::int8::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND t.typname LIKE %s"
            " ORDER BY a.attnum",
            self.oids.get(name, 0),
            kind,
        )

    def leaves(self, name: str) -> list[str]:
        """Return the direct partitions of a partitioned table."""
        return self.names(
            "SELECT i.inhrelid::regclass::text FROM pg_inherits i WHERE i.inhparent = %s::int8::oid ORDER BY 1",
            self.oids.get(name, 0),
        )

    def loose(self, name: str) -> list[str]:
        """Return the tables that were partitions once, or were made to become one."""
        return self.names(
            "SELECT format('world.%%I', c.relname) FROM pg_class c WHERE c.relnamespace = to_regnamespace('world')"
            " AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE %s ORDER BY 1",
            f"{name}\\_%",
        )

    def some(self, names: tuple[str, ...]) -> tuple[str, str] | None:
        """Choose a table that exists -> its first name and its present one."""
        found = [(name, now) for name in names if (now := self.table(name)) is not None]
        return self.rng.choice(found) if found else None


Action = Callable[[Catalog], str | None]
ACTIONS: dict[str, tuple[int, Action]] = {}


def action(weight: int = 1) -> Callable[[Action], Action]:
    """Register an action under the name of its function."""

    def register(function: Action) -> Action:
        ACTIONS[function.__name__] = weight, function
        return function

    return register


def choose(catalog: Catalog) -> tuple[str, str]:
    """Choose an action that has something to do -> its name and its SQL."""
    names = list(ACTIONS)
    weights = [ACTIONS[name][0] for name in names]
    while True:
        name = catalog.rng.choices(names, weights)[0]
        text = ACTIONS[name][1](catalog)
        if text is not None:
            return name, text


def some_rows(catalog: Catalog) -> str | None:
    """Return one statement that writes rows."""
    rng, number = catalog.rng, catalog.rng.randrange
    table = rng.choice((*PLAIN, *PARTITIONED))
    now = catalog.table(table)
    if now is None:
        return None
    integers = [c for c in catalog.columns(table, "int4") if c not in ("id", "at", "k")]
    if rng.random() < 0.35 or not integers:
        match table:
            case "customers":
                rows = f"(id, name) VALUES ({number(1000, 9999)}, 'x{number(50)}')"
            case "orders":
                rows = (
                    f"(id, customer, v, w) VALUES ({number(1000, 99999)}, {number(1, 31)}, {number(12)}, {number(9)})"
                )
            case "events":
                rows = f"(at, kind, v, id) VALUES ({number(300)}, '{rng.choice('abc')}', {number(11)}, {number(10**6)})"
            case _:
                rows = f"(k, body, n) VALUES ({number(6)}, 'm', {number(99)})"
        return f"INSERT INTO {now} {rows}"
    column, key = rng.choice(integers), {"events": "id", "notes": "n"}.get(table, "id")
    if rng.random() < 0.25:
        return f"DELETE FROM {now} WHERE {key} % 37 = {number(37)}"
    if table == "events" and rng.random() < 0.4:
        # Rows move to another partition.
        return f"UPDATE {now} SET at = (at + 100) % 300 WHERE id % 29 = {number(29)}"
    if table == "notes" and rng.random() < 0.4:
        return f"UPDATE {now} SET k = {number(5)} WHERE n % 13 = {number(13)}"
    return f"UPDATE {now} SET {column} = {column} + {number(1, 4)} WHERE {key} % 11 = {number(11)}"


@action(30)
def write_rows(catalog: Catalog) -> str | None:
    return some_rows(catalog)


@action(10)
def write_transaction(catalog: Catalog) -> str | None:
    parts = [text for _ in range(catalog.rng.randrange(2, 5)) if (text := some_rows(catalog)) is not None]
    end = "COMMIT" if catalog.rng.random() < 0.85 else "ROLLBACK"
    return f"BEGIN; {'; '.join(parts)}; {end}" if parts else None


@action(3)
def truncate(catalog: Catalog) -> str | None:
    found = catalog.some((*PLAIN, *PARTITIONED))
    return found and f"TRUNCATE {found[1]}"


@action(2)
def add_column(catalog: Catalog) -> str | None:
    found = catalog.some((*PLAIN, *PARTITIONED))
    kind = catalog.rng.choice(["int", "int DEFAULT 7", "text DEFAULT 'd'", "int DEFAULT (random() * 9)::int"])
    return found and f"ALTER TABLE {found[1]} ADD COLUMN extra_{catalog.rng.randrange(10**6)} {kind}"


@action(2)
def drop_unused_column(catalog: Catalog) -> str | None:
    found = catalog.some((*PLAIN, *PARTITIONED))
    unused = [c for c in catalog.columns(found[0]) if c.startswith("extra_")] if found else []
    return f"ALTER TABLE {found[1]} DROP COLUMN {catalog.rng.choice(unused)}" if found and unused else None


@action()
def drop_column(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    return f"ALTER TABLE {now} DROP COLUMN w" if now and "w" in catalog.columns("orders") else None


@action()
def put_column_back(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    return f"ALTER TABLE {now} ADD COLUMN w int DEFAULT 3" if now and "w" not in catalog.columns("orders") else None


@action(2)
def remake_column(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    if now is None or "w" not in catalog.columns("orders"):
        return None
    return f"BEGIN; ALTER TABLE {now} DROP COLUMN w; ALTER TABLE {now} ADD COLUMN w int DEFAULT 7; COMMIT"


@action(2)
def rename_column(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    if found is None:
        return None
    columns = [c for c in catalog.columns(found[0]) if c != "id"]
    if not columns:
        return None
    old = catalog.rng.choice(columns)
    new = old.removesuffix("_r") if old.endswith("_r") else f"{old}_r"
    return f"ALTER TABLE {found[1]} RENAME COLUMN {old} TO {new}"


@action(2)
def swap_columns(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    columns = [c for c in ("v", "w") if c in catalog.columns("orders", "int4")]
    if now is None or len(columns) < 2:
        return None
    steps = [f"ALTER TABLE {now} RENAME COLUMN {a} TO {b}" for a, b in (("v", "tmp"), ("w", "v"), ("tmp", "w"))]
    return f"BEGIN; {'; '.join(steps)}; COMMIT"


@action(2)
def rename_table(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    if found is None:
        return None
    new = found[0] if not found[1].endswith(f".{found[0]}") else f"{found[0]}_renamed"
    return f"ALTER TABLE {found[1]} RENAME TO {new}"


@action(2)
def rename_write_and_rename_back(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    if found is None:
        return None
    schema, _, name = found[1].partition(".")
    write = f"DELETE FROM {schema}.aside WHERE id % 41 = {catalog.rng.randrange(41)}"
    return (
        f"BEGIN; ALTER TABLE {found[1]} RENAME TO aside; {write}; ALTER TABLE {schema}.aside RENAME TO {name}; COMMIT"
    )


@action(2)
def set_schema(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    if found is None:
        return None
    other = "elsewhere" if found[1].startswith("world.") else "world"
    return f"ALTER TABLE {found[1]} SET SCHEMA {other}"


@action(2)
def rewrite_under_the_same_type(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    columns = [c for c in ("w", "w_r") if c in catalog.columns("orders", "int4")]
    return f"ALTER TABLE {now} ALTER COLUMN {columns[0]} TYPE int USING {columns[0]} + 100" if now and columns else None


@action()
def widen(catalog: Catalog) -> str | None:
    now = catalog.table("customers")
    columns = catalog.columns("customers", "int4")
    return f"ALTER TABLE {now} ALTER COLUMN credit TYPE bigint" if now and "credit" in columns else None


@action()
def change_collation(catalog: Catalog) -> str | None:
    now = catalog.table("customers")
    collation = catalog.rng.choice(['"C"', '"default"', '"POSIX"'])
    if now is None or "name" not in catalog.columns("customers", "text"):
        return None
    return f"ALTER TABLE {now} ALTER COLUMN name TYPE text COLLATE {collation}"


@action()
def set_expression(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    columns = catalog.columns("orders", "int4")
    if now is None or catalog.major < 17 or "v" not in columns:
        return None
    return f"ALTER TABLE {now} ALTER COLUMN doubled SET EXPRESSION AS (v * {catalog.rng.randrange(2, 6)})"


@action(2)
def rename_label(catalog: Catalog) -> str | None:
    labels = catalog.names("SELECT enumlabel FROM pg_enum WHERE enumtypid = to_regtype('world.mood')")
    if not labels:
        return None
    old = catalog.rng.choice(labels)
    new = old.removesuffix("!") if old.endswith("!") else f"{old}!"
    return f"ALTER TYPE world.mood RENAME VALUE '{old}' TO '{new}'"


@action()
def add_label(catalog: Catalog) -> str | None:
    return f"ALTER TYPE world.mood ADD VALUE 'l{catalog.rng.randrange(10**6)}' BEFORE 'ok'"


@action(2)
def replace_view(catalog: Catalog) -> str | None:
    # As PostgreSQL prints it now: its columns and tables may have other names than at first.
    found = catalog.names("SELECT pg_get_viewdef(to_regclass('world.bigger_orders'))")
    if not found or " WHERE " not in found[0].replace("\n", " "):
        return None
    text = found[0].replace("\n", " ").rstrip("; ")
    head, _, _ = text.rpartition(" WHERE ")
    return f"CREATE OR REPLACE VIEW world.bigger_orders AS {head} WHERE id % {catalog.rng.randrange(2, 5)} = 0"


@action(2)
def replace_function(catalog: Catalog) -> str | None:
    factor = catalog.rng.randrange(2, 6)
    return f"CREATE OR REPLACE FUNCTION world.weight(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * {factor}'"


@action(3)
def detach(catalog: Catalog) -> str | None:
    found = catalog.some(PARTITIONED)
    leaves = catalog.leaves(found[0]) if found else []
    if found is None or len(leaves) < 2:
        return None
    concurrently = catalog.rng.choice(["", "", " CONCURRENTLY"])
    return f"ALTER TABLE {found[1]} DETACH PARTITION {catalog.rng.choice(leaves)}{concurrently}"


@action(4)
def attach_again(catalog: Catalog) -> str | None:
    rng = catalog.rng
    for name in rng.sample(PARTITIONED, 2):
        now, loose = catalog.table(name), catalog.loose(name)
        if now is None or not loose:
            continue
        table = rng.choice(loose)
        digit = next((d for d in table.rpartition("_")[2] if d.isdigit()), "9")
        if name == "events":
            bounds = f"FROM ({int(digit) * 100}) TO ({int(digit) * 100 + 100})"
            return f"ALTER TABLE {now} ATTACH PARTITION {table} FOR VALUES {bounds}"
        if table.endswith("_x"):
            return f"ALTER TABLE {now} ATTACH PARTITION {table} DEFAULT"
        return f"ALTER TABLE {now} ATTACH PARTITION {table} FOR VALUES IN ({digit})"
    return None


@action(2)
def write_detached(catalog: Catalog) -> str | None:
    loose = catalog.loose("notes")
    return f"UPDATE {catalog.rng.choice(loose)} SET n = n + 1000" if loose else None


@action(2)
def attach_filled(catalog: Catalog) -> str | None:
    now = catalog.table("events")
    if now is None or "v" not in catalog.columns("events"):
        return None
    low = 100 * catalog.rng.randrange(3, 9)
    new = f"world.events_{low // 100}"
    rows = f"INSERT INTO {new} (at, kind, v, id) SELECT {low} + i, 'f', i % 5, {low} + i FROM generate_series(0, 9) i"
    attach = f"ALTER TABLE {now} ATTACH PARTITION {new} FOR VALUES FROM ({low}) TO ({low + 100})"
    return f"BEGIN; CREATE TABLE {new} (LIKE {now} INCLUDING ALL); {rows}; {attach}; COMMIT"


@action(2)
def create_partition(catalog: Catalog) -> str | None:
    now = catalog.table("notes")
    k = catalog.rng.randrange(2, 9)
    return now and f"CREATE TABLE world.notes_{k} PARTITION OF {now} FOR VALUES IN ({k + 100})"


@action(2)
def change_one_partition(catalog: Catalog) -> str | None:
    found = catalog.some(PARTITIONED)
    leaves = catalog.leaves(found[0]) if found else []
    if len(leaves) < 2:
        return None
    return f"{catalog.rng.choice(['TRUNCATE', 'TRUNCATE', 'DROP TABLE', 'DELETE FROM'])} {catalog.rng.choice(leaves)}"


@action(4)
def change_nothing(catalog: Catalog) -> str | None:
    found = catalog.some((*PLAIN, *PARTITIONED))
    if found is None:
        return None
    number = catalog.rng.randrange(10**6)
    plain = catalog.table("orders") or found[1]
    return catalog.rng.choice(
        [
            f"VACUUM FULL {plain}",
            f"ANALYZE {found[1]}",
            f"COMMENT ON TABLE {found[1]} IS 'c{number}'",
            f"CREATE INDEX ON {found[1]} (({number}))",
            f"ALTER TABLE {found[1]} ADD CONSTRAINT c{number} CHECK ({number} > 0)",
            f"GRANT SELECT ON {found[1]} TO PUBLIC",
            f"ALTER TABLE {plain} SET (fillfactor = {50 + number % 50})",
            f"CREATE TABLE world.unrelated_{number} (id int)",
            f"REINDEX TABLE {plain}",
        ]
    )


@action()
def change_not_null(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    if now is None or "w" not in catalog.columns("orders"):
        return None
    kinds = ["ALTER COLUMN w SET NOT NULL", "ALTER COLUMN w DROP NOT NULL"]
    if catalog.major >= 18:
        kinds.append("ADD CONSTRAINT w_known NOT NULL w NOT VALID")
    return f"ALTER TABLE {now} {catalog.rng.choice(kinds)}"


@action()
def change_replica_identity(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"ALTER TABLE {found[1]} REPLICA IDENTITY {catalog.rng.choice(['DEFAULT', 'FULL', 'FULL'])}"


@action()
def leave_the_publication(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"ALTER PUBLICATION {publication(catalog)} DROP TABLE {found[1]}"


@action(2)
def join_the_publication(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"ALTER PUBLICATION {publication(catalog)} ADD TABLE {found[1]}"


def publication(catalog: Catalog) -> str:
    """Return the name of the publication."""
    return catalog.names("SELECT quote_ident(pgtrickle._setting('publication'))")[0]


@action()
def switch_row_security(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"ALTER TABLE {found[1]} {catalog.rng.choice(['ENABLE', 'DISABLE', 'DISABLE'])} ROW LEVEL SECURITY"
