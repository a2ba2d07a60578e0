"""Generates random schemas, queries and transactions as a workload in plain SQL. The same seed gives the same text.

Names begin with `zz_`, so that one database can hold many workloads under other prefixes. All queries have one defined
result (no order without a key, no sum of floats), are accepted, and use values on which no call fails. So every stream
table must stay ACTIVE, and a suspended one is a failure. The mode is DIFFERENTIAL, so that PostgreSQL does not compute
a refused query instead.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.workloads.workload import StreamTableQuery, Workload

PREFIX = "zz_"

TYPES = ("int", "bigint", "numeric(8,2)", "text", "boolean", "date", "timestamp", "varchar(6)", "smallint")
_VALUES = {
    "int": ["NULL", "0", "1", "-7", "42", "2147483647"],
    "bigint": ["NULL", "0", "-1", "9007199254740993"],
    "smallint": ["NULL", "0", "5", "-32768"],
    "numeric(8,2)": ["NULL", "0", "0.10", "-3.33", "999999.99"],
    "text": ["NULL", "''", "'a'", "'B'", "'ä ''q'' \\t'", "E'tab\\tnew\\nline'", "'NULL'"],
    "varchar(6)": ["NULL", "''", "'x '", "'x'"],
    "boolean": ["NULL", "true", "false"],
    "date": ["NULL", "'2024-02-29'", "'1999-12-31'"],
    "timestamp": ["NULL", "'2024-01-01 00:00:00.000001'", "'2023-06-30 23:59:59'"],
}
NUMBERS = ("int", "bigint", "numeric(8,2)", "smallint")


@dataclass(frozen=True)
class Table:
    """A random table: always with `k`, a small int to join on; `id` is its primary key when it has one."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keyed: bool

    @property
    def ddl(self) -> str:
        parts = [
            f"{name} {kind}" + (" PRIMARY KEY" if name == "id" and self.keyed else "") for name, kind in self.columns
        ]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


def generate(seed: int) -> Workload:
    """Return the workload of a seed."""
    return _Generator(random.Random(seed)).workload(seed)


class _Generator:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: list[Table] = []

    def workload(self, seed: int) -> Workload:
        c = self.chance
        for i in range(c.randint(2, 3)):
            extra = tuple((f"c{j}", c.choice(TYPES)) for j in range(c.randint(1, 4)))
            self.tables.append(Table(f"{PREFIX}t{i}", (("id", "int"), ("k", "int"), *extra), c.random() < 0.75))
        setup = [table.ddl for table in self.tables]
        setup += [self._insert(c.choice(self.tables), 12) for _ in range(4)]
        queries = [StreamTableQuery(f"{PREFIX}q{i}", self._query(), "DIFFERENTIAL") for i in range(c.randint(3, 5))]
        if c.random() < 0.5:
            chained = f"SELECT count(*) AS n FROM {c.choice(queries).name}"
            queries.append(StreamTableQuery(f"{PREFIX}chain", chained, "DIFFERENTIAL"))
        transactions = tuple((1, self._transaction()) for _ in range(c.randint(8, 16)))
        return Workload(f"random {seed}", ";\n".join(setup) + ";\n", tuple(queries), transactions)

    def _query(self) -> str:
        c = self.chance
        shapes = [self._scan, self._group, self._join, self._left, self._exists, self._set, self._window, self._top]
        return c.choice(shapes)()

    def _table(self, *, keyed: bool = False) -> Table:
        fitting = [t for t in self.tables if t.keyed or not keyed]
        return self.chance.choice(fitting or self.tables)

    def _column(self, table: Table, kinds: tuple[str, ...] = TYPES) -> str:
        return self.chance.choice([name for name, kind in table.columns if kind in kinds])

    def _condition(self, table: Table, alias: str) -> str:
        c = self.chance
        name, kind = c.choice(table.columns)
        value = c.choice([v for v in _VALUES[kind] if v != "NULL"])
        simple = f"{alias}.{name} {c.choice(['=', '<>', '<', '>='])} {value}"
        return c.choice([simple, f"{alias}.{name} IS {c.choice(['', 'NOT '])}NULL", f"({simple} OR {alias}.k > 1)"])

    def _scan(self) -> str:
        t = self._table()
        columns = self.chance.sample([n for n, _ in t.columns], self.chance.randint(1, len(t.columns)))
        distinct = self.chance.choice(["", "DISTINCT "])
        return f"SELECT {distinct}{', '.join(columns)} FROM {t.name} a WHERE {self._condition(t, 'a')}"

    def _aggregates(self, table: Table, alias: str) -> str:
        c = self.chance
        number = f"{alias}.{self._column(table, NUMBERS)}"
        any_column = f"{alias}.{self._column(table)}"
        plain = f"{alias}.{self._column(table, ('int', 'bigint', 'date', 'timestamp', 'numeric(8,2)'))}"
        choices = [
            "count(*) AS a0",
            f"count({any_column}) AS a1",
            f"sum({number}) AS a2",
            f"min({plain}) AS a3",
            f"max({plain}) AS a4",
            f"count(DISTINCT {any_column}) AS a5",
            f"sum({number}) FILTER (WHERE {self._condition(table, alias)}) AS a6",
        ]
        return ", ".join(c.sample(choices, c.randint(1, 3)))

    def _group(self) -> str:
        t = self._table()
        key = self._column(t)
        having = self.chance.choice(["", " HAVING count(*) > 1"])
        where = self.chance.choice(["", f" WHERE {self._condition(t, 'a')}"])
        return f"SELECT a.{key} AS g, {self._aggregates(t, 'a')} FROM {t.name} a{where} GROUP BY a.{key}{having}"

    def _join(self) -> str:
        a, b = self._table(), self._table()
        if self.chance.random() < 0.5:
            return (
                f"SELECT a.{self._column(a)} AS x, b.{self._column(b)} AS y, a.k FROM {a.name} a"
                f" JOIN {b.name} b ON b.k = a.k WHERE {self._condition(b, 'b')}"
            )
        return f"SELECT b.k AS g, {self._aggregates(a, 'a')} FROM {a.name} a JOIN {b.name} b ON b.k = a.k GROUP BY b.k"

    def _left(self) -> str:
        a, b = self._table(), self._table()
        kind = self.chance.choice(["LEFT", "FULL", "RIGHT"])
        residual = self.chance.choice(["", f" AND {self._condition(b, 'b')}"]) if kind == "LEFT" else ""
        return (
            f"SELECT a.{self._column(a)} AS x, b.{self._column(b)} AS y FROM {a.name} a {kind} JOIN {b.name} b"
            f" ON b.k = a.k{residual}"
        )

    def _exists(self) -> str:
        a, b = self._table(), self._table()
        negated = self.chance.choice(["", "NOT "])
        test = self.chance.choice(
            [
                f"{negated}EXISTS (SELECT FROM {b.name} b WHERE b.k = a.k)",
                f"a.k {negated}IN (SELECT b.k FROM {b.name} b)",
            ]
        )
        return f"SELECT a.{self._column(a)} AS x, a.k FROM {a.name} a WHERE {test}"

    def _set(self) -> str:
        a, b = self._table(), self._table()
        way = self.chance.choice(["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        return f"SELECT k, id FROM {a.name} WHERE k IS NOT NULL {way} SELECT k, id FROM {b.name}"

    def _window(self) -> str:
        t = self._table(keyed=True)
        if not t.keyed:
            return self._scan()
        call = self.chance.choice(
            ["row_number()", "rank()", "count(*)", f"sum(a.{self._column(t, NUMBERS)})", "lag(a.k)", "first_value(a.k)"]
        )
        return f"SELECT a.id, {call} OVER (PARTITION BY a.k ORDER BY a.{self._column(t)}, a.id) AS w FROM {t.name} a"

    def _top(self) -> str:
        t = self._table(keyed=True)
        if not t.keyed:
            return self._group()
        by = f"{self._column(t)} {self.chance.choice(['', 'DESC '])}NULLS {self.chance.choice(['FIRST', 'LAST'])}"
        if self.chance.random() < 0.4:
            return f"SELECT DISTINCT ON (k) k, id FROM {t.name} ORDER BY k, {by}, id"
        return f"SELECT id, k FROM {t.name} ORDER BY {by}, id LIMIT {self.chance.randint(1, 6)}"

    def _row(self, table: Table) -> str:
        c = self.chance
        values = [str(c.randint(1, 30)), c.choice(["NULL", "0", "1", "2", "3"])]
        return "(" + ", ".join(values + [c.choice(_VALUES[kind]) for _, kind in table.columns[2:]]) + ")"

    def _insert(self, table: Table, rows: int) -> str:
        conflict = " ON CONFLICT DO NOTHING" if table.keyed else ""
        return f"INSERT INTO {table.name} VALUES {', '.join(self._row(table) for _ in range(rows))}{conflict}"

    def _transaction(self) -> str:
        c = self.chance
        return ";\n".join(self._statement() for _ in range(c.choice([1, 1, 2, 4])))

    def _statement(self) -> str:
        c = self.chance
        t = c.choice(self.tables)
        some = f"id % {c.randint(2, 7)} = {c.randint(0, 2)}"
        name, kind = c.choice(t.columns[1:])
        value = c.choice(_VALUES[kind] if name != "k" else ["NULL", "1", "2"])
        update = f"UPDATE {t.name} SET {name} = {value} WHERE {some}"
        rolled_back = f"SAVEPOINT s; {self._insert(t, 2)}; ROLLBACK TO s"
        moved = f"UPDATE {t.name} SET id = id + 100 WHERE {some} AND id < 100"
        return c.choices(
            [
                self._insert(t, c.randint(1, 5)),
                update,
                f"DELETE FROM {t.name} WHERE {some}",
                rolled_back,
                moved,
                f"TRUNCATE {t.name}",
            ],
            [6, 5, 3, 1, 1, 0.3],
        )[0]
