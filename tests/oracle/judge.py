"""Every stream table in its three places against its query, at one position in the log, decided by PostgreSQL itself.

The sources are locked against writes, so the position that is waited for is the one the query sees. What Delta and the
topic hold is loaded into temporary tables with the stream table's own columns; rows are compared as PostgreSQL prints
them, with their number, and columns by name, type, typmod and collation.
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
"""Differing rows that are told, of each kind."""

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
    """What one place has otherwise: rows it lacks and rows too many, the first of each, and how many."""

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
    """The outcome: how much was compared, what differs, and which stream tables were out of service."""

    tables: int = 0
    rows: int = 0
    differences: list[Difference] = field(default_factory=list)
    suspended: dict[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether every stream table was judged and is right everywhere."""
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
    """Wait until every stream table (or those named) is fresh, and compare. Never raises for a difference.

    Delta and the topic get `follow_s` to become equal.
    """
    outcome = Judgement()
    with psycopg.connect(addresses.database_url, autocommit=True) as connection, _frozen(connection):
        tables = [t for t in _tables(connection) if names is None or t.name in names]
        for table in tables:
            why = _wait(connection, table, limit_s)
            if why is not None:
                outcome.suspended[table.name] = why
                continue
            expected = _expect(connection, table)
            outcome.tables += 1
            outcome.rows += expected.rows
            wanted = Counted(connection, table, expected.name)
            if "PostgreSQL" in places:
                _note(outcome, wanted.columns_of(sql.Identifier(table.schema, table.name)))
                _note(outcome, wanted.against(sql.Identifier(table.schema, table.name), "PostgreSQL"))
            if "topic" in places:
                replay = TopicReplay(
                    addresses.kafka_bootstrap,
                    table_topic(publication_prefix, table),
                    schemas_topic(publication_prefix),
                )
                _note(outcome, _eventually(lambda r=replay, w=wanted: _topic(w, r), follow_s))  # type: ignore[misc]
            if "Delta" in places:
                path = f"{addresses.delta_root}/{escape_name(table.schema)}/{escape_name(table.name)}"
                _note(outcome, _eventually(lambda p=path, w=wanted: _delta(w, p), follow_s))  # type: ignore[misc]
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(expected.name)))
    return outcome


@contextmanager
def _frozen(connection: psycopg.Connection[Row]) -> Iterator[None]:
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
    """None when it is fresh, otherwise why it is not."""
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
class Counted:
    """The expected rows, in a temporary table of this connection."""

    connection: psycopg.Connection[Row]
    table: TableId
    expected: str

    def columns_of(self, found: sql.Composable) -> Difference | None:
        """Names, types, typmods and collations."""
        want, have = (self._columns(c) for c in (sql.Identifier(self.expected), found))
        return None if want == have else self.different("PostgreSQL", f"columns {have} instead of {want}")

    def against(self, found: sql.Composable, place: str) -> Difference | None:
        """Rows as PostgreSQL prints them, with their number."""
        sides = {"e": sql.Identifier(self.expected), "f": found}
        missing, lost = self._only("{e}", "{f}", sides)
        unexpected, doubled = self._only("{f}", "{e}", sides)
        if not lost and not doubled:
            return None
        return Difference(self.table, place, missing, unexpected, lost, doubled)

    def loaded(self, columns: Sequence[str], rows: Iterator[Row], place: str) -> Difference | None:
        """The same for rows that came from elsewhere."""
        names = [str(name) for name, _, _ in self._columns(sql.Identifier(self.expected))]
        if list(columns) != names:
            return self.different(place, f"columns {list(columns)} instead of {names}")
        there = sql.Identifier("oracle_found")
        self.connection.execute(sql.SQL("CREATE TEMP TABLE {} (LIKE {})").format(there, sql.Identifier(self.expected)))
        try:
            with self.connection.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(there)) as copy:
                for row in rows:
                    copy.write_row(row)
            return self.against(there, place)
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


def _topic(wanted: Counted, replay: TopicReplay) -> Difference | None:
    try:
        rows = replay.catch_up()
    except (AssertionError, KafkaException) as error:
        return wanted.different("topic", str(error))
    if replay.stamps != sorted(set(replay.stamps)):
        doubled = len(replay.stamps) - len(set(replay.stamps))
        return wanted.different("topic", f"{doubled} stamps are repeated, or some are out of order")
    if not replay.columns:
        replay.columns = [str(n) for n, _, _ in wanted._columns(sql.Identifier(wanted.expected))]
    return wanted.loaded(replay.columns, rows.elements(), "topic")


def _delta(wanted: Counted, path: str) -> Difference | None:
    try:
        table = pa.table(DeltaTable(path).to_pyarrow_table())
    except (DeltaError, OSError) as error:
        return wanted.different("Delta", str(error))
    columns: list[list[Any]] = [table[name].to_pylist() for name in table.column_names]
    return wanted.loaded(table.column_names, zip(*columns, strict=True), "Delta")


def _eventually(look: Callable[[], Difference | None], limit_s: float) -> Difference | None:
    """Topic and Delta follow PostgreSQL: they have a while, and then must be equal."""
    deadline = time.monotonic() + limit_s
    while (found := look()) is not None and time.monotonic() < deadline:
        time.sleep(0.3)
    return found


def _note(outcome: Judgement, found: Difference | None) -> None:
    if found is not None:
        outcome.differences.append(found)
