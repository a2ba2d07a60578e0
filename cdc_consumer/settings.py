"""Settings of pg-trickle-cdc, read once from `PG_TRICKLE_*` variables and command-line flags."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from shared_schema.settings import SharedSettings


class ConsumerSettings(SharedSettings):
    """What to capture, how to batch, where to report."""

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
    copy_connections: int = Field(
        default=4, ge=1, le=64, description="connections that copy a large table's chunks at the same time"
    )
    copy_chunk_pages: int = Field(
        default=4096, ge=1, le=1_000_000, description="pages of a table that one COPY reads when it is captured"
    )
    copy_commit_s: int = Field(
        default=300,
        ge=0,
        le=600,
        description="seconds after which a copy's rows so far are committed; stay below the broker's transaction limit",
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
    topic_partitions: int = Field(default=1, ge=1, le=1_000, description="partitions of a new table topic")
    replication_factor: int = Field(default=1, ge=1, le=32, description="replicas of a new topic")
    topic_retention_ms: int = Field(
        default=-1, ge=-1, description="retention of a new table topic; -1 keeps every change row"
    )

    @field_validator("publications", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return tuple(json.loads(value))
        return tuple(name.strip() for name in value.split(",") if name.strip())

    @property
    def transactional_id(self) -> str:
        """One per slot, so that a new instance fences the old one."""
        return f"{self.topic_prefix}-{self.slot}"
