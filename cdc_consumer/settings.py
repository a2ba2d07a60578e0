"""Settings of pg-trickle-cdc, read once from `PG_TRICKLE_*` variables and command-line flags."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from shared_schema.settings import SharedSettings


class ConsumerSettings(SharedSettings):
    """What to capture, how to batch, where to report."""

    mode: Literal["log", "sidecar", "remote"] = Field(
        default="log",
        description="where change rows go: Kafka topics, change-buffer tables in the source database, "
        "or such tables in another one",
    )
    target_url: SecretStr | None = Field(
        default=None, description="database of the change-buffer tables in mode remote, a libpq URL or key=value string"
    )
    schema_registry_url: SecretStr | None = Field(
        default=None,
        description="Confluent-compatible schema registry; messages are then in its wire format, user:password@ may be "
        "part of the URL",
    )
    publications: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("pg_trickle",),
        min_length=1,
        description="publications to stream, a comma list or a JSON list; missing ones are created empty",
    )
    metrics_port: int = Field(default=9464, ge=0, le=65535, description="port of the metrics server, 0 switches it off")
    linger_ms: int = Field(
        default=5, ge=0, le=10_000, description="how long finished commits wait for others to share a Kafka transaction"
    )
    batch_max_rows: int = Field(
        default=10_000, ge=1, le=1_000_000, description="rows after which a Kafka transaction ends with the next commit"
    )
    heartbeat_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="how often an idle position is published and the publications are looked at for new tables",
    )
    wal_max_changes_per_poll: int = Field(
        default=10_000, ge=1, le=1_000_000, description="messages taken from the replication connection at once"
    )
    wal_max_lag_bytes: int = Field(
        default=65_536,
        ge=0,
        le=1 << 40,
        description="log that may be unpublished without a word; more than this for two heartbeats is a warning",
    )
    copy_connections: int = Field(
        default=4, ge=1, le=64, description="connections that copy a large table's chunks at the same time"
    )
    copy_chunk_pages: int = Field(
        default=4096, ge=1, le=1_000_000, description="pages of a table that one COPY reads when it is captured"
    )
    transaction_max_s: int = Field(
        default=300,
        ge=0,
        le=800,
        description="seconds after which a long copy or source commit goes on in another Kafka transaction; "
        "stay below the broker's transaction.max.timeout.ms",
    )
    slot_wait_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="how long to stand by while another instance streams from the slot, 0 without end",
    )
    wal_sender_timeout_s: int = Field(
        default=6,
        ge=3,
        le=3_600,
        description="after so long without a sign of life the server frees the slot for a standby "
        "(wal_sender_timeout of our session)",
    )
    ring_buffer_slots: int = Field(
        default=65_536,
        ge=1_000,
        le=10_000_000,
        description="messages kept in memory while the sink is slow or away; what comes then goes to disk",
    )
    ring_buffer_sources: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("auto",),
        min_length=1,
        description="whose changes are received on while the sink is away: off, auto (tables with more than "
        "10 000 rows/s), or a list of schema.table",
    )
    ring_spill_folder: str = Field(
        default="", description="where the ring's overflow goes, the system's default if empty"
    )
    ring_spill_max_mb: int = Field(
        default=4_096, ge=0, le=10_000_000, description="most the ring may keep on disk; then the server keeps the rest"
    )
    topic_partitions: int = Field(default=1, ge=1, le=1_000, description="partitions of a new table topic")
    replication_factor: int = Field(default=1, ge=1, le=32, description="replicas of a new topic")
    topic_retention_ms: int = Field(
        default=-1, ge=-1, description="retention of a new table topic; -1 keeps every change row"
    )

    @field_validator("publications", "ring_buffer_sources", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        return tuple(name.strip() for name in value.split(",") if name.strip())

    @field_validator("ring_buffer_sources")
    @classmethod
    def _off_auto_or_tables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in (("off",), ("auto",)) and not all("." in name for name in value):
            raise ValueError("neither off, nor auto, nor a list of schema.table")
        return value

    @field_validator("ring_spill_folder")
    @classmethod
    def _writable(cls, value: str) -> str:
        if value and not (os.path.isdir(value) and os.access(value, os.W_OK | os.X_OK)):
            raise ValueError(f"{value} is no folder that can be written to")
        return value

    @model_validator(mode="after")
    def _has_a_target(self) -> ConsumerSettings:
        if self.mode == "remote" and self.target_url is None:
            raise ValueError("mode remote needs target_url")
        return self

    @property
    def buffer_url(self) -> str:
        """The database of the change-buffer tables."""
        target = self.target_url if self.mode == "remote" and self.target_url else self.database_url
        return target.get_secret_value()

    @property
    def transactional_id(self) -> str:
        """One per slot, so that a new instance fences the old one."""
        return f"{self.topic_prefix}-{self.slot}"
