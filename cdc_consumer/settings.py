"""Settings of pg-trickle-cdc, read once from `PG_TRICKLE_*` variables and command-line flags."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from shared_schema.settings import SharedSettings


class ConsumerSettings(SharedSettings):
    """Settings of the consumer: what to capture, how to batch, where to report."""

    mode: Literal["log", "sidecar", "remote"] = Field(
        default="log",
        description="where change rows are written: to Kafka topics (log), to change-buffer tables in the source "
        "database (sidecar), or to change-buffer tables in another database (remote)",
    )
    target_url: SecretStr | None = Field(
        default=None,
        description="database of the change-buffer tables in mode remote, as a libpq URL or key=value string",
    )
    schema_registry_url: SecretStr | None = Field(
        default=None,
        description="URL of a Confluent-compatible schema registry; if set, messages have its wire format; the URL may "
        "contain user:password@",
    )
    publications: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("pg_trickle",),
        min_length=1,
        description="publications to stream, separated by commas or as a JSON list; missing ones are created empty",
    )
    metrics_port: int = Field(default=9464, ge=0, le=65535, description="port of the metrics server; 0 disables it")
    linger_ms: int = Field(
        default=5,
        ge=0,
        le=10_000,
        description="how long a complete source commit waits for further commits that share its Kafka transaction; "
        "while the consumer is more than 100 ms behind the server, longer, 300 ms at most",
    )
    batch_max_rows: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="rows after which a Kafka transaction ends at the next source commit",
    )
    heartbeat_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="how often an idle consumer publishes its position, and how often it checks the publications for "
        "new tables",
    )
    wal_max_changes_per_poll: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="largest number of messages that one poll of the replication connection returns",
    )
    wal_max_lag_bytes: int = Field(
        default=65_536,
        ge=0,
        le=1 << 40,
        description="bytes of log that may be unpublished without a warning; the consumer warns when more than this is "
        "unpublished for two heartbeats",
    )
    copy_connections: int = Field(
        default=4, ge=1, le=64, description="connections that copy the chunks of a large table in parallel"
    )
    copy_chunk_pages: int = Field(
        default=4096, ge=1, le=1_000_000, description="pages of a table that one COPY of an initial copy reads"
    )
    transaction_max_s: int = Field(
        default=300,
        ge=0,
        le=800,
        description="seconds after which a long initial copy or source commit continues in another Kafka transaction; "
        "must be below the broker's transaction.max.timeout.ms",
    )
    slot_wait_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="how long to stand by while another instance streams from the slot; 0 waits without a limit",
    )
    wal_sender_timeout_s: int = Field(
        default=6,
        ge=3,
        le=3_600,
        description="wal_sender_timeout of the replication session: the server frees the slot for a standby after so "
        "many seconds without a status update",
    )
    ring_buffer_slots: int = Field(
        default=65_536,
        ge=1_000,
        le=10_000_000,
        description="messages that the ring holds in memory while the sink is slow or unavailable; further messages go "
        "to disk",
    )
    ring_buffer_sources: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("auto",),
        min_length=1,
        description="tables that use the ring, so that receiving continues while the sink is unavailable: off, auto "
        "(tables with more than ring_buffer_threshold_writes_per_sec), or a list of schema.table",
    )
    ring_buffer_threshold_writes_per_sec: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="change rows per second from which a table uses the ring, if ring_buffer_sources is auto",
    )
    ring_spill_folder: str = Field(
        default="",
        description="folder for the ring's overflow; the system's folder for temporary files if empty",
    )
    ring_spill_max_mb: int = Field(
        default=4_096,
        ge=0,
        le=10_000_000,
        description="largest size of the ring on disk; beyond it the server keeps the changes in its log",
    )
    topic_partitions: int = Field(default=1, ge=1, le=1_000, description="partitions of a new table topic")
    replication_factor: int = Field(default=1, ge=1, le=32, description="replicas of a new topic")
    topic_retention_ms: int = Field(
        default=-1, ge=-1, description="retention of a new table topic in milliseconds; -1 keeps every change row"
    )

    @field_validator("publications", "ring_buffer_sources", mode="before")
    @classmethod
    def _parse_list(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        return tuple(name.strip() for name in value.split(",") if name.strip())

    @field_validator("ring_buffer_sources")
    @classmethod
    def _check_ring_sources(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in (("off",), ("auto",)) and not all("." in name for name in value):
            raise ValueError("must be off, auto, or a list of schema.table")
        return value

    @field_validator("ring_spill_folder")
    @classmethod
    def _check_writable(cls, value: str) -> str:
        if value and not (os.path.isdir(value) and os.access(value, os.W_OK | os.X_OK)):
            raise ValueError(f"{value} is not a writable folder")
        return value

    @model_validator(mode="after")
    def _check_target(self) -> ConsumerSettings:
        if self.mode == "remote" and self.target_url is None:
            raise ValueError("mode remote needs target_url")
        return self

    @property
    def buffer_url(self) -> str:
        """Connection string of the database with the change-buffer tables."""
        target = self.target_url if self.mode == "remote" and self.target_url else self.database_url
        return target.get_secret_value()

    @property
    def transactional_id(self) -> str:
        """Kafka's transactional id: one per slot, so that a new instance fences the old one."""
        return f"{self.topic_prefix}-{self.slot}"
