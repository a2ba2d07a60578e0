"""Compares every stream table in its three places with its query at one LSN; PostgreSQL itself does the comparison.

The sources are locked against writes, so the LSN that is waited for is the one that the query sees. The rows of Delta
and of the topic are loaded into temporary tables with the stream table's own columns. Rows are compared as PostgreSQL
prints them, with duplicates, and columns by name, type, typmod and collation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from confluent_kafka import KafkaException
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from psycopg import sql

from deploy.local.stack import Addresses
from shared_schema.table_schema import TableId
from shared_schema.topics import escape_name, schemas_topic, table_topic
from tests.oracle.readers import Row, TopicReplay

SHOWN = 3
"""How many differing rows of each kind are shown."""

PLACES = ("PostgreSQL", "Delta", "topic")

_SOURCES = """
SELECT format('%I.%I', b.source_schema, b.source_name)
FROM pgtrickle.pgt_stream_tables s, pgtrickle._base_sources(s.pgt_id) b
JOIN pg_class c ON c.oid = b.source_relid AND c.relkind IN ('r', 'p') GROUP BY 1 ORDER BY 1
"""

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attcollation FROM pg_attribute
WHERE attrelid = {}::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@dataclass(frozen=True)
class Difference:
    """How one place differs: the first missing and the first unexpected rows, and the number of each."""

    table: TableId
    place: str
    missing: list[str]
    unexpected: list[str]
    lost: int
    doubled: int
    note: str = ""

    def __str__(self) -> str:
        rows = f"{self.lost} missing {self.missing}, {self.doubled} unexpected {self.unexpected}"
        return f"{self.table} in {self.place}: {self.note or rows}"


@dataclass
class Judgement:
    """The outcome: how much was compared, what differs, and which stream tables are suspended or not fresh."""

    tables: int = 0
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)
    suspended: dict[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether every stream table was compared and is equal everywhere."""
        return not self.differences and not self.suspended

    def __str__(self) -> str:
        wrong = [str(d) for d in self.differences] + [f"{n} is suspended: {why}" for n, why in self.suspended.items()]
        return "\n".join(wrong) or f"{self.rows} rows equal"


def judge(
    addresses: Addresses,
    names: Sequence[str] | None = None,
    *,
    places: Sequence[str] = PLACES,
    limit_s: float = 180.0,
    follow_s: float = 180.0,
    publication_prefix: str = "trickle_out",
) -> Judgement:
    """Wait until every stream table (or those in `names`) is fresh, and compare. Never raise for a difference.

    Delta and the topic have `follow_s` seconds to become equal.
    """
    outcome = Judgement()
    with psycopg.connect(addresses.database_url, autocommit=True) as connection, _lock_sources(connection):
        tables = [t for t in _tables(connection) if names is None or t.name in names]
        for table in tables:
            why = _wait(connection, table, limit_s)
            if why is not None:
                outcome.suspended[table.name] = why
                continue
            expected = _expect(connection, table)
            outcome.tables += 1
            outcome.rows += expected.rows
            comparison = Comparison(connection, table, expected.name)
            if "PostgreSQL" in places:
                _note(outcome, comparison.compare_columns(sql.Identifier(table.schema, table.name)))
                _note(outcome, comparison.compare(sql.Identifier(table.schema, table.name), "PostgreSQL"))
            if "topic" in places:
                replay = TopicReplay(
                    addresses.kafka_bootstrap,
                    table_topic(publication_prefix, table),
                    schemas_topic(publication_prefix),
                )
                _note(outcome, _eventually(lambda r=replay, c=comparison: _topic(c, r), follow_s))  # type: ignore[misc]
            if "Delta" in places:
                path = f"{addresses.delta_root}/{escape_name(table.schema)}/{escape_name(table.name)}"
                _note(outcome, _eventually(lambda p=path, c=comparison: _delta(c, p), follow_s))  # type: ignore[misc]
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(expected.name)))
    return outcome


@contextmanager
def _lock_sources(connection: psycopg.Connection[Row]) -> Iterator[None]:
    with connection.transaction():
        for (source,) in connection.execute(_SOURCES.encode()).fetchall():
            connection.execute(f"LOCK TABLE {source} IN SHARE MODE".encode())
        yield


def _tables(connection: psycopg.Connection[Row]) -> list[TableId]:
    found = connection.execute(
        "SELECT pgt_schema, pgt_name FROM pgtrickle.pgt_stream_tables WHERE status <> 'PAUSED' ORDER BY pgt_id"
    )
    return [TableId(*row) for row in found.fetchall()]


def _wait(connection: psycopg.Connection[Row], table: TableId, limit_s: float) -> str | None:
    """Wait until a stream table is fresh; return None, or the reason why it is not."""
    try:
        with connection.transaction():
            connection.execute(
                "SELECT pgtrickle.wait_for(%s, timeout => make_interval(secs => %s))", (table.quoted, limit_s)
            )
    except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.QueryCanceled) as error:
        return str(error).splitlines()[0]
    return None


@dataclass(frozen=True)
class _Expected:
    name: str
    rows: int


def _expect(connection: psycopg.Connection[Row], table: TableId) -> _Expected:
    found = connection.execute(
        "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = %s AND pgt_name = %s",
        (table.schema, table.name),
    ).fetchone()
    assert found is not None
    name = "oracle_expects"
    query = str(found[0]).rstrip().rstrip(";")
    made = connection.execute(sql.SQL("CREATE TEMP TABLE {} AS {}").format(sql.Identifier(name), sql.SQL(query)))
    return _Expected(name, made.rowcount)


@dataclass
class Comparison:
    """Compares rows with the expected rows, which are in a temporary table of this connection."""

    connection: psycopg.Connection[Row]
    table: TableId
    expected: str

    def compare_columns(self, found: sql.Composable) -> Difference | None:
        """Compare names, types, typmods and collations of the columns."""
        want, have = (self._columns(c) for c in (sql.Identifier(self.expected), found))
        return None if want == have else self.different("PostgreSQL", f"columns {have} instead of {want}")

    def compare(self, found: sql.Composable, place: str) -> Difference | None:
        """Compare rows as PostgreSQL prints them, with duplicates."""
        sides = {"e": sql.Identifier(self.expected), "f": found}
        missing, lost = self._only("{e}", "{f}", sides)
        unexpected, doubled = self._only("{f}", "{e}", sides)
        if not lost and not doubled:
            return None
        return Difference(self.table, place, missing, unexpected, lost, doubled)

    def compare_loaded(self, columns: Sequence[str], rows: Iterator[Row], place: str) -> Difference | None:
        """Load rows that are not in PostgreSQL into a temporary table and compare them."""
        names = [str(name) for name, _, _ in self._columns(sql.Identifier(self.expected))]
        if list(columns) != names:
            return self.different(place, f"columns {list(columns)} instead of {names}")
        there = sql.Identifier("oracle_found")
        self.connection.execute(sql.SQL("CREATE TEMP TABLE {} (LIKE {})").format(there, sql.Identifier(self.expected)))
        try:
            with self.connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(there)) as copy:
                for row in rows:
                    copy.write_row(row)
            return self.compare(there, place)
        finally:
            self.connection.execute(sql.SQL("DROP TABLE {}").format(there))

    def different(self, place: str, note: str) -> Difference:
        return Difference(self.table, place, [], [], 0, 0, note)

    def _columns(self, relation: sql.Composable) -> list[Row]:
        name = sql.Literal(relation.as_string(self.connection))
        return self.connection.execute(sql.SQL(_COLUMNS).format(name)).fetchall()

    def _only(self, left: str, right: str, sides: dict[str, sql.Composable]) -> tuple[list[str], int]:
        query = (
            f"WITH only_here AS (SELECT (a.*)::text AS row FROM {left} a EXCEPT ALL SELECT (b.*)::text FROM {right} b)"
            f" SELECT (SELECT count(*) FROM only_here), row FROM only_here ORDER BY row LIMIT {SHOWN}"
        )
        found = self.connection.execute(sql.SQL(query).format(**sides)).fetchall()
        return [str(row) for _, row in found], int(found[0][0]) if found else 0


def _topic(comparison: Comparison, replay: TopicReplay) -> Difference | None:
    try:
        rows = replay.catch_up()
    except (AssertionError, KafkaException) as error:
        return comparison.different("topic", str(error))
    if replay.stamps != sorted(set(replay.stamps)):
        doubled = len(replay.stamps) - len(set(replay.stamps))
        return comparison.different("topic", f"{doubled} stamps are repeated, or some are out of order")
    if not replay.columns:
        replay.columns = [str(n) for n, _, _ in comparison._columns(sql.Identifier(comparison.expected))]
    return comparison.compare_loaded(replay.columns, rows.elements(), "topic")


def _delta(comparison: Comparison, path: str) -> Difference | None:
    try:
        table = pa.table(DeltaTable(path).to_pyarrow_table())
    except (DeltaError, OSError) as error:
        return comparison.different("Delta", str(error))
    columns: list[list[Any]] = [table[name].to_pylist() for name in table.column_names]
    return comparison.compare_loaded(table.column_names, zip(*columns, strict=True), "Delta")


def _eventually(look: Callable[[], Difference | None], limit_s: float) -> Difference | None:
    """Repeat the comparison until it finds no difference or the time is up; Delta and the topic lag PostgreSQL."""
    deadline = time.monotonic() + limit_s
    while (found := look()) is not None and time.monotonic() < deadline:
        time.sleep(0.3)
    return found


def _note(outcome: Judgement, found: Difference | None) -> None:
    if found is not None:
        outcome.differences.append(found)
