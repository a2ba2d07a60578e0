"""docs/sources.md in; the lines of its tables and the objects of its examples out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from shared_schema.table_schema import TableId

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"

_LINE = re.compile(r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \| ([^|]+) \|(?: `([^`]+)`[^|]*| )\|$", re.M)
_WHOLE = "What concerns the whole publication"


@dataclass(frozen=True)
class Line:
    """One line of a table. Its example is run in a schema of its own."""

    number: int
    change: str
    query: str
    example: str
    outcome: str
    remedy: str
    concerns_all: bool
    """Whether the example alters the whole publication, and so every stream table."""

    @property
    def schema(self) -> str:
        return f"life_{self.number}"

    @property
    def table(self) -> TableId:
        return TableId(self.schema, "st")

    @property
    def expected(self) -> str:
        """Return the first word of what happens."""
        return re.split(r"[ :,]", self.outcome)[0]

    @property
    def evolves(self) -> bool:
        return "(`auto_evolve`)" in self.change

    @property
    def mode(self) -> str:
        found = re.search(r"\(mode (\w+)\)", self.change)
        return found[1] if found else "AUTO"

    @property
    def since(self) -> int:
        """Return the major version of PostgreSQL that has the statement."""
        found = re.search(r"\(since PostgreSQL (\d+)\)", self.change)
        return int(found[1]) if found else 0

    def statements(self, text: str) -> list[str]:
        """Return the statements of a cell; schemas that it names are the line's own."""
        return [self.own(statement) for statement in text.split("; ") if statement]

    def own(self, text: str) -> str:
        return re.sub(r"\b(shelf|rack)\b", rf"{self.schema}_\1", text)


def lines() -> list[Line]:
    """Return the lines of both tables."""
    page = PAGE.read_text()
    border = page.index(_WHOLE)
    return [
        Line(number, change, query, example, outcome, remedy or "", found.start() > border)
        for number, found in enumerate(_LINE.finditer(page))
        for change, query, example, outcome, remedy in [found.groups()]
    ]


def objects() -> str:
    """Return the statements that create what the examples alter."""
    return PAGE.read_text().partition("```sql\n")[2].partition("```")[0]


def table_rows() -> int:
    """Return how many lines look like one of a table, whatever they contain."""
    return len(re.findall(r"^\| (?!change|---)", PAGE.read_text(), re.M))
