"""The settings classes -> docs/settings.md."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from shared_schema.settings import ENV_PREFIX, SharedSettings

HEAD = """# Settings

Every setting is an environment variable; the most used ones are command-line flags too, and a flag wins. A value out of
its bounds stops the program with one sentence that names the setting. This page is generated from the settings classes
(`make docs`).
"""


def default_of(field: FieldInfo) -> str:
    """As a user would write it."""
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
    """From the field's constraints."""
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
    """One line per setting."""
    lines = ["| variable | meaning | default | bounds |", "|---|---|---|---|"]
    for name, field in fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{ENV_PREFIX}{name.upper()}` | {meaning} | {default_of(field)} | {bounds_of(field)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    shared = SharedSettings.model_fields
    sections = [HEAD, "## Both binaries\n\n" + table_of(shared)]
    for title, cls in (("pg-trickle-cdc", ConsumerSettings), ("pg-trickle-applier", ApplierSettings)):
        own = {
            name: field
            for name, field in cls.model_fields.items()
            if name not in shared or default_of(field) != default_of(shared[name])
        }
        sections.append(f"## {title}\n\n" + table_of(own))
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"
