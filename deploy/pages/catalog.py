"""Generates shared_schema/sql_api/settings.json from the settings classes; `install` writes it into the database."""

from __future__ import annotations

import json

from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from shared_schema.stored_settings import SettingDescription, describe_settings


def settings() -> list[SettingDescription]:
    """Return every setting that may be stored in the database, by name; a setting of both programs appears once."""
    found: dict[str, SettingDescription] = {}
    for cls, program in ((ConsumerSettings, "pg-trickle-cdc"), (ApplierSettings, "pg-trickle-applier")):
        for described in describe_settings(cls, program):
            other = found.get(described.name)
            if other is not None and other != described:
                # Each program has its own value under this name, such as a port: one stored value cannot serve both.
                del found[described.name]
            else:
                found[described.name] = described
    return sorted(found.values(), key=lambda s: s.name)


def page() -> str:
    """Return the JSON text with one line per setting, so that a change of one setting changes one line."""
    lines = ",\n".join(json.dumps(described.row(), ensure_ascii=False) for described in settings())
    return f"[\n{lines}\n]\n"
