"""Loads the queries of the corpus by name, and the list of accepted ones (accepted.txt), which may only grow."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _load(name: str) -> dict[str, str]:
    _, *parts = _HEADING.split((FOLDER / name).read_text())
    return {title: body.strip().removesuffix(";") for title, body in zip(parts[::2], parts[1::2], strict=True)}


TPCH, EXTRA = _load("tpch.sql"), _load("extra.sql")
QUERIES = TPCH | EXTRA
ACCEPTED = (FOLDER / "accepted.txt").read_text().split()
