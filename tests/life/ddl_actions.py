"""A random generator in; the next change of the fuzz, as SQL, out: rows, and DDL of every line of docs/sources.md.

An action looks at the catalog, so that most of its statements are valid. None means that there is nothing to do it to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.life.ddl_world import AUTHOR, PARTITIONED, PLAIN, Connection, World

ALL = (*PLAIN, *PARTITIONED)
ROW_ID = {"customers": 1, "orders": 1, "spare": 3, "events": 4, "notes": 3}
"""Table -> the attribute number of the column by which rows are chosen."""
KEYS = {"customers": {1}, "orders": {1}, "spare": {1, 3}, "events": {1, 2, 4}, "notes": {1, 3}}
EVOLVED = " (`auto_evolve`)"


@dataclass(frozen=True)
class Column:
    number: int
    name: str
    type: str


@dataclass
class Catalog:
    """What the actions ask: names and columns as they are now, by the object ids that the objects had at the start."""

    connection: Connection
    rng: random.Random
    world: World
    major: int

    def names(self, query: str, *values: object) -> list[str]:
        """Return the first column of a query."""
        return [str(row[0]) for row in self.connection.execute(query.encode(), values or None).fetchall()]

    def oid(self, name: str) -> int:
        return self.world.oids.get(name, 0)

    def table(self, name: str) -> str | None:
        """Return the qualified present name of a table or view; None when it is gone."""
        found = self.names(
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::int8::oid",
            self.oid(name),
        )
        return found[0] if found else None

    def type(self, name: str) -> str | None:
        """Return the qualified present name of a type."""
        found = self.names(
            "SELECT format('%%I.%%I', n.nspname, t.typname) FROM pg_type t"
            " JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s::int8::oid",
            self.oid(name),
        )
        return found[0] if found else None

    def function(self) -> str | None:
        """Return the qualified present name of the function."""
        query = "SELECT format('world.%%I', p.proname) FROM pg_proc p WHERE p.oid = %s::int8::oid"
        found = self.names(query, self.oid("weight"))
        return found[0] if found else None

    def columns(self, name: str) -> list[Column]:
        """Return the columns of a table that rows may be written to."""
        rows = self.connection.execute(
            "SELECT a.attnum, quote_ident(a.attname), t.typname FROM pg_attribute a JOIN pg_type t ON t.oid ="
            " a.atttypid WHERE a.attrelid = %s::int8::oid AND a.attnum > 0 AND NOT a.attisdropped"
            " AND a.attgenerated = '' ORDER BY a.attnum",
            (self.oid(name),),
        ).fetchall()
        return [Column(int(str(number)), str(column), str(kind)) for number, column, kind in rows]

    def column(self, name: str, number: int) -> str | None:
        """Return the present name of a column by its attribute number."""
        return next((c.name for c in self.columns(name) if c.number == number), None)

    def integers(self, name: str) -> list[str]:
        """Return the integer columns that are no key."""
        return [c.name for c in self.columns(name) if c.type == "int4" and c.number not in KEYS[name]]

    def leaves(self, name: str) -> list[tuple[str, str]]:
        """Return parent and name of each partition of a partitioned table, at any depth."""
        rows = self.connection.execute(
            "SELECT i.inhparent::regclass::text, i.inhrelid::regclass::text FROM pg_inherits i"
            " WHERE NOT i.inhdetachpending AND i.inhrelid <> %s::int8::oid AND (i.inhparent = %s::int8::oid OR"
            " i.inhparent IN (SELECT j.inhrelid FROM pg_inherits j WHERE j.inhparent = %s::int8::oid)) ORDER BY 1, 2",
            (self.oid("spare"), self.oid(name), self.oid(name)),
        ).fetchall()
        return [(str(parent), str(leaf)) for parent, leaf in rows]

    def loose(self, name: str) -> list[str]:
        """Return the tables that were partitions once, or were made to become one."""
        return self.names(
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid ="
            " c.relnamespace WHERE n.nspname IN ('world', 'elsewhere') AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relname LIKE %s ORDER BY 1",
            f"{name}\\_%",
        )

    def some(self, names: tuple[str, ...]) -> tuple[str, str] | None:
        """Choose a table that exists -> its first name and its present one."""
        found = [(name, now) for name in names if (now := self.table(name)) is not None]
        return self.rng.choice(found) if found else None

    def publication(self) -> str:
        return self.names("SELECT quote_ident(pgtrickle._setting('publication'))")[0]

    def number(self) -> int:
        return self.rng.randrange(10**6)


Make = Callable[[Catalog], str | None]


@dataclass(frozen=True)
class Action:
    """One kind of change, the lines of docs/sources.md that it is about, and how often it is made."""

    make: Make
    lines: tuple[str, ...]
    weight: float


ACTIONS: dict[str, Action] = {}


def action(*lines: str, weight: float = 1) -> Callable[[Make], Make]:
    """Register an action under the name of its function."""

    def register(function: Make) -> Make:
        ACTIONS[function.__name__] = Action(function, lines, weight)
        return function

    return register


def choose(catalog: Catalog) -> tuple[str, str]:
    """Choose an action that has something to do -> its name and its SQL."""
    names = list(ACTIONS)
    weights = [ACTIONS[name].weight for name in names]
    while True:
        name = catalog.rng.choices(names, weights)[0]
        text = ACTIONS[name].make(catalog)
        if text is not None:
            return name, text


def transaction(*statements: str) -> str:
    """Return statements as one transaction."""
    return f"BEGIN; {'; '.join(statements)}; COMMIT"


# Rows


def some_value(catalog: Catalog, table: str, column: Column) -> str | None:
    """Return a value for a column of a new row; None where the default is taken."""
    number = catalog.rng.randrange
    match table, column.number:
        case "customers", 1:
            return str(number(1000, 9999))
        case "customers", 2:
            return f"'x{number(50)}'"
        case "orders", 1:
            return str(number(1000, 99999))
        case "orders", 2:
            return str(number(1, 31))
        case "events", 1:
            return str(number(300))
        case "events", 2:
            return f"'{catalog.rng.choice('abc')}'"
        case "events" | "notes" | "spare", 3 | 4:
            return str(number(10**6) if column.number == ROW_ID[table] else number(11))
        case "spare", 1:
            return "77"
        case "notes", 1:
            return str(number(6))
        case _:
            return str(number(12)) if column.type == "int4" else None


def some_rows(catalog: Catalog) -> str | None:
    """Return one statement that writes rows."""
    rng, number = catalog.rng, catalog.rng.randrange
    found = catalog.some(ALL)
    if found is None:
        return None
    table, now = found
    key, integers = catalog.column(table, ROW_ID[table]), catalog.integers(table)
    if rng.random() < 0.4 or key is None or not integers:
        chosen = [(c.name, value) for c in catalog.columns(table) if (value := some_value(catalog, table, c))]
        names, values = ", ".join(name for name, _ in chosen), ", ".join(value for _, value in chosen)
        return f"INSERT INTO {now} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING" if chosen else None
    if rng.random() < 0.25:
        return f"DELETE FROM {now} WHERE {key} % 37 = {number(37)}"
    at = catalog.column(table, 1)
    if table == "events" and at and rng.random() < 0.4:
        # Rows move to another partition.
        return f"UPDATE {now} SET {at} = ({at} + 100) % 300 WHERE {key} % 29 = {number(29)}"
    if table == "notes" and at and rng.random() < 0.4:
        return f"UPDATE {now} SET {at} = {number(5)} WHERE {key} % 13 = {number(13)}"
    column = rng.choice(integers)
    return f"UPDATE {now} SET {column} = {column} + {number(1, 4)} WHERE {key} % 11 = {number(11)}"


@action("rows move to another partition", weight=20)
def write_rows(catalog: Catalog) -> str | None:
    return some_rows(catalog)


@action(weight=8)
def write_transaction(catalog: Catalog) -> str | None:
    parts = [text for _ in range(catalog.rng.randrange(2, 5)) if (text := some_rows(catalog)) is not None]
    end = "COMMIT" if catalog.rng.random() < 0.85 else "ROLLBACK"
    return f"BEGIN; {'; '.join(parts)}; {end}" if parts else None


@action("a table is truncated", weight=2)
def truncate(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    return found and f"TRUNCATE {found[1]}"


# What changes no row


@action(
    "an index",
    "a constraint",
    "statistics, comments, grants, options",
    "a default, an identity, a trigger",
    "rows are stored anew, unchanged",
    "a column is altered, and rows are stored anew, unchanged",
    "rows are stored in another order",
    "a partition is stored anew",
    "a default or an identity goes",
    "a constraint is validated, renamed and dropped",
    "a foreign key, extended statistics",
    "a unique constraint",
    "an index is renamed, built anew or dropped",
    "rules, and triggers that are switched off",
    "policies, while row security is off",
    "how a column is stored",
    "how a table is stored",
    "a table is of a type, or inherits",
    "a constraint or a default of one partition",
    "another table is published",
    weight=12,
)
def change_nothing(catalog: Catalog) -> str | None:
    found, plain = catalog.some(ALL), catalog.some(PLAIN)
    if found is None or plain is None:
        return None
    number, now, rng = catalog.number(), plain[1], catalog.rng
    keys = catalog.names(
        "SELECT quote_ident(relname) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
        " WHERE indrelid = %s::int8::oid AND indisvalid AND indpred IS NULL AND indexprs IS NULL",
        catalog.oid(plain[0]),
    )
    leaves = [leaf for name in PARTITIONED for _, leaf in catalog.leaves(name)]
    columns = [c.name for c in catalog.columns(plain[0])]
    kinds = [
        f"VACUUM FULL {now}",
        f"ANALYZE {found[1]}",
        f"COMMENT ON TABLE {found[1]} IS 'c{number}'",
        f"CREATE INDEX ON {found[1]} (({number}))",
        f"ALTER TABLE {found[1]} ADD CONSTRAINT c{number} CHECK ({number} > 0)",
        f"GRANT SELECT ON {found[1]} TO PUBLIC",
        f"ALTER TABLE {now} SET (fillfactor = {50 + number % 50})",
        f"CREATE TABLE world.unrelated_{number} (id int)",
        f"REINDEX TABLE {now}",
        f"CREATE OR REPLACE TRIGGER same BEFORE UPDATE ON {now} FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ]
    kinds += [f"CLUSTER {now} USING {key}" for key in keys[:1]]
    kinds += [
        transaction(
            f"ALTER TABLE {now} ADD CONSTRAINT c{number} CHECK ({number} > 0) NOT VALID",
            f"ALTER TABLE {now} VALIDATE CONSTRAINT c{number}",
            f"ALTER TABLE {now} RENAME CONSTRAINT c{number} TO d{number}",
        ),
        f"ALTER TABLE {now} DISABLE TRIGGER USER",
        f"ALTER TABLE {now} SET WITHOUT CLUSTER",
        f"CREATE RULE r{number} AS ON DELETE TO {now} WHERE {number} < 0 DO INSTEAD NOTHING",
        f"CREATE POLICY p{number} ON {now} USING ({number} > 0)",
        transaction(f"CREATE TABLE world.above_{number} ()", f"ALTER TABLE {now} INHERIT world.above_{number}"),
        transaction(
            f"CREATE TABLE world.unrelated_{number} (id int PRIMARY KEY)",
            f"ALTER PUBLICATION {catalog.publication()} ADD TABLE world.unrelated_{number}",
        ),
    ]
    kinds += [f"ALTER INDEX world.{key} RENAME TO i{number}" for key in keys[-1:]]
    kinds += [f"VACUUM FULL {leaf}" for leaf in leaves[:1]]
    kinds += [f"ALTER TABLE {leaf} ADD CHECK ({number} > 0)" for leaf in leaves[-1:]]
    for column in columns[-1:]:
        kinds.append(f"ALTER TABLE {now} ALTER COLUMN {column} SET STATISTICS {number % 100}")
        kinds.append(f"ALTER TABLE {now} ALTER COLUMN {column} DROP DEFAULT")
        kinds.append(f"ALTER TABLE {now} ALTER COLUMN {column} SET STORAGE PLAIN")
        kinds.append(f"ALTER TABLE {now} ALTER COLUMN {column} SET (n_distinct = {number % 100})")
        kinds.append(f"CREATE STATISTICS ON {column}, {columns[0]} FROM {now}")
        kinds.append(f"ALTER TABLE {now} ADD UNIQUE ({column}, {columns[0]})")
    return rng.choice(kinds)


@action("NOT NULL comes and goes", "a NOT NULL that old rows need not meet (since PostgreSQL 18)")
def change_not_null(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    columns = catalog.integers(found[0]) if found else []
    if found is None or not columns:
        return None
    column = catalog.rng.choice(columns)
    kinds = [f"ALTER COLUMN {column} SET NOT NULL", f"ALTER COLUMN {column} DROP NOT NULL"]
    if catalog.major >= 18:
        kinds.append(f"ADD CONSTRAINT known_{catalog.number()} NOT NULL {column} NOT VALID")
    return f"ALTER TABLE {found[1]} {catalog.rng.choice(kinds)}"


@action(
    "the replica identity changes", "the replica identity is an index", "the replica identity is switched off", weight=2
)
def change_replica_identity(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    if found is None:
        return None
    keys = catalog.names(
        "SELECT quote_ident(conname) FROM pg_constraint WHERE contype = 'p' AND conrelid = %s::int8::oid",
        catalog.oid(found[0]),
    )
    kinds = ["DEFAULT", "FULL", "FULL", "FULL", "NOTHING", *(f"USING INDEX {key}" for key in keys)]
    return f"ALTER TABLE {found[1]} REPLICA IDENTITY {catalog.rng.choice(kinds)}"


@action("the replica identity of a partition changes")
def change_identity_of_a_leaf(catalog: Catalog) -> str | None:
    leaves = [leaf for name in PARTITIONED for _, leaf in catalog.leaves(name)]
    kind = catalog.rng.choice(["DEFAULT", "FULL", "FULL"])
    return f"ALTER TABLE {catalog.rng.choice(leaves)} REPLICA IDENTITY {kind}" if leaves else None


@action("the primary key is dropped", "another primary key")
def change_key(catalog: Catalog) -> str | None:
    found = catalog.some(("customers", "orders"))
    key = catalog.column(found[0], 1) if found else None
    if found is None or key is None:
        return None
    keys = catalog.names(
        "SELECT quote_ident(conname) FROM pg_constraint WHERE contype = 'p' AND conrelid = %s::int8::oid",
        catalog.oid(found[0]),
    )
    change = f"DROP CONSTRAINT {keys[0]}" if keys else f"ADD PRIMARY KEY ({key})"
    return f"ALTER TABLE {found[1]} {change}"


# Columns


@action(
    "a column that the query does not read is added",
    "a column of a query with `*` is added",
    f"a column of a query with `*` is added{EVOLVED}",
    "a column of a partitioned table is added",
    "a column that rewrites the table is added",
    "a virtual generated column is added (since PostgreSQL 18)",
    weight=2,
)
def add_column(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    kinds = ["int", "int DEFAULT 7", "text DEFAULT 'd'", "int DEFAULT (random() * 9)::int"]
    if catalog.major >= 18 and catalog.rng.random() < 0.1:
        kinds = ["int GENERATED ALWAYS AS (3) VIRTUAL"]
    kind = catalog.rng.choice(kinds)
    return found and f"ALTER TABLE {found[1]} ADD COLUMN extra_{catalog.number()} {kind}"


@action("a column that the query does not read is dropped", weight=2)
def drop_unused_column(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    unused = [c.name for c in catalog.columns(found[0]) if c.name.startswith("extra_")] if found else []
    return f"ALTER TABLE {found[1]} DROP COLUMN {catalog.rng.choice(unused)}" if found and unused else None


@action(
    "a column that the query reads is dropped",
    f"a column that the query reads is dropped{EVOLVED}",
    "a column of a partitioned table is dropped",
)
def drop_column(catalog: Catalog) -> str | None:
    found = catalog.some(("orders", "events"))
    columns = catalog.integers(found[0]) if found else []
    return f"ALTER TABLE {found[1]} DROP COLUMN {columns[-1]}" if found and columns else None


@action(weight=2)
def put_column_back(catalog: Catalog) -> str | None:
    found = catalog.some(("orders", "events"))
    names = [c.name for c in catalog.columns(found[0])] if found else []
    missing = [
        name for name in ({"orders": ("v", "w"), "events": ("v",)}[found[0]] if found else ()) if name not in names
    ]
    return f"ALTER TABLE {found[1]} ADD COLUMN {missing[0]} int DEFAULT 3" if found and missing else None


@action("a column is dropped and added again")
def remake_column(catalog: Catalog) -> str | None:
    now, columns = catalog.table("orders"), catalog.integers("orders")
    if now is None or not columns:
        return None
    column = columns[-1]
    return transaction(
        f"ALTER TABLE {now} DROP COLUMN {column}", f"ALTER TABLE {now} ADD COLUMN {column} int DEFAULT 7"
    )


@action("a column is renamed", "a column of a partitioned table is renamed", weight=2)
def rename_column(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    columns = [c.name for c in catalog.columns(found[0])] if found else []
    if found is None or not columns:
        return None
    old = catalog.rng.choice(columns)
    new = old.removesuffix("_r") if old.endswith("_r") else f"{old}_r"
    return f"ALTER TABLE {found[1]} RENAME COLUMN {old} TO {new}"


@action("columns change their names", weight=2)
def swap_columns(catalog: Catalog) -> str | None:
    now, columns = catalog.table("orders"), catalog.integers("orders")
    if now is None or len(columns) < 2:
        return None
    a, b = catalog.rng.sample(columns, 2)
    return transaction(*(f"ALTER TABLE {now} RENAME COLUMN {x} TO {y}" for x, y in ((a, "tmp"), (b, a), ("tmp", b))))


@action(
    "values are rewritten under the same type",
    f"values are rewritten under the same type{EVOLVED}",
    "a column of a partitioned table is rewritten",
    weight=2,
)
def rewrite_under_the_same_type(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    columns = catalog.integers(found[0]) if found else []
    if found is None or not columns:
        return None
    column = catalog.rng.choice(columns)
    return f"ALTER TABLE {found[1]} ALTER COLUMN {column} TYPE int USING {column} + 100"


@action(
    "a column becomes wider, the result does not",
    "the type of a result column changes",
    f"the type of a result column changes{EVOLVED}",
    weight=0.5,
)
def widen(catalog: Catalog) -> str | None:
    found = catalog.some(("customers", "orders", "events"))
    columns = catalog.integers(found[0]) if found else []
    return f"ALTER TABLE {found[1]} ALTER COLUMN {columns[-1]} TYPE bigint" if found and columns else None


@action(weight=2)
def narrow_again(catalog: Catalog) -> str | None:
    found = catalog.some(("customers", "orders", "events"))
    wide = [c.name for c in catalog.columns(found[0]) if c.type == "int8"] if found else []
    return f"ALTER TABLE {found[1]} ALTER COLUMN {wide[0]} TYPE int" if found and wide else None


@action("a varchar becomes longer")
def lengthen(catalog: Catalog) -> str | None:
    now, column = catalog.table("customers"), catalog.column("customers", 7)
    length = catalog.rng.randrange(6, 30)
    return f"ALTER TABLE {now} ALTER COLUMN {column} TYPE varchar({length})" if now and column else None


@action("a collation changes, the order does not")
def change_collation(catalog: Catalog) -> str | None:
    now, column = catalog.table("customers"), catalog.column("customers", 2)
    if now is None or column is None:
        return None
    # Where the server has ICU or other locales, half of the time one whose order is really another one.
    others = catalog.names(
        "SELECT format('pg_catalog.%I', collname) FROM pg_collation WHERE collnamespace = 'pg_catalog'::regnamespace"
        " AND (collprovider = 'i' AND collname IN ('unicode', 'en-x-icu') OR collprovider = 'c' AND collname ~"
        " '^(en|de)_.*utf-?8$') ORDER BY 1 LIMIT 2"
    )
    collation = catalog.rng.choice(['"C"', '"default"', '"POSIX"', *others])
    return f"ALTER TABLE {now} ALTER COLUMN {column} TYPE text COLLATE {collation}"


@action("the expression of a generated column changes (since PostgreSQL 17)")
def set_expression(catalog: Catalog) -> str | None:
    now, column = catalog.table("orders"), catalog.column("orders", 4)
    if now is None or catalog.major < 17 or column is None:
        return None
    return f"ALTER TABLE {now} ALTER COLUMN doubled SET EXPRESSION AS ({column} * {catalog.rng.randrange(2, 6)})"


@action("a generated column becomes an ordinary one", weight=0.3)
def drop_expression(catalog: Catalog) -> str | None:
    now = catalog.table("orders")
    return now and f"ALTER TABLE {now} ALTER COLUMN doubled DROP EXPRESSION IF EXISTS"


# Tables


@action("a table is renamed", "a partitioned table is renamed", weight=2)
def rename_table(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    if found is None:
        return None
    new = found[0] if not found[1].endswith(f".{found[0]}") else f"renamed_{found[0]}"
    return f"ALTER TABLE {found[1]} RENAME TO {new}"


@action("a table has another name for a moment", weight=2)
def rename_write_and_rename_back(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    key = catalog.column(found[0], ROW_ID[found[0]]) if found else None
    if found is None or key is None:
        return None
    schema, _, name = found[1].partition(".")
    return transaction(
        f"ALTER TABLE {found[1]} RENAME TO aside",
        f"DELETE FROM {schema}.aside WHERE {key} % 41 = {catalog.rng.randrange(41)}",
        f"ALTER TABLE {schema}.aside RENAME TO {name}",
    )


@action("a table goes to another schema", "a partitioned table goes to another schema", weight=2)
def set_schema(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    if found is None:
        return None
    other = catalog.names("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'elsewhere%' LIMIT 1")
    return f"ALTER TABLE {found[1]} SET SCHEMA {other[0] if found[1].startswith('world.') and other else 'world'}"


@action("a schema is renamed", weight=2)
def rename_schema(catalog: Catalog) -> str | None:
    found = catalog.names("SELECT nspname FROM pg_namespace WHERE nspname IN ('elsewhere', 'elsewhere_2')")
    if len(found) != 1:
        return None
    return f"ALTER SCHEMA {found[0]} RENAME TO {'elsewhere' if found[0] == 'elsewhere_2' else 'elsewhere_2'}"


@action("a schema is dropped", weight=0.3)
def drop_schema(catalog: Catalog) -> str | None:
    found = catalog.names("SELECT nspname FROM pg_namespace WHERE nspname IN ('elsewhere', 'elsewhere_2')")
    return f"DROP SCHEMA {found[0]} CASCADE" if found else None


@action("a table is dropped", "a partitioned table is dropped", weight=0.3)
def drop_table(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    return found and f"DROP TABLE {found[1]} CASCADE"


@action("a table is dropped and created again", weight=0.3)
def drop_and_create_table(catalog: Catalog) -> str | None:
    found = catalog.some(("customers", "orders", "spare"))
    if found is None:
        return None
    aside = f"world.aside_{catalog.number()}"
    return transaction(
        f"CREATE TABLE {aside} (LIKE {found[1]} INCLUDING ALL)",
        f"DROP TABLE {found[1]} CASCADE",
        f"ALTER TABLE {aside} RENAME TO {found[1].partition('.')[2]}",
    )


@action("another table takes the name, and is meant", "another table takes the name, and is not meant", weight=0.5)
def swap_blue_and_green(catalog: Catalog) -> str | None:
    found = catalog.some(("customers", "orders", "spare"))
    if found is None:
        return None
    retired, (schema, _, _) = f"retired_{catalog.number()}", found[1].partition(".")
    return transaction(
        f"ALTER TABLE {found[1]} RENAME TO {retired}",
        f"CREATE TABLE {found[1]} (LIKE {schema}.{retired} INCLUDING ALL)",
    )


@action("a table is made unlogged")
def make_unlogged(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"ALTER TABLE {found[1]} SET UNLOGGED"


@action("a table leaves the publication and is made unlogged", weight=0.5)
def leave_and_make_unlogged(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and transaction(
        f"ALTER PUBLICATION {catalog.publication()} DROP TABLE {found[1]}", f"ALTER TABLE {found[1]} SET UNLOGGED"
    )


@action("a table gets inheritance children", weight=0.5)
def inherit(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    return found and f"CREATE TABLE world.child_{catalog.number()} () INHERITS ({found[1]})"


@action("a source becomes a partition", weight=0.5)
def attach_a_source(catalog: Catalog) -> str | None:
    root, spare = catalog.table("notes"), catalog.table("spare")
    return f"ALTER TABLE {root} ATTACH PARTITION {spare} FOR VALUES IN (77)" if root and spare else None


@action("row security is switched on")
def switch_row_security(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    return found and f"ALTER TABLE {found[1]} {catalog.rng.choice(['ENABLE', 'DISABLE'])} ROW LEVEL SECURITY"


@action("the owner of the stream table loses the right to read")
def change_rights(catalog: Catalog) -> str | None:
    found = catalog.some(("orders", "customers"))
    change = catalog.rng.choice(["REVOKE SELECT ON {} FROM {}", "GRANT SELECT ON {} TO {}"])
    return found and change.format(found[1], AUTHOR)


# Types


@action("a type is renamed")
def rename_type(catalog: Catalog) -> str | None:
    now = catalog.type("mood")
    return now and f"ALTER TYPE {now} RENAME TO {'mood' if not now.endswith('.mood') else 'temper'}"


@action("a type goes to another schema", "a domain goes to another schema")
def move_type(catalog: Catalog) -> str | None:
    kind, name = catalog.rng.choice([("TYPE", "mood"), ("DOMAIN", "price")])
    now, other = catalog.type(name), catalog.names("SELECT 1 FROM pg_namespace WHERE nspname = 'elsewhere'")
    if now is None or not (other or not now.startswith("world.")):
        return None
    return f"ALTER {kind} {now} SET SCHEMA {'elsewhere' if now.startswith('world.') else 'world'}"


@action("a type is dropped, with its columns", weight=0.1)
def drop_type(catalog: Catalog) -> str | None:
    now = catalog.type("address")
    return now and f"DROP TYPE {now} CASCADE"


@action("a label of an enum is renamed", "a label that the query names is renamed", weight=2)
def rename_label(catalog: Catalog) -> str | None:
    labels = catalog.names("SELECT enumlabel FROM pg_enum WHERE enumtypid = %s::int8::oid", catalog.oid("mood"))
    if not labels:
        return None
    old = catalog.rng.choice(labels)
    new = old.removesuffix("!") if old.endswith("!") else f"{old}!"
    return f"ALTER TYPE {catalog.type('mood')} RENAME VALUE '{old}' TO '{new}'"


@action("a label is added", "a label is added before others")
def add_label(catalog: Catalog) -> str | None:
    now, labels = (
        catalog.type("mood"),
        catalog.names(
            "SELECT quote_literal(enumlabel) FROM pg_enum WHERE enumtypid = %s::int8::oid", catalog.oid("mood")
        ),
    )
    place = f" BEFORE {catalog.rng.choice(labels)}" if labels and catalog.rng.random() < 0.5 else ""
    return now and f"ALTER TYPE {now} ADD VALUE 'l{catalog.number()}'{place}"


@action("a domain is restricted", "a default or NOT NULL of a domain comes and goes")
def restrict_domain(catalog: Catalog) -> str | None:
    now = catalog.type("price")
    kinds = [f"ADD CONSTRAINT p{catalog.number()} CHECK (VALUE >= 0)", "SET DEFAULT 1", "DROP DEFAULT", "DROP NOT NULL"]
    return now and f"ALTER DOMAIN {now} {catalog.rng.choice(kinds)}"


@action("a domain is renamed")
def rename_domain(catalog: Catalog) -> str | None:
    now = catalog.type("price")
    return now and f"ALTER DOMAIN {now} RENAME TO {'price' if not now.endswith('.price') else 'cost'}"


@action(
    "a composite type gets an attribute",
    "a composite type loses an attribute",
    "an attribute of a composite type has another type",
    weight=0.5,
)
def add_attribute(catalog: Catalog) -> str | None:
    now = catalog.type("address")
    added = catalog.names(
        "SELECT a.attname FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid WHERE t.oid = %s::int8::oid"
        " AND a.attname ~ '^a[0-9]+$' AND NOT a.attisdropped",
        catalog.oid("address"),
    )
    kinds = [f"ADD ATTRIBUTE a{catalog.number()} int"]
    kinds += [
        f"{kind} ATTRIBUTE {name}{rest}" for name in added for kind, rest in (("DROP", ""), ("ALTER", " TYPE text"))
    ]
    return now and f"ALTER TYPE {now} {catalog.rng.choice(kinds)}"


@action("an attribute of a composite type is renamed")
def rename_attribute(catalog: Catalog) -> str | None:
    now = catalog.type("address")
    names = catalog.names(
        "SELECT quote_ident(a.attname) FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid"
        " WHERE t.oid = %s::int8::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        catalog.oid("address"),
    )
    if now is None or not names:
        return None
    old = names[0]
    return f"ALTER TYPE {now} RENAME ATTRIBUTE {old} TO {old.removesuffix('_r') if old.endswith('_r') else old + '_r'}"


# Views and functions


@action("a view is renamed")
def rename_view(catalog: Catalog) -> str | None:
    found = catalog.some(("big_orders", "bigger_orders"))
    if found is None:
        return None
    return f"ALTER VIEW {found[1]} RENAME TO {found[0] if found[1] != f'world.{found[0]}' else f'seen_{found[0]}'}"


@action("a view goes to another schema", "a default of a view's column", "a view becomes a security barrier")
def alter_view(catalog: Catalog) -> str | None:
    found = catalog.some(("big_orders", "bigger_orders"))
    columns = catalog.columns(found[0]) if found else []
    if found is None or not columns:
        return None
    kinds = [
        f"ALTER COLUMN {columns[-1].name} SET DEFAULT 1",
        f"SET (security_barrier = {catalog.rng.choice(['true', 'false'])})",
    ]
    if catalog.names("SELECT 1 FROM pg_namespace WHERE nspname = 'elsewhere'") or not found[1].startswith("world."):
        kinds.append(f"SET SCHEMA {'elsewhere' if found[1].startswith('world.') else 'world'}")
    return f"ALTER VIEW {found[1]} {catalog.rng.choice(kinds)}"


@action("a column of a view is renamed")
def rename_column_of_a_view(catalog: Catalog) -> str | None:
    found = catalog.some(("big_orders", "bigger_orders"))
    columns = catalog.columns(found[0]) if found else []
    if found is None or not columns:
        return None
    old = columns[-1].name
    return (
        f"ALTER VIEW {found[1]} RENAME COLUMN {old} TO {old.removesuffix('_s') if old.endswith('_s') else old + '_s'}"
    )


def _text_of_view(catalog: Catalog) -> tuple[str, str] | None:
    """The name of the upper view, and its query as PostgreSQL prints it now."""
    now = catalog.table("bigger_orders")
    found = catalog.names("SELECT pg_get_viewdef(%s::int8::oid)", catalog.oid("bigger_orders")) if now else []
    return (now, found[0].replace("\n", " ").rstrip("; ")) if now and found else None


@action("a view is replaced by one that means the same")
def replace_view_by_the_same(catalog: Catalog) -> str | None:
    found = _text_of_view(catalog)
    if found is None:
        return None
    return f"CREATE OR REPLACE VIEW {found[0]} AS SELECT * FROM ({found[1]}) AS a{catalog.number()}"


@action("a view is replaced", f"a view is replaced{EVOLVED}", weight=2)
def replace_view(catalog: Catalog) -> str | None:
    found, key = _text_of_view(catalog), catalog.columns("bigger_orders")
    if found is None or not key:
        return None
    base = catalog.table("big_orders")
    below = [c.name for c in catalog.columns("big_orders")]
    if base is None or len(below) < 4:
        return None
    names = ", ".join(f"{old} AS {new.name}" for old, new in zip((below[0], below[1], below[3]), key, strict=False))
    chosen = f"{below[0]} % {catalog.rng.randrange(2, 5)} = 0"
    return f"CREATE OR REPLACE VIEW {found[0]} AS SELECT {names} FROM {base} WHERE {chosen}"


@action("a view is dropped", weight=0.3)
def drop_view(catalog: Catalog) -> str | None:
    now = catalog.table("bigger_orders")
    return now and f"DROP VIEW {now} CASCADE"


@action("a view is dropped and created again", weight=0.3)
def drop_and_create_view(catalog: Catalog) -> str | None:
    found = _text_of_view(catalog)
    return found and transaction(f"DROP VIEW {found[0]} CASCADE", f"CREATE VIEW {found[0]} AS {found[1]}")


@action(
    "a function is replaced",
    f"a function is replaced{EVOLVED}",
    "a function is replaced (mode DIFFERENTIAL)",
    "a function is replaced (mode FULL)",
    weight=2,
)
def replace_function(catalog: Catalog) -> str | None:
    now, factor = catalog.function(), catalog.rng.randrange(2, 6)
    return now and f"CREATE OR REPLACE FUNCTION {now}(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * {factor}'"


@action("the cost of a function", "a function goes to another schema")
def alter_function(catalog: Catalog) -> str | None:
    now = catalog.function()
    # Not to another schema that is there at times: the other actions know it in this one.
    kinds = ["COST 5", "COST 50", "SET SCHEMA world"]
    return now and f"ALTER FUNCTION {now}(int) {catalog.rng.choice(kinds)}"


@action("a function is renamed")
def rename_function(catalog: Catalog) -> str | None:
    now = catalog.function()
    return now and f"ALTER FUNCTION {now}(int) RENAME TO {'weight' if now != 'world.weight' else 'heft'}"


@action("a function is dropped", weight=0.3)
def drop_function(catalog: Catalog) -> str | None:
    now = catalog.function()
    return now and f"DROP FUNCTION {now}(int) CASCADE"


# Partitions


@action(
    "a partition is detached",
    "a partition is detached concurrently",
    "a partition of a partition is detached",
    weight=3,
)
def detach(catalog: Catalog) -> str | None:
    leaves = [found for name in PARTITIONED for found in catalog.leaves(name)]
    if len(leaves) < 4:
        return None
    parent, leaf = catalog.rng.choice(leaves)
    return f"ALTER TABLE {parent} DETACH PARTITION {leaf}{catalog.rng.choice(['', '', ' CONCURRENTLY'])}"


def _attachment(name: str, now: str, leaf: str) -> str:
    """Return the statement that attaches a table under the bounds that its name tells."""
    parts = leaf.rpartition(".")[2].removeprefix(f"{name}_").split("_")
    digit = next((d for d in parts[0] if d.isdigit()), "9")
    if len(parts) > 1:
        bounds = "DEFAULT" if parts[1] == "x" else f"FOR VALUES IN ('{parts[1]}')"
        return f"ALTER TABLE {leaf.rpartition('_')[0]} ATTACH PARTITION {leaf} {bounds}"
    if name == "events":
        return f"ALTER TABLE {now} ATTACH PARTITION {leaf} FOR VALUES FROM ({digit}00) TO ({int(digit) + 1}00)"
    return f"ALTER TABLE {now} ATTACH PARTITION {leaf} {'DEFAULT' if parts[0] == 'x' else f'FOR VALUES IN ({digit})'}"


@action("a table with rows is attached", "a partition of partitions is attached", weight=5)
def attach_again(catalog: Catalog) -> str | None:
    for name in catalog.rng.sample(PARTITIONED, 2):
        now, loose = catalog.table(name), catalog.loose(name)
        if now is not None and loose:
            return _attachment(name, now, catalog.rng.choice(loose))
    return None


@action("a partition is detached, written to and attached again")
def detach_write_and_attach(catalog: Catalog) -> str | None:
    now, column = catalog.table("notes"), catalog.column("notes", 3)
    leaves = [(parent, leaf) for parent, leaf in catalog.leaves("notes") if "notes_" in leaf]
    if now is None or column is None or not leaves:
        return None
    parent, leaf = catalog.rng.choice(leaves)
    bound = catalog.names("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = %s::regclass", leaf)[0]
    return transaction(
        f"ALTER TABLE {parent} DETACH PARTITION {leaf}",
        f"UPDATE {leaf} SET {column} = {column} + 1000",
        f"ALTER TABLE {parent} ATTACH PARTITION {leaf} {bound}",
    )


@action(weight=2)
def write_detached(catalog: Catalog) -> str | None:
    loose, column = catalog.loose("notes"), catalog.column("notes", 3)
    return f"UPDATE {catalog.rng.choice(loose)} SET {column} = {column} + 1000" if loose and column else None


@action("a table with rows is attached", weight=2)
def attach_filled(catalog: Catalog) -> str | None:
    now, names = catalog.table("events"), [catalog.column("events", number) for number in (1, 2, 4)]
    if now is None or None in names:
        return None
    low = 100 * catalog.rng.randrange(3, 9)
    new, columns = f"world.events_{low // 100}", ", ".join(str(name) for name in names)
    return transaction(
        f"CREATE TABLE {new} (LIKE {now} INCLUDING ALL)",
        f"INSERT INTO {new} ({columns}) SELECT {low} + i, 'f', {low} + i FROM generate_series(0, 9) i",
        f"ALTER TABLE {now} ATTACH PARTITION {new} FOR VALUES FROM ({low}) TO ({low + 100})",
    )


@action("a default partition is created", "a partition is made unlogged", weight=0.5)
def alter_partition(catalog: Catalog) -> str | None:
    now, leaves = catalog.table("events"), catalog.leaves("events")
    if now is None or not leaves:
        return None
    leaf = catalog.rng.choice(leaves)[1]
    kinds = [f"CREATE TABLE world.events_x PARTITION OF {now} DEFAULT"]
    kinds += [f"ALTER TABLE {leaf} SET {how}" for how in ("UNLOGGED", "LOGGED", "LOGGED")]
    return catalog.rng.choice(kinds)


@action("a partition is created", weight=2)
def create_partition(catalog: Catalog) -> str | None:
    now, k = catalog.table("notes"), catalog.rng.randrange(2, 9)
    return now and f"CREATE TABLE world.notes_{k} PARTITION OF {now} FOR VALUES IN ({k + 100})"


@action(
    "a partition is truncated",
    "a partition is dropped",
    "a partition that has partitions is dropped",
    weight=3,
)
def change_one_partition(catalog: Catalog) -> str | None:
    leaves = [leaf for name in PARTITIONED for _, leaf in catalog.leaves(name)]
    if len(leaves) < 5:
        return None
    return f"{catalog.rng.choice(['TRUNCATE', 'TRUNCATE', 'DROP TABLE', 'DELETE FROM'])} {catalog.rng.choice(leaves)}"


@action("a partition is renamed, or goes to another schema")
def rename_partition(catalog: Catalog) -> str | None:
    leaves = [leaf for name in PARTITIONED for _, leaf in catalog.leaves(name)]
    if not leaves:
        return None
    leaf = catalog.rng.choice(leaves)
    if catalog.rng.random() < 0.5 and catalog.names("SELECT 1 FROM pg_namespace WHERE nspname = 'elsewhere'"):
        return f"ALTER TABLE {leaf} SET SCHEMA {'elsewhere' if leaf.startswith('world.') else 'world'}"
    return f"ALTER TABLE {leaf} RENAME TO {leaf.partition('.')[2]}z"


# Publications


@action("a table leaves the publication")
def leave_the_publication(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    return found and f"ALTER PUBLICATION {catalog.publication()} DROP TABLE {found[1]}"


@action(weight=2)
def join_the_publication(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    return found and f"ALTER PUBLICATION {catalog.publication()} ADD TABLE {found[1]}"


@action("a table leaves the publication and comes back")
def leave_and_come_back(catalog: Catalog) -> str | None:
    found = catalog.some(ALL)
    rows, name = some_rows(catalog) or "SELECT 1", catalog.publication()
    return found and transaction(
        f"ALTER PUBLICATION {name} DROP TABLE {found[1]}", rows, f"ALTER PUBLICATION {name} ADD TABLE {found[1]}"
    )


@action("a row filter", "a column list", weight=0.5)
def publish_in_part(catalog: Catalog) -> str | None:
    found = catalog.some(PLAIN)
    key = catalog.column(found[0], ROW_ID[found[0]]) if found else None
    if found is None or key is None:
        return None
    name, part = catalog.publication(), catalog.rng.choice([f"WHERE ({key} > 5)", f"({key})"])
    return transaction(
        f"ALTER PUBLICATION {name} DROP TABLE {found[1]}", f"ALTER PUBLICATION {name} ADD TABLE {found[1]} {part}"
    )


@action("not all actions are published", weight=0.1)
def publish_some_actions(catalog: Catalog) -> str | None:
    actions = catalog.rng.choice(["insert", "insert, update"])
    return f"ALTER PUBLICATION {catalog.publication()} SET (publish = '{actions}')"


@action("partitions are published via their root", weight=0.1)
def publish_via_root(catalog: Catalog) -> str | None:
    return f"ALTER PUBLICATION {catalog.publication()} SET (publish_via_partition_root = true)"


@action("the publication is renamed", weight=0.1)
def rename_publication(catalog: Catalog) -> str | None:
    name = catalog.publication()
    return f"ALTER PUBLICATION {name} RENAME TO {name}_too"


@action("the publication is dropped", weight=0.1)
def drop_publication(catalog: Catalog) -> str | None:
    return f"DROP PUBLICATION IF EXISTS {catalog.publication()}"


# Stream tables


@action()
def pause(catalog: Catalog) -> str | None:
    if catalog.names("SELECT 1 FROM pgtrickle.pgt_stream_tables WHERE status = 'PAUSED'"):
        return None
    return f"SELECT pgtrickle.pause_stream_table('world.{catalog.rng.choice(catalog.world.names)}')"


@action(weight=6)
def resume(catalog: Catalog) -> str | None:
    paused = catalog.names("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE status = 'PAUSED'")
    return f"SELECT pgtrickle.resume_stream_table('world.{paused[0]}')" if paused else None


@action()
def reinitialize(catalog: Catalog) -> str | None:
    name = catalog.rng.choice(catalog.world.names)
    return f"SELECT pgtrickle.reinitialize_stream_table('world.{name}', cascade => {catalog.rng.random() < 0.5})"
