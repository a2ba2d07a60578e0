"""Generates pages of the documentation from classes and lists of the code. `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

from deploy.pages import catalog, functions, settings, sql

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def pages() -> dict[Path, str]:
    """Return the path and the text of every generated page."""
    return {
        DOCS / "settings.md": settings.page(),
        DOCS / "sql.md": sql.page(),
        DOCS / "functions.md": functions.page(),
        ROOT / "shared_schema" / "sql_api" / "settings.json": catalog.page(),
    }
