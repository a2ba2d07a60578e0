"""Generated pages of the documentation: the classes and lists of the code in, Markdown out. `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

from deploy.pages import catalog, functions, settings, sql

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def pages() -> dict[Path, str]:
    """Every generated page with what it must contain."""
    return {
        DOCS / "settings.md": settings.page(),
        DOCS / "sql.md": sql.page(),
        DOCS / "functions.md": functions.page(),
        ROOT / "shared_schema" / "sql_api" / "settings.json": catalog.page(),
    }
