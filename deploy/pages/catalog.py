"""The settings classes -> shared_schema/sql_api/settings.json, which `install` writes into the database."""

from __future__ import annotations

import json

from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from shared_schema.stored_settings import SettingDescription, describe_settings


def settings() -> list[SettingDescription]:
    """Every setting of both programs that may lie in the database, by name; what both have is named once."""
    found: dict[str, SettingDescription] = {}
    for cls, program in ((ConsumerSettings, "pg-trickle-cdc"), (ApplierSettings, "pg-trickle-applier")):
        for described in describe_settings(cls, program):
            other = found.get(described.name)
            if other is not None and other != described:
                # The same name with a value of its own in each program, such as a port: not for a shared place.
                del found[described.name]
            else:
                found[described.name] = described
    return sorted(found.values(), key=lambda s: s.name)


def page() -> str:
    """One line per setting, so that a change is one line too."""
    lines = ",\n".join(json.dumps(described.row(), ensure_ascii=False) for described in settings())
    return f"[\n{lines}\n]\n"
