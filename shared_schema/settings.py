"""Settings of both binaries, read once from `PG_TRICKLE_*` environment variables and command-line flags."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared_schema.errors import SettingsError, TrickleError
from shared_schema.topics import DEFAULT_PREFIX, check_prefix

ENV_PREFIX = "PG_TRICKLE_"

LIVE: dict[str, Any] = {"live": True}
"""`json_schema_extra` of a setting whose new value a running program uses without a restart."""


class SharedSettings(BaseSettings):
    """Connections to PostgreSQL and Kafka, and the format of logs."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    database_url: SecretStr = Field(
        description="source database, as a libpq URL or key=value string; .pgpass and service files work"
    )
    kafka_bootstrap: str = Field(
        default="127.0.0.1:9092", min_length=1, description="Kafka bootstrap servers, host:port separated by commas"
    )
    kafka_options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="further librdkafka client options as a JSON object (security.protocol, sasl.*, ssl.*)",
    )
    topic_prefix: str = Field(default=DEFAULT_PREFIX, description="first part of the name of every source topic")
    slot: str = Field(
        default="pg_trickle",
        pattern=r"^[a-z0-9_]{1,63}$",
        description="name of the replication slot; also the key of the progress record",
    )
    metrics_host: str = Field(default="127.0.0.1", description="address of /metrics, /healthz and /readyz")
    log_format: Literal["text", "json"] = Field(
        default="text", description="format of a log line: text or a JSON object"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )

    slot_lag_warning_threshold_mb: int = Field(
        default=100,
        ge=1,
        le=1_000_000_000,
        description="log that the slot may hold back, in megabytes, before health_check() and an alert warn",
    )
    slot_lag_critical_threshold_mb: int = Field(
        default=1_024,
        ge=1,
        le=1_000_000_000,
        description="log that the slot may hold back, in megabytes, before health_check() and an alert say critical",
    )
    schedule_alert_cooldown_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="how long an alert about a stream table is not repeated; changes of state are always sent",
    )

    @field_validator("topic_prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        try:
            return check_prefix(value)
        except TrickleError as error:
            raise ValueError(error.problem) from error

    @model_validator(mode="after")
    def _check_slot_lag(self) -> SharedSettings:
        warning, critical = self.slot_lag_warning_threshold_mb, self.slot_lag_critical_threshold_mb
        if critical < warning:
            raise ValueError(
                f"slot_lag_critical_threshold_mb ({critical}) is less than slot_lag_warning_threshold_mb ({warning})"
            )
        return self


S = TypeVar("S", bound=SharedSettings)


def load_settings(cls: type[S], **overrides: Any) -> S:
    """Build the settings object. A flag that is None leaves the value of the environment. Raises one clear error."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return cls(**given)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            problem = first["msg"].removeprefix("Value error, ")
            raise SettingsError(f"settings: {problem}", hint=f"change one of them: {ENV_PREFIX}… or a flag") from None
        name = str(first["loc"][0])
        raise SettingsError(
            f"setting {name}: {first['msg']}",
            hint=f"set {ENV_PREFIX}{name.upper()} or the flag --{name.replace('_', '-')}",
        ) from None
