"""The schema of the DDL fuzz: tables, partitions, views, types, a function, and stream tables over them.

Every stream table has an *oracle*: a view of the same query. PostgreSQL itself makes it follow what happens to its
sources, by identity, as a stream table has to. Where a view forbids a change, or goes with what was dropped, the oracle
is made again from the text that it had; if that is not possible any more, the stream table must be marked.

Only where a stream table follows new columns of a `*` no view says what it should be. Then the oracle is written from
the numbers of the columns of its source: never from the text that is stored of the stream table, which may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[object, ...]]

PLAIN, PARTITIONED = ("customers", "orders", "spare"), ("events", "notes")

SCHEMAS = "CREATE SCHEMA IF NOT EXISTS world; CREATE SCHEMA IF NOT EXISTS elsewhere"

OBJECTS = {
    "mood": "CREATE TYPE world.mood AS ENUM ('sad', 'ok', 'glad')",
    "address": "CREATE TYPE world.address AS (street text, number int)",
    "price": "CREATE DOMAIN world.price AS numeric(12,2)",
    "customers": "CREATE TABLE world.customers (id int PRIMARY KEY, name text NOT NULL, region text, m world.mood,"
    " credit int, home world.address, code varchar(6))",
    "orders": "CREATE TABLE world.orders (id int PRIMARY KEY, customer int, amount world.price, v int, w int,"
    " doubled int GENERATED ALWAYS AS (v * 2) STORED)",
    "spare": "CREATE TABLE world.spare (k int, body text, n int)",
    "events": "CREATE TABLE world.events (at int, kind text, v int, id int, PRIMARY KEY (at, kind, id))"
    " PARTITION BY RANGE (at)",
    "notes": "CREATE TABLE world.notes (k int, body text, n int) PARTITION BY LIST (k)",
    "weight": "CREATE FUNCTION world.weight(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'",
    "big_orders": "CREATE VIEW world.big_orders AS SELECT id, customer, amount, v FROM world.orders WHERE v > 3",
    "bigger_orders": "CREATE VIEW world.bigger_orders AS SELECT id, customer, v FROM world.big_orders WHERE v > 5",
}
"""What the fuzz alters, in the order in which it is created."""

VIEWS = ("big_orders", "bigger_orders")

LEAVES = {
    "events": """
CREATE TABLE world.events_0 PARTITION OF world.events FOR VALUES FROM (0) TO (100);
CREATE TABLE world.events_1 PARTITION OF world.events FOR VALUES FROM (100) TO (200);
CREATE TABLE world.events_2 PARTITION OF world.events FOR VALUES FROM (200) TO (300) PARTITION BY LIST (kind);
CREATE TABLE world.events_2_a PARTITION OF world.events_2 FOR VALUES IN ('a');
CREATE TABLE world.events_2_x PARTITION OF world.events_2 DEFAULT
""",
    "notes": """
CREATE TABLE world.notes_0 PARTITION OF world.notes FOR VALUES IN (0);
CREATE TABLE world.notes_1 PARTITION OF world.notes FOR VALUES IN (1);
CREATE TABLE world.notes_x PARTITION OF world.notes DEFAULT
""",
}

ROWS = {
    "customers": "INSERT INTO world.customers SELECT i, 'c' || i, (ARRAY['n', 's', NULL])[1 + i % 3],"
    " (enum_range(NULL::world.mood))[1 + i % 3], i, row('s', i)::world.address, 'k' || i FROM generate_series(1, 30) i",
    "orders": "INSERT INTO world.orders (id, customer, amount, v, w) SELECT i, 1 + i % 30, i * 1.5, i % 10, i % 7"
    " FROM generate_series(1, 200) i",
    "spare": "INSERT INTO world.spare SELECT 77, 'sp', i FROM generate_series(1, 9) i",
    "events": "INSERT INTO world.events SELECT i % 300, (ARRAY['a', 'b', 'c'])[1 + i % 3], i % 11, i"
    " FROM generate_series(1, 300) i",
    "notes": "INSERT INTO world.notes SELECT i % 4, 'n' || i % 5, i FROM generate_series(1, 60) i",
}

AUTHOR = "fuzz_author"
"""Owns `st_authored`, so that its right to read can be revoked."""


@dataclass(frozen=True)
class Definition:
    """The query of a stream table and its options."""

    query: str
    mode: str = "AUTO"
    evolves: bool = False
    owner: str = ""


DEFINITIONS = {
    "st_orders": Definition("SELECT id, v, w FROM world.orders WHERE v > 2"),
    "st_sums": Definition(
        "SELECT customer, count(*) AS n, sum(v) AS s, sum(w) AS t FROM world.orders GROUP BY customer"
    ),
    "st_star": Definition("SELECT * FROM world.customers"),
    "st_moods": Definition("SELECT m, count(*) AS n, max(credit) AS top FROM world.customers GROUP BY m"),
    "st_sad": Definition("SELECT id, name FROM world.customers WHERE m = 'sad'::world.mood"),
    "st_joined": Definition(
        "SELECT o.id, c.name, o.amount FROM world.orders o JOIN world.customers c ON c.id = o.customer"
    ),
    "st_absent": Definition(
        "SELECT c.id, c.region FROM world.customers c WHERE c.credit NOT IN (SELECT o.w FROM world.orders o)"
    ),
    "st_events": Definition("SELECT kind, count(*) AS n, sum(v) AS s FROM world.events GROUP BY kind"),
    "st_event_rows": Definition("SELECT at, id, v FROM world.events WHERE v < 9"),
    "st_notes": Definition("SELECT k, count(*) AS n, sum(n) AS s FROM world.notes GROUP BY k"),
    "st_spare": Definition("SELECT n, body FROM world.spare"),
    "st_view": Definition("SELECT customer, sum(v) AS s FROM world.bigger_orders GROUP BY customer"),
    "st_function": Definition("SELECT id, world.weight(v) AS heavy FROM world.orders"),
    "st_generated": Definition("SELECT doubled, count(*) AS n FROM world.orders GROUP BY doubled"),
    "st_names": Definition(
        "SELECT region, min(name) AS first, count(DISTINCT name) AS n FROM world.customers GROUP BY region"
    ),
    "st_codes": Definition("SELECT count(*) AS n FROM world.customers WHERE code <> 'k1' AND credit > 3"),
    "st_homes": Definition("SELECT id, home FROM world.customers"),
    "st_streets": Definition("SELECT id, (home).street AS street FROM world.customers"),
    "st_prices": Definition("SELECT amount, count(*) AS n FROM world.orders GROUP BY amount"),
    "st_whole": Definition("SELECT region, count(*) AS n FROM world.customers GROUP BY region", mode="FULL"),
    "st_weights": Definition("SELECT id, world.weight(w) AS heavy FROM world.orders", mode="DIFFERENTIAL"),
    "st_full_weights": Definition("SELECT sum(world.weight(credit)) AS s FROM world.customers", mode="FULL"),
    "st_evolving": Definition("SELECT * FROM world.customers", evolves=True),
    "st_evolving_sums": Definition("SELECT customer, sum(w) AS t FROM world.orders GROUP BY customer", evolves=True),
    "st_evolving_view": Definition("SELECT customer, v FROM world.bigger_orders", evolves=True),
    "st_authored": Definition("SELECT id, amount FROM world.orders WHERE v < 5", owner=AUTHOR),
    "st_above": Definition("SELECT s, count(*) AS n FROM world.st_sums GROUP BY s"),
    "st_both": Definition(
        "SELECT a.customer, a.n, b.s FROM world.st_sums a LEFT JOIN world.st_view b ON b.customer = a.customer"
    ),
}
BELOW = {"st_above": ("st_sums",), "st_both": ("st_sums", "st_view")}
"""Stream table -> the stream tables that it reads."""


STAR = re.compile(r"SELECT \* FROM (world\.\w+)")
"""A query of which the columns are those of one table."""


def oracle_text(query: str) -> str:
    """Return a query over stream tables as one over their oracles."""
    return re.sub(r"\bst_", "oracle_st_", query).rstrip("; \n")


def query_text(oracle: str) -> str:
    """Return the text of an oracle as the query of a stream table."""
    return oracle.replace("oracle_st_", "st_").rstrip("; \n")


@dataclass
class Star:
    """What a `*` stands for: columns of one table by number, each with its name in the stream table, in order."""

    relid: int
    columns: list[tuple[int, str]]


@dataclass
class World:
    """The stream tables of a run and their oracles; `lost` are those whose query cannot be run any more."""

    connection: Connection
    texts: dict[str, str] = field(default_factory=dict)
    """Oracle or view -> its text, as PostgreSQL printed it last."""
    lost: dict[str, str] = field(default_factory=dict)
    stars: dict[str, Star] = field(default_factory=dict)
    """Stream table that follows new columns of a `*` -> the columns that it has."""
    oids: dict[str, int] = field(default_factory=dict)
    """Object of the schema -> its object id, whatever its name is now."""
    _named: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Table -> its schema and name after the last change."""

    @property
    def names(self) -> list[str]:
        """Return the stream tables that exist, in the order in which they read each other."""
        return [name for name in DEFINITIONS if name in self.texts]

    def build(self) -> None:
        """Drop what is there and create everything anew."""
        self.drop()
        self.connection.execute(SCHEMAS.encode())
        for name in OBJECTS:
            self._create_object(name)
        self._give_rights()
        for name, definition in DEFINITIONS.items():
            self.create(name, definition.query)

    def _create_object(self, name: str) -> None:
        if name in LEAVES:
            # Partitions that were detached are in the way.
            rows = self.connection.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'world'::regnamespace AND NOT"
                " relispartition AND relkind IN ('r', 'p') AND relname LIKE %s",
                (f"{name}\\_%",),
            ).fetchall()
            for (leaf,) in rows:
                self.connection.execute(f"DROP TABLE {leaf} CASCADE".encode())
        self.connection.execute(OBJECTS[name].encode())
        self.connection.execute("; ".join([LEAVES.get(name, ""), ROWS.get(name, "")]).strip("; ").encode())
        self._find_oid(name)

    def _find_oid(self, name: str) -> None:
        found = self.connection.execute(
            "SELECT coalesce(to_regclass(%(n)s)::oid, to_regtype(%(n)s)::oid, to_regproc(%(n)s)::oid)::int8",
            {"n": f"world.{name}"},
        ).fetchall()
        self.oids[name] = int(str(found[0][0]))
        self._named[name] = "world", name

    def _give_rights(self) -> None:
        self.connection.execute(f"GRANT USAGE, CREATE ON SCHEMA world, elsewhere TO {AUTHOR}".encode())
        self.connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA world, elsewhere TO {AUTHOR}".encode())

    def create(self, name: str, query: str) -> None:
        """Create a stream table and its oracle; an oracle reads the oracles of the stream tables that it reads."""
        definition = DEFINITIONS[name]
        self.connection.execute(
            "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s, auto_evolve => %s)",
            (f"world.{name}", query, definition.mode, definition.evolves),
        )
        if definition.owner:
            self.connection.execute(f"ALTER TABLE world.{name} OWNER TO {definition.owner}".encode())
        self.set_oracle(name, oracle_text(query))
        self.stars.pop(name, None)
        if definition.evolves and (star := STAR.fullmatch(query)):
            relid = int(str(self.connection.execute("SELECT %s::regclass::int8", (star[1],)).fetchall()[0][0]))
            self.stars[name] = Star(relid, self._columns(relid))

    def count_columns(self, name: str) -> int:
        """Return how many columns a stream table has now."""
        found = self.connection.execute("SELECT to_regclass(%s)::int8", (f"world.{name}",)).fetchall()[0][0]
        return 0 if found is None else len(self._columns(int(str(found))))

    def pin_star(self, name: str) -> bool:
        """Write the oracle of a stream table over `*` from the present catalog of its source -> whether it can be.

        Columns that the stream table has got since the last time are the next ones of the source, in their order.
        """
        star = self.stars[name]
        present = dict(self._columns(star.relid))
        if not {number for number, _ in star.columns} <= present.keys():
            return False
        further = sorted(number for number in present if number > max(known for known, _ in star.columns))
        own = self._columns(
            int(str(self.connection.execute(f"SELECT 'world.{name}'::regclass::int8").fetchall()[0][0]))
        )
        added = own[len(star.columns) :]
        if len(own) < len(star.columns) or len(added) > len(further):
            return False
        star.columns += [(number, out) for number, (_, out) in zip(further, added, strict=False)]
        ((source,),) = self.connection.execute("SELECT %s::int8::oid::regclass::text", (star.relid,)).fetchall()
        columns = sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(sql.Identifier(present[number]), sql.Identifier(out))
            for number, out in star.columns
        )
        self.set_oracle(name, sql.SQL("SELECT {} FROM ").format(columns).as_string(self.connection) + str(source))
        return name not in self.lost

    def _columns(self, relid: int) -> list[tuple[int, str]]:
        rows = self.connection.execute(
            "SELECT attnum, attname FROM pg_attribute"
            " WHERE attrelid = %s::int8::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (relid,),
        ).fetchall()
        return [(int(str(number)), str(column)) for number, column in rows]

    def set_oracle(self, name: str, text: str) -> None:
        """Make the oracle of a stream table anew, and those that read it."""
        self.texts[name] = text
        self.connection.execute(f"DROP VIEW IF EXISTS world.oracle_{name} CASCADE".encode())
        self.lost.pop(name, None)
        self._make_missing()

    def drop(self) -> None:
        """Drop all stream tables and everything under them."""
        self.texts, self.lost, self.stars, self.oids = {}, {}, {}, {}
        rows = self.connection.execute(
            "SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id DESC"
        ).fetchall()
        for (name,) in rows:
            self.connection.execute("SELECT pgtrickle.drop_stream_table(%s, cascade => true)", (name,))
        self.connection.execute("DROP SCHEMA IF EXISTS world, elsewhere, elsewhere_2 CASCADE")

    def change(self, text: str) -> str:
        """Run a change -> '' or why PostgreSQL refused it. Oracles that stand in its way are made again after it."""
        refused = self._attempt(text)
        if isinstance(refused, psycopg.errors.DependentObjectsStillExist | psycopg.errors.FeatureNotSupported):
            for name in reversed(self.names):
                self.connection.execute(f"DROP VIEW IF EXISTS world.oracle_{name} CASCADE".encode())
            refused = self._attempt(text)
        self._make_missing()
        self._adopt()
        if isinstance(refused, psycopg.errors.QueryCanceled):
            raise TimeoutError(f"PostgreSQL did not finish: {text}")
        return "" if refused is None else str(refused).splitlines()[0]

    def _attempt(self, text: str) -> psycopg.Error | None:
        try:
            self.connection.execute(text.encode())
        except psycopg.Error as error:
            if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.connection.execute("ROLLBACK")
            return error
        return None

    def _make_missing(self) -> None:
        """Make the oracles that are not there from the text that they had, and remember the text of the others."""
        rows = self.connection.execute(
            "SELECT substr(relname, 8), pg_get_viewdef(oid) FROM pg_class WHERE relkind = 'v'"
            " AND relnamespace = 'world'::regnamespace AND relname LIKE 'oracle\\_%'"
        ).fetchall()
        printed = {str(name): str(text) for name, text in rows}
        for name in self.names:
            if name in printed:
                self.texts[name] = printed[name]
            else:
                self._make_oracle(name)

    def _make_oracle(self, name: str) -> None:
        try:
            self.connection.execute(f"CREATE VIEW world.oracle_{name} AS {self.texts[name]}".encode())
        except psycopg.Error as error:
            self.lost[name] = str(error).splitlines()[0]
        else:
            self.lost.pop(name, None)

    def _adopt(self) -> None:
        """Go on with the table that has taken the name of another one."""
        for name, (schema, table) in self._named.items():
            owner = self.connection.execute(
                "SELECT c.oid::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = %s AND c.relname = %s",
                (schema, table),
            ).fetchall()
            if owner and name in (*PLAIN, *PARTITIONED):
                self.oids[name] = int(str(owner[0][0]))
        rows = self.connection.execute(
            "SELECT c.oid::int8, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = ANY (%s::int8[]::oid[])",
            (list(self.oids.values()),),
        ).fetchall()
        where = {int(str(oid)): (str(schema), str(table)) for oid, schema, table in rows}
        self._named = {name: where[oid] for name, oid in self.oids.items() if oid in where}

    def heal(self) -> None:
        """Undo what keeps stream tables from being repaired, and create what is missing."""
        for statement in self._to_undo():
            self.connection.execute(statement.encode())
        self.connection.execute(SCHEMAS.encode())
        for name in OBJECTS:
            if not self._exists(name):
                self._create_object(name)
        self._give_rights()
        self._adopt()
        self._make_missing()

    def _exists(self, name: str) -> bool:
        found = self.connection.execute(
            "SELECT EXISTS (SELECT FROM pg_class WHERE oid = %(o)s::int8::oid)"
            " OR EXISTS (SELECT FROM pg_type WHERE oid = %(o)s::int8::oid)"
            " OR EXISTS (SELECT FROM pg_proc WHERE oid = %(o)s::int8::oid)",
            {"o": self.oids.get(name, 0)},
        ).fetchall()
        return bool(found[0][0])

    def _to_undo(self) -> Iterator[str]:
        def found(query: str) -> list[str]:
            return [str(row[0]) for row in self.connection.execute(query.encode()).fetchall()]

        def tables(statement: str, condition: str) -> list[str]:
            return found(
                f"SELECT format('{statement}', c.oid::regclass) FROM pg_class c JOIN pg_namespace n ON n.oid ="
                f" c.relnamespace WHERE n.nspname IN ('world', 'elsewhere', 'elsewhere_2') AND {condition}"
            )

        publication = found("SELECT quote_ident(pgtrickle._setting('publication'))")[0]
        if not found(f"SELECT 1 FROM pg_publication WHERE pubname = '{publication}'"):
            yield f"CREATE PUBLICATION {publication}"
        yield f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')"
        yield f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)"
        yield from found(
            f"SELECT format('ALTER PUBLICATION {publication} DROP TABLE %s', prrelid::regclass)"
            " FROM pg_publication_rel WHERE prqual IS NOT NULL OR prattrs IS NOT NULL"
        )
        yield from found(
            "SELECT format('ALTER TABLE %s DROP COLUMN %I CASCADE', a.attrelid::regclass, a.attname)"
            " FROM pg_attribute a"
            " JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname IN ('world', 'elsewhere', 'elsewhere_2') AND a.attgenerated = 'v' AND a.attinhcount = 0"
            " AND NOT a.attisdropped"
        )
        yield from tables("DROP TABLE %s", "c.relname LIKE 'child\\_%'")
        yield from tables("ALTER TABLE %s DISABLE ROW LEVEL SECURITY", "c.relrowsecurity")
        yield from tables("ALTER TABLE %s SET LOGGED", "c.relkind = 'r' AND c.relpersistence = 'u'")
        yield from found(
            "SELECT format('ALTER TABLE %s DETACH PARTITION %s', inhparent::regclass, inhrelid::regclass)"
            " FROM pg_inherits JOIN pg_class root ON root.oid = inhparent AND root.relkind = 'p'"
            f" WHERE inhrelid = {self.oids.get('spare', 0)}"
        )


@contextmanager
def as_superuser(connection: Connection) -> Iterator[None]:
    """Run the block as the superuser, whose sessions of a stack of roles act as another role."""
    role = str(connection.execute("SELECT current_user").fetchall()[0][0])
    connection.execute("SET ROLE postgres")
    try:
        yield
    finally:
        connection.execute(f"SET ROLE {role}".encode())
