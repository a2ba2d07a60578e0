"""Compares texts with golden files, reviewed as diffs. `GOLDEN=rewrite pytest tests/applier` writes them again.

A file of entries holds queries with their results: a line `-- name: …`, the query, a line `--`, the text. The queries
are stored nowhere else; only the texts are rewritten. A new entry is a name and a query.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_MIDDLE = re.compile(r"^--\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A query and its expected text."""

    name: str
    query: str
    text: str


def entries(path: Path) -> list[Entry]:
    """Return the entries of a file, in its order."""
    before, *parts = _HEADING.split(path.read_text())
    assert not before, f"{path.name} begins with something that is no entry"
    found = [_entry(name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)]
    assert len({entry.name for entry in found}) == len(found), f"two entries of one name in {path.name}"
    return found


def _entry(name: str, body: str) -> Entry:
    query, text = (*_MIDDLE.split(body, maxsplit=1), "")[:2]
    return Entry(name, query.strip(), f"{text.strip()}\n")


def queries(*paths: Path) -> dict[str, str]:
    """Return the queries of some files, by name; names are unique."""
    found = [entry for path in paths for entry in entries(path)]
    by_name = {entry.name: entry.query for entry in found}
    assert len(by_name) == len(found), "two entries of one name"
    return by_name


def check_entries(path: Path, texts: dict[str, str]) -> None:
    """Check that the texts, by name, equal those of the file; with GOLDEN=rewrite, write them."""
    check_text(path, "\n".join(_written(entry, texts[entry.name]) for entry in entries(path)))


def _written(entry: Entry, text: str) -> str:
    return "\n".join([f"-- name: {entry.name}", *([entry.query] if entry.query else []), "--", text])


def check_text(path: Path, text: str) -> None:
    """Check that the text equals the file; with GOLDEN=rewrite, write it."""
    if os.environ.get("GOLDEN") == "rewrite":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden file {path.name}; GOLDEN=rewrite makes it"
    assert text == path.read_text(), f"{path.name} differs; look at the diff, then GOLDEN=rewrite"
