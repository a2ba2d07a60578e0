"""The examples of docs/scheduling.md, run as they stand there: each statement, and what the page says it prints."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from deploy.local.stack import Stack
from tests import oracle

Connection = psycopg.Connection[tuple[object, ...]]

PAGE = (Path(__file__).parents[2] / "docs" / "scheduling.md").read_text()

EXAMPLES = {
    "page_sla": "**Example: an SLA on a dashboard.**",
    "page_load": "## Gates: a nightly load",
    "page_fuse": "**Example: a fuse that saved the day.**",
}
"""Schema of its own -> what the example begins with; its first block of SQL is run."""

PRINTED = "--  "
"""A line of a block that shows what the statement before it prints; another comment has one space."""

CHANGING = ((r"\b[0-9A-F]+/[0-9A-F]+\b", "LSN"), (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+\d\d", "TIME"))


@dataclass
class Step:
    """A statement and the lines that it prints."""

    statement: str
    printed: list[str]


def block(start: str, language: str = "sql") -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE[PAGE.index(start) :], re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def steps(text: str) -> Iterator[Step]:
    statement: list[str] = []
    step: Step | None = None
    for line in text.splitlines():
        if line.startswith(PRINTED):
            assert step is not None and not statement, line
            step.printed.append(line.removeprefix(PRINTED))
            continue
        statement.append(re.sub(r"\s+-- .*", "", line))
        if statement[-1].endswith(";"):
            if step is not None:
                yield step
            step, statement = Step("\n".join(statement).strip(), []), []
    assert step is not None and not "".join(statement).strip()
    yield step


def same(text: str, schema: str) -> str:
    """Return a printed line without what is different each time."""
    text = text.replace(f"{schema}.", "public.")
    for pattern, word in CHANGING:
        text = re.sub(pattern, word, text)
    return " | ".join(part.strip() for part in text.split("|"))


def cell(value: object) -> str:
    return "" if value is None else {True: "t", False: "f"}[value] if isinstance(value, bool) else str(value)


def run(db: Connection, step: Step, schema: str) -> list[str]:
    """Run a statement -> what it prints."""
    try:
        cursor = db.execute(step.statement.encode())
    except psycopg.Error as error:
        said = error.diag
        lines = [f"ERROR: {said.message_primary}", f"HINT: {said.message_hint}"]
        return [same(line, schema) for line in lines]
    rows = cursor.fetchall() if cursor.description else []
    return [same(" | ".join(map(cell, row)), schema) for row in rows]


def without_figures(lines: Sequence[str]) -> list[str]:
    """Return lines of which nobody can foretell the numbers: of a new stream table some are not known yet."""
    return [" | ".join("#" if re.fullmatch(r"[\d.]*", cell) else cell for cell in line.split(" | ")) for line in lines]


@pytest.mark.parametrize("schema", EXAMPLES)
def test_an_example_does_what_the_page_says(db: Connection, stack: Stack, schema: str) -> None:
    db.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}".encode())
    for step in steps(block("# Scheduling and operations")):
        db.execute(step.statement.encode())
    found = list(steps(block(EXAMPLES[schema])))
    assert any(step.printed for step in found)
    for step in found:
        expected = [same(line, schema) for line in step.printed]
        printed = run(db, step, schema)
        if not expected:
            assert not any(line.startswith("ERROR") for line in printed), (step.statement, printed)
        elif "sla_summary" in step.statement:
            assert without_figures(printed) == without_figures(expected)
        elif step.statement.startswith("SELECT pgtrickle.") and not expected[0].startswith("ERROR"):
            assert printed == expected, step.statement
        else:
            # Most are seen a moment later: the applier has to notice.
            oracle.eventually(lambda step=step, expected=expected: assert_prints(db, step, schema, expected), 60)  # type: ignore[misc]
    if schema == "page_sla":
        assert_scraped(stack)
    for name in filled(db, schema):
        assert oracle.query_result(db, name) == oracle.in_postgres(db, name), name


def assert_prints(db: Connection, step: Step, schema: str, expected: list[str]) -> None:
    assert run(db, step, schema) == expected, step.statement


def filled(db: Connection, schema: str) -> list[str]:
    rows = db.execute("SELECT pgt_name FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = %s", (schema,)).fetchall()
    for (name,) in rows:
        db.execute("SELECT pgtrickle.wait_for(%s)", (name,))
    return [str(name) for (name,) in rows]


def assert_scraped(stack: Stack) -> None:
    """The queries of the dashboard read series that the applier has."""
    queries = block(EXAMPLES["page_sla"], "promql")
    port = stack.binaries["applier"].metrics_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        series = answer.read().decode()
    named = set(re.findall(r"pg_trickle_\w+", queries))
    assert len(named) == 4
    assert [name for name in named if f"# TYPE {re.sub('_(bucket|count)$', '', name)} " not in series] == []
