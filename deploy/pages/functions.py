"""Generates docs/functions.md from the SQL files: every public function and view with its COMMENT."""

from __future__ import annotations

import re
from importlib import resources

HEAD = """# SQL functions and views

All functions and views are in schema `pgtrickle`, in plain SQL and PL/pgSQL, without an extension.
`pg-trickle-applier install` creates or renews them (`--dry-run` tries it and leaves nothing), `pg-trickle-applier
uninstall` removes them. This page is generated from the SQL files (`make docs`). [Roles](roles.md) says who may call
what.

**Names** are written as in SQL: `'revenue'`, `'shop.revenue'`, `'"We ird"."na me"'`. A name without a schema is
looked up in the caller's `search_path`. That is the default of the last argument, which is left out below, and it is
stored with the definition. Every function pins its own `search_path`, so that it never calls an object of the caller
by accident.

**Requests to the applier.** `validate_query`, and `alter_stream_table` with a query, send a request to the running
applier and wait for its reply inside the caller's transaction. The request is a message in the log; the reply is a row
that the next statement sees. This needs `READ COMMITTED` (the default) and both programs running; otherwise the error
says which one is missing. The applier does not see tables that the same transaction has created or altered until the
commit.
"""

TITLES = {
    "create": "Create and drop",
    "lifecycle": "Scripts and definitions",
    "redefine": "Alter",
    "canary": "Try a new query",
    "many": "Several at once",
    "service": "Pause and resume",
    "diagnose": "Diagnose errors",
    "repair": "Repair in place",
    "freshness": "Wait and refresh",
    "status": "Status",
    "health": "Health",
    "quick_health": "Health in one row",
    "explain": "Explain",
    "cost": "Costs and recommendations",
    "self_monitoring": "Self-monitoring",
    "graph": "Dependencies",
    "programs": "Programs",
    "settings": "Settings",
    "sinks": "Direct writes, visibility, publications",
    "scheduling": "Drain",
    "gates": "Gates",
    "fuse": "Fuse",
    "sla": "SLA and tiers",
    "watermarks": "Watermarks",
    "refresh_groups": "Refresh groups",
}

_FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION pgtrickle\.([a-z]\w*)\((.*?)\)\s*RETURNS (.*?)\s*LANGUAGE", re.DOTALL
)
_VIEW = re.compile(r"CREATE OR REPLACE VIEW pgtrickle\.([a-z]\w*)")
_COMMENT = re.compile(r"COMMENT ON (?:FUNCTION|VIEW) pgtrickle\.(\w+) IS\s*'((?:[^']|'')*)';")
_PATH = re.compile(r",?\s*search_path text DEFAULT pg_catalog\.current_setting\('search_path'\)")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(text: str) -> list[str]:
    comments = {name: text.replace("''", "'") for name, text in _COMMENT.findall(text)}
    lines = []
    for name, arguments, result in _FUNCTION.findall(text):
        call = f"{name}({_one_line(_PATH.sub('', arguments))})"
        returns = _one_line(result).removeprefix("SETOF ").replace("|", "\\|")
        lines.append(f"| `{call}` | `{returns}` | {comments.get(name, '').replace('|', chr(92) + '|')} |")
    return [*lines, *(f"| `{name}` | view | {comments.get(name, '')} |" for name in _VIEW.findall(text))]


def page() -> str:
    """Return the text of the page; files without a title come last, under their file name."""
    files = {f.name.removesuffix(".sql"): f.read_text() for f in resources.files("shared_schema.sql_api.api").iterdir()}
    order = [*TITLES, *sorted(files.keys() - TITLES.keys())]
    sections = [HEAD]
    for name in order:
        if rows := _table(files.get(name, "")):
            head = "| function or view | returns | description |\n|---|---|---|\n"
            sections.append(f"## {TITLES.get(name, name)}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(sections)
