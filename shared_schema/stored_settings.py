"""Describes the settings for the database, and merges the settings stored there with those of the process.

    flag > environment > pgtrickle.set_setting() > ALTER DATABASE … SET pg_trickle.<name> > default

The settings classes are the only definition. `describe_settings` turns them into the rows that `install` writes, so
that SQL checks the same bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, LiteralString, TypeVar, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from shared_schema.errors import SettingsError
from shared_schema.settings import ENV_PREFIX, SharedSettings, load_settings

S = TypeVar("S", bound=SharedSettings)

HIDDEN = frozenset({"database_url", "kafka_bootstrap", "kafka_options"})
"""Settings that a process needs before it can read the database, or that may contain passwords: never stored there."""

PLACES = frozenset(
    [
        "slot",
        "mode",
        "topic_prefix",
        "publication_prefix",
        "delta_root",
        "state_dir",
        "scratch_dir",
        "ring_spill_folder",
        "spark_master",
        "spark_driver_memory",
        "metrics_host",
        "log_format",
    ]
)
"""Settings about where a process runs and writes: the operator sets them at its start. The database shows them but
cannot set them."""

INSTALLED: LiteralString = (
    "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_settings'"
    " AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))"
)
READ: LiteralString = "SELECT name, value, source FROM pgtrickle._stored_settings()"

Stored = Mapping[str, tuple[str, str]]
"""Name -> (value as text, where it is stored)."""


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """The description of one setting in the database."""

    name: str
    program: str
    kind: str
    default_value: str | None
    min_value: float | None
    max_value: float | None
    options: list[str] | None
    pattern: str | None
    live: bool
    """Whether a running program uses a new value without a restart."""
    settable: bool
    description: str

    def row(self) -> dict[str, Any]:
        """Return the description as a JSON object."""
        return asdict(self)


def describe_settings(cls: type[SharedSettings], program: str) -> list[SettingDescription]:
    """Return the descriptions of those settings of a class that may be shown in the database."""
    return [
        _describe(name, field, "both" if name in SharedSettings.model_fields else program)
        for name, field in cls.model_fields.items()
        if name not in HIDDEN and "SecretStr" not in str(field.annotation)
    ]


def _describe(name: str, field: FieldInfo, program: str) -> SettingDescription:
    options = [str(option) for option in get_args(field.annotation)] if "Literal" in str(field.annotation) else None
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    kinds: dict[Any, str] = {bool: "boolean", int: "integer", float: "number"}
    kind = "choice" if options else kinds.get(field.annotation, "list" if "tuple" in str(field.annotation) else "text")
    least, most = (_bound(field, *names) for names in (("ge", "gt"), ("le", "lt")))
    pattern = next((m.pattern for m in field.metadata if getattr(m, "pattern", None)), None)
    default = None if field.is_required() or field.default_factory is not None else setting_text(field.default)
    live = bool(extra.get("live", False))
    settable = name not in PLACES
    return SettingDescription(
        name, program, kind, default, least, most, options, pattern, live, settable, field.description or ""
    )


def _bound(field: FieldInfo, *names: str) -> float | None:
    found = [getattr(m, name) for m in field.metadata for name in names if getattr(m, name, None) is not None]
    return found[0] if found else None


def setting_text(value: Any) -> str:
    """Return a value in the form in which a user writes it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(str(v) for v in value)
        case _:
            return str(value)


@dataclass(frozen=True)
class LoadedSettings(Generic[S]):
    """Settings, and for each the source of its value: flag, environment, setting, database or default."""

    settings: S
    sources: dict[str, str]

    def in_use(self) -> list[tuple[str, str, str]]:
        """Return name, value and source of every setting that is not secret."""
        values = {name: getattr(self.settings, name) for name in self.sources if name not in HIDDEN}
        return [
            (name, setting_text(value), self.sources[name])
            for name, value in values.items()
            if isinstance(value, bool | int | float | str | tuple | Path) and not isinstance(value, SecretStr)
        ]


def merge_settings(cls: type[S], overrides: Mapping[str, Any], stored: Stored) -> LoadedSettings[S]:
    """Merge the settings of a process with those stored in its database.

    The error for a stored value that is out of bounds says that the value is in the database.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    base = load_settings(cls, **given)
    sources = {
        name: "flag" if name in given else "environment" if name in base.model_fields_set else "default"
        for name in cls.model_fields
    }
    used = {
        name: value
        for name, (value, _) in stored.items()
        if name in cls.model_fields and name not in HIDDEN | PLACES and sources[name] == "default"
    }
    try:
        settings = load_settings(cls, **given, **used)
    except SettingsError as error:
        # The settings of the process itself were valid above.
        raise SettingsError(
            f"{error.problem}, in the database",
            hint=f"SELECT pgtrickle.reset_setting(…), ALTER DATABASE … RESET pg_trickle.…, or a {ENV_PREFIX}… variable",
        ) from None
    return LoadedSettings(settings, sources | {name: stored[name][1] for name in used})
