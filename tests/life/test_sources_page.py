"""docs/sources.md is true line by line: every example is run, and what the page says happens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from applier.refresh.check import check_stream_table
from shared_schema.table_schema import TableId

Connection = psycopg.Connection[tuple[object, ...]]

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"

ROWS = """
INSERT INTO t SELECT i, i, 10 * i, (ARRAY['sad', 'ok'])[1 + i % 2]::mood, chr(96 + i), 's' FROM generate_series(1, 9) i;
INSERT INTO p SELECT i, i FROM generate_series(0, 199, 20) i;
INSERT INTO filled VALUES (200, 1), (250, 2);
"""


@dataclass(frozen=True)
class Line:
    """One line of the table, run in a schema of its own."""

    number: int
    query: str
    example: str
    outcome: str

    @property
    def schema(self) -> str:
        return f"life_{self.number}"

    @property
    def table(self) -> TableId:
        return TableId(self.schema, "st")


def lines() -> list[Line]:
    found = re.findall(r"^\| [^|]+ \| `([^`]+)` \| `(.+?)` \| ([^|]+) \|$", PAGE.read_text(), re.M)
    return [Line(number, *line) for number, line in enumerate(found)]


def objects() -> str:
    return PAGE.read_text().partition("```sql\n")[2].partition("```")[0]


def test_every_line_of_the_table_is_run() -> None:
    rows = re.findall(r"^\| (?!change|---)", PAGE.read_text(), re.M)
    assert len(lines()) == len(rows) > 30


@pytest.fixture
def examples(db: Connection) -> list[Line]:
    """Create the objects and the stream table of every line; the waits for them overlap."""
    found = lines()
    for line in found:
        db.execute(f"CREATE SCHEMA {line.schema}; SET search_path = {line.schema}".encode())
        db.execute((objects() + ROWS).encode())
        db.execute("SELECT pgtrickle.create_stream_table('st', %s)", (line.query,))
    return found


def outcome(db: Connection, line: Line) -> str:
    """What happened to a stream table: 'different', 'stuck', 'suspended', or how it stayed equal."""
    try:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '60 s')", (line.table.quoted,))
        checked = check_stream_table(db, line.table)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return "suspended"
    except psycopg.errors.QueryCanceled:
        return "stuck"
    if not checked.equal:
        return f"different: {checked}"
    seen = db.execute(
        "SELECT count(*) FROM pgtrickle.get_refresh_history(%s) WHERE refresh_reason = 'AUTO_SCHEMA_EVOLUTION'",
        (line.table.quoted,),
    ).fetchone()
    return "nothing" if seen == (0,) else "followed"


def test_what_the_page_says_happens(db: Connection, examples: list[Line]) -> None:
    for line in examples:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '240 s')", (line.table.quoted,))
    publication = db.execute("SELECT quote_ident(pgtrickle._setting('publication'))").fetchone()
    for line in examples:
        db.execute(f"SET search_path = {line.schema}".encode())
        for statement in line.example.replace("PUBLICATION trickle", f"PUBLICATION {publication[0]}").split("; "):  # type: ignore[index]
            db.execute(statement.encode())
    db.execute("RESET search_path")
    wrong = []
    for line in examples:
        happened, said = outcome(db, line), line.outcome
        if happened not in said:
            wrong.append(f"{line.example}: {happened} instead of {said}")
        if happened == "suspended" and "reinitialize_stream_table" in said:
            db.execute("SELECT pgtrickle.reinitialize_stream_table(%s)", (line.table.quoted,))
    for line in examples:
        if "reinitialize_stream_table" in line.outcome and outcome(db, line) not in ("nothing", "followed"):
            wrong.append(f"{line.example}: not repaired")
    assert wrong == []
