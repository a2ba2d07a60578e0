"""The SQL files of the catalog -> docs/functions.md: every public function, and what it says of itself."""

from __future__ import annotations

import re
from importlib import resources

HEAD = """# SQL functions

Schema `pgtrickle`, plain SQL and PL/pgSQL, no extension. `pg-trickle-applier install` makes or renews them
(`--dry-run` tries it and leaves nothing), `pg-trickle-applier uninstall` removes them. This page is generated from
the SQL files (`make docs`); who may call what is in [roles](roles.md).

Names are written as in SQL: `'revenue'`, `'shop.revenue'`, `'"We ird"."na me"'`. A name without a schema is looked
up in the caller's `search_path`; it is the default of the last argument, which is left out below, and is kept with
the definition. Every function pins its own `search_path`, so nothing of the caller's is called by accident.

`validate_query` and an `alter_stream_table` with a query ask the running applier and wait for the answer inside the
caller's transaction: the question is a message in the log, the answer a row that the next statement sees. That needs
`READ COMMITTED` (the default) and both programs running; otherwise the error says which is missing. Tables that the
same transaction has just made or altered are not to be seen by the applier before the commit.
"""

TITLES = {
    "create": "Create and drop",
    "lifecycle": "Several at once, and definitions",
    "redefine": "Alter",
    "service": "Pause and resume",
    "freshness": "Wait and refresh",
    "status": "Status",
    "health": "Health",
    "explain": "Explain",
    "graph": "Who reads whom",
    "programs": "Programs",
    "settings": "Settings",
    "sinks": "Writing, visibility, publications",
}

_FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION pgtrickle\.([a-z]\w*)\((.*?)\)\s*RETURNS (.*?)\s*LANGUAGE", re.DOTALL
)
_COMMENT = re.compile(r"COMMENT ON FUNCTION pgtrickle\.(\w+) IS\s*'((?:[^']|'')*)';")
_PATH = re.compile(r",?\s*search_path text DEFAULT pg_catalog\.current_setting\('search_path'\)")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(text: str) -> list[str]:
    comments = {name: said.replace("''", "'") for name, said in _COMMENT.findall(text)}
    lines = []
    for name, arguments, result in _FUNCTION.findall(text):
        call = f"{name}({_one_line(_PATH.sub('', arguments))})"
        returns = _one_line(result).removeprefix("SETOF ").replace("|", "\\|")
        lines.append(f"| `{call}` | `{returns}` | {comments.get(name, '').replace('|', chr(92) + '|')} |")
    return lines


def page() -> str:
    """The whole page; files nobody gave a title come last, under their name."""
    files = {f.name.removesuffix(".sql"): f.read_text() for f in resources.files("shared_schema.sql_api.api").iterdir()}
    order = [*TITLES, *sorted(files.keys() - TITLES.keys())]
    sections = [HEAD]
    for name in order:
        if rows := _table(files.get(name, "")):
            head = "| function | returns | |\n|---|---|---|\n"
            sections.append(f"## {TITLES.get(name, name)}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(sections)
