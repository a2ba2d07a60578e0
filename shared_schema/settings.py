"""Settings both binaries take, read once from `PG_TRICKLE_*` environment variables and command-line flags."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared_schema.errors import SettingsError, TrickleError
from shared_schema.topics import DEFAULT_PREFIX, check_prefix

ENV_PREFIX = "PG_TRICKLE_"

LIVE: dict[str, Any] = {"live": True}
"""`json_schema_extra` of a setting that a running program takes over without a restart."""


class SharedSettings(BaseSettings):
    """Where PostgreSQL and Kafka are, and how logs look."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    database_url: SecretStr = Field(
        description="source database, a libpq URL or key=value string; .pgpass and service files work"
    )
    kafka_bootstrap: str = Field(
        default="127.0.0.1:9092", min_length=1, description="Kafka bootstrap servers, host:port separated by commas"
    )
    kafka_options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="further librdkafka client options as a JSON object (security.protocol, sasl.*, ssl.*)",
    )
    topic_prefix: str = Field(default=DEFAULT_PREFIX, description="first part of every source topic's name")
    slot: str = Field(
        default="pg_trickle",
        pattern=r"^[a-z0-9_]{1,63}$",
        description="replication slot; also the key of the progress record",
    )
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics, /healthz and /readyz")
    log_format: Literal["text", "json"] = Field(default="text", description="one line of text or one JSON object")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least level logged")

    @field_validator("topic_prefix")
    @classmethod
    def _usable_prefix(cls, value: str) -> str:
        try:
            return check_prefix(value)
        except TrickleError as error:
            raise ValueError(error.problem) from error


S = TypeVar("S", bound=SharedSettings)


def load_settings(cls: type[S], **overrides: Any) -> S:
    """Build the settings object; flags that were not given (None) leave the environment's value. One clear error."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return cls(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise SettingsError(
            f"setting {name}: {first['msg']}",
            hint=f"set {ENV_PREFIX}{name.upper()} or the flag --{name.replace('_', '-')}",
        ) from None
