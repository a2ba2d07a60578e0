"""Everything an operator of the applier may change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from shared_schema.errors import TrickleError
from shared_schema.settings import LIVE, SharedSettings
from shared_schema.topics import DEFAULT_PUBLICATION_PREFIX, check_prefix


class ApplierSettings(SharedSettings):
    """Settings of `pg-trickle-applier`."""

    publication_prefix: str = Field(
        default=DEFAULT_PUBLICATION_PREFIX, description="first part of the topics that stream tables publish to"
    )
    delta_root: str = Field(
        default="pg_trickle_delta", description="folder or URI below which Delta stream tables live"
    )
    state_dir: str = Field(default="pg_trickle_state", description="folder or URI of the traces' Delta tables")
    scratch_dir: Path = Field(
        default_factory=lambda: Path(tempfile.gettempdir()),
        description="local folder for Spark's own files; nothing in it must survive a restart",
    )
    metrics_port: int = Field(default=9465, ge=0, le=65535, description="port of /metrics and /readyz; 0 turns it off")
    spark_master: str = Field(default="local[*]", description="Spark master URL")
    spark_driver_memory: str = Field(default="2g", pattern=r"^\d+[mg]$", description="heap of the Spark driver")
    memory_budget_mb: int = Field(
        default=1_024,
        ge=0,
        le=1_000_000,
        description="what may be kept ready of the relations, after the filters of stream tables; 0 keeps nothing",
    )
    max_offsets_per_trigger: int = Field(
        default=50_000, ge=1_000, le=10_000_000, description="most messages read from Kafka in one go"
    )
    pipeline_batch_size: int = Field(
        default=4_096,
        ge=1,
        le=1_000_000,
        json_schema_extra=LIVE,
        description="rows per COPY + MERGE batch of one window",
    )
    max_parallel_workers: int = Field(
        default=4, ge=1, le=64, json_schema_extra=LIVE, description="stream tables computed at the same time"
    )
    staging_rows: int = Field(
        default=200_000,
        ge=1,
        le=1_000_000_000,
        description="what reads or changes more rows than this does not pass through the driver",
    )
    target_lock_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="how long to wait for a lock somebody holds on a stream table before it is suspended; 0 for ever",
    )
    max_consecutive_errors: int = Field(
        default=3,
        ge=1,
        le=1_000,
        json_schema_extra=LIVE,
        description="failed refreshes in a row after which a stream table is suspended",
    )
    differential_max_change_ratio: float = Field(
        default=0.15,
        ge=0.0,
        le=1.0,
        json_schema_extra=LIVE,
        description="AUTO: share of the sources' rows that may change before the whole is computed",
    )
    catch_up_rows: int = Field(
        default=100_000,
        ge=1_000,
        le=10_000_000,
        json_schema_extra=LIVE,
        description="most change rows followed in one refresh; who is further behind comes up in steps",
    )
    max_buffer_rows: int = Field(
        default=1_000_000,
        ge=10_000,
        le=1_000_000_000,
        json_schema_extra=LIVE,
        description="change rows kept for stream tables that stand still; beyond, they are computed anew as a whole",
    )
    checkpoint_rows: int = Field(
        default=10_000,
        ge=100,
        le=10_000_000,
        json_schema_extra=LIVE,
        description="rows a trace holds in memory before they go to its Delta table",
    )
    delta_interval_ms: int = Field(
        default=1_000,
        ge=100,
        le=3_600_000,
        json_schema_extra=LIVE,
        description="least time between two MERGEs into a Delta stream table",
    )
    delta_tidy_interval_s: int = Field(
        default=3_600,
        ge=1,
        le=604_800,
        json_schema_extra=LIVE,
        description="every so many seconds small files of Delta stream tables are joined and old ones deleted",
    )
    delta_retention_hours: int = Field(
        default=168,
        ge=1,
        le=87_600,
        json_schema_extra=LIVE,
        description="how long old versions of Delta stream tables can be read",
    )
    history_retention_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        json_schema_extra=LIVE,
        description="how long refreshes stay in pgtrickle.pgt_refresh_history",
    )
    deep_join_l0_scan_threshold: int = Field(
        default=4,
        ge=2,
        le=1_000,
        description="relations in one join beyond which a stream table is said to be deep; nothing else changes",
    )
    part3_max_scan_count: int = Field(
        default=5, ge=2, le=1_000, description="relations read by a query beyond which the same is said"
    )
    sources_elsewhere: bool = Field(
        default=False,
        description="the topics are of another database; the tables here only tell queries what columns there are",
    )
    replica_identity: Literal["full", "keep"] = Field(
        default="full",
        json_schema_extra=LIVE,
        description="full: sources get REPLICA IDENTITY FULL; keep: those with a key stay as they are, their old rows"
        " are completed by what the applier holds of them",
    )
    self_check_interval_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        json_schema_extra=LIVE,
        description="every so many seconds some rows of one stream table are compared with its query; 0 is off",
    )
    delta_sink: bool = Field(default=True, description="keep every stream table in Delta Lake too")
    publish_sink: bool = Field(default=True, description="publish every stream table's changes to its topic")
    replication_factor: int = Field(default=1, ge=1, le=10, description="copies of the publication topics")

    @field_validator("publication_prefix")
    @classmethod
    def _usable_publication_prefix(cls, value: str) -> str:
        try:
            return check_prefix(value)
        except TrickleError as error:
            raise ValueError(error.problem) from error
