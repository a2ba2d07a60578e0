"""Generates docs/settings.md from the settings classes."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from deploy.pages import catalog
from shared_schema.settings import ENV_PREFIX, SharedSettings

HEAD = """# Settings

Every setting is an environment variable. The most used ones are command-line flags too, and a flag wins. A value out of
bounds stops the program with one sentence that names the setting. This page is generated from the settings classes
(`make docs`).

Most settings can also be stored in the database, for both programs:

```sql
SELECT pgtrickle.set_setting('pipeline_batch_size', '8192');     -- as the owner of schema pgtrickle
SELECT pgtrickle.reset_setting('pipeline_batch_size');
ALTER DATABASE app SET pg_trickle.pipeline_batch_size = 8192;    -- PostgreSQL requires a superuser
SELECT name, value, source, default_value, min_value, max_value, pending_restart FROM pgtrickle.settings();
```

The first place in this order that has a value wins: flag, environment, `set_setting`, `ALTER DATABASE`, default.
`set_setting` rejects values out of bounds. PostgreSQL cannot check what `ALTER DATABASE` stores: a program that starts
with such a value reports the problem, a running one logs it and keeps the old value. `pending_restart` marks what a
running program will use only after a restart: another value, not another text of the same one.

The column *SQL* says whether a setting can be stored in the database:

| SQL | meaning |
|---|---|
| **live** | a running program uses the new value within about a second |
| restart | the program uses the new value after a restart |
| (empty) | cannot be stored: an address, a folder or a password, which is set where the program is started |

`settings()` shows the values that the running programs use and where each comes from, without secrets. A setting of
both programs has a row for each program where the two differ. For a program that is not running it shows what the
database has for it. For a consumer without the right to write there ([roles](roles.md)) it shows `not reported`.
"""


def default_of(field: FieldInfo) -> str:
    """Return the default of a setting as a user would write it."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "empty" if field.default_factory is dict else "the system's temporary folder"
    value: Any = field.default
    if value is PydanticUndefined or value == "":
        return "empty"
    if isinstance(value, tuple):
        return "`" + ",".join(str(v) for v in value) + "`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def bounds_of(field: FieldInfo) -> str:
    """Return the bounds and options of a setting, from the field's constraints."""
    found = []
    for constraint in field.metadata:
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if (bound := getattr(constraint, name, None)) is not None:
                found.append(f"{sign} {bound}")
    options = getattr(field.annotation, "__args__", ()) if "Literal" in str(field.annotation) else ()
    if options:
        found.append(", ".join(f"`{option}`" for option in options))
    return " and ".join(found)


def table_of(fields: dict[str, FieldInfo]) -> str:
    """Return a Markdown table with one line per setting."""
    stored = {s.name: "**live**" if s.live else "restart" for s in catalog.settings() if s.settable}
    lines = ["| variable | meaning | default | bounds | SQL |", "|---|---|---|---|---|"]
    for name, field in fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        cells = [f"`{ENV_PREFIX}{name.upper()}`", meaning, default_of(field), bounds_of(field), stored.get(name, "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """Return the text of the page."""
    shared = SharedSettings.model_fields
    sections = [HEAD, "## Both programs\n\n" + table_of(shared)]
    for title, cls in (("pg-trickle-cdc", ConsumerSettings), ("pg-trickle-applier", ApplierSettings)):
        own = {
            name: field
            for name, field in cls.model_fields.items()
            if name not in shared or default_of(field) != default_of(shared[name])
        }
        sections.append(f"## {title}\n\n" + table_of(own))
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"
