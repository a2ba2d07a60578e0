"""The settings of the applier: environment variables and flags in, one frozen object out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from shared_schema.errors import TrickleError
from shared_schema.settings import LIVE, SharedSettings
from shared_schema.topics import DEFAULT_PUBLICATION_PREFIX, check_prefix

BATCHES_IN_DRIVER = 32
"""The driver's heap has room for so many micro-batches. Spark holds one up to five times while it is collected, decoded
and given back to a query, beside everything else in the heap."""


class ApplierSettings(SharedSettings):
    """Settings of `pg-trickle-applier`."""

    publication_prefix: str = Field(
        default=DEFAULT_PUBLICATION_PREFIX, description="first part of the names of publication topics"
    )
    delta_root: str = Field(
        default="pg_trickle_delta", description="folder or URI of the Delta tables of stream tables"
    )
    state_dir: str = Field(default="pg_trickle_state", description="folder or URI of the traces' Delta tables")
    scratch_dir: Path = Field(
        default_factory=lambda: Path(tempfile.gettempdir()),
        description="local folder for Spark's own files; nothing in it has to survive a restart",
    )
    metrics_port: int = Field(default=9465, ge=0, le=65535, description="port of /metrics and /readyz; 0 turns it off")
    spark_master: str = Field(default="local[*]", description="Spark master URL")
    spark_driver_memory: str = Field(default="2g", pattern=r"^\d+[mg]$", description="heap of the Spark driver")
    memory_budget_mb: int = Field(
        default=1_024,
        ge=0,
        le=1_000_000,
        description="memory for arrangements, the rows and columns of relations that stream tables read; 0 holds none",
    )
    max_offsets_per_trigger: int = Field(
        default=50_000, ge=1_000, le=10_000_000, description="most messages read from Kafka in one micro-batch"
    )
    max_bytes_per_trigger: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="most bytes of messages brought to the driver at once; 0 is a 32nd of spark_driver_memory",
    )
    pipeline_batch_size: int = Field(
        default=4_096,
        ge=1,
        le=1_000_000,
        json_schema_extra=LIVE,
        description="rows per COPY + MERGE batch of one refresh",
    )
    max_parallel_workers: int = Field(
        default=4, ge=1, le=64, json_schema_extra=LIVE, description="stream tables computed at the same time"
    )
    staging_rows: int = Field(
        default=200_000,
        ge=1,
        le=1_000_000_000,
        description="a refresh that reads or changes more rows than this is staged in PostgreSQL, not on the driver",
    )
    target_lock_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="how long to wait for a lock on a stream table before it is suspended; 0 waits for ever",
    )
    max_consecutive_errors: int = Field(
        default=3,
        ge=1,
        le=1_000,
        json_schema_extra=LIVE,
        description="failed refreshes in a row after which a stream table is suspended",
    )
    watermark_holdback_timeout: int = Field(
        default=0,
        ge=0,
        le=2_592_000,
        json_schema_extra=LIVE,
        description="seconds after which stream tables that a watermark group holds are reported as stuck; 0 never",
    )
    differential_max_change_ratio: float = Field(
        default=0.15,
        ge=0.0,
        le=1.0,
        json_schema_extra=LIVE,
        description="AUTO: fraction of the sources' rows that may change before the refresh is FULL",
    )
    prediction_window: int = Field(
        default=60,
        ge=1,
        le=43_200,
        json_schema_extra=LIVE,
        description="AUTO: minutes of history from which the time of a refresh is predicted",
    )
    prediction_ratio: float = Field(
        default=1.5,
        ge=1.0,
        le=100.0,
        json_schema_extra=LIVE,
        description="AUTO: FULL if a differential refresh is predicted to take more than this many times as long",
    )
    prediction_min_samples: int = Field(
        default=5,
        ge=3,
        le=500,
        json_schema_extra=LIVE,
        description="AUTO: with fewer differential refreshes nothing is predicted, and the change ratio alone decides",
    )
    cost_cache_capacity: int = Field(
        default=256,
        ge=1,
        le=100_000,
        json_schema_extra=LIVE,
        description="stream tables whose measured costs are held in memory; those of others are read from the history",
    )
    schedule_recommendation_min_samples: int = Field(
        default=20,
        ge=2,
        le=500,
        json_schema_extra=LIVE,
        description="refreshes without which recommend_schedule() recommends nothing",
    )
    fuse_default_ceiling: float = Field(
        default=0.0,
        ge=0.0,
        le=1e12,
        json_schema_extra=LIVE,
        description="change rows of the sources (below 1: a share of the sources' rows) beyond which the fuse of a"
        " stream table blows that has no fuse_ceiling of its own; 0 switches it off",
    )
    catch_up_rows: int = Field(
        default=100_000,
        ge=1_000,
        le=10_000_000,
        json_schema_extra=LIVE,
        description="most change rows of one DIFFERENTIAL refresh; a stream table that lags more catches up in steps",
    )
    max_buffer_rows: int = Field(
        default=1_000_000,
        ge=10_000,
        le=1_000_000_000,
        json_schema_extra=LIVE,
        description="change rows held for stream tables that are not refreshed; with more, their next refresh is FULL",
    )
    buffer_alert_threshold: int = Field(
        default=1_000_000,
        ge=1_000,
        le=1_000_000_000,
        json_schema_extra=LIVE,
        description="change rows held in memory before an alert warns of their growth",
    )
    checkpoint_rows: int = Field(
        default=10_000,
        ge=100,
        le=10_000_000,
        json_schema_extra=LIVE,
        description="rows that a trace holds in memory before a checkpoint writes them to its Delta table",
    )
    delta_interval_ms: int = Field(
        default=1_000,
        ge=100,
        le=3_600_000,
        json_schema_extra=LIVE,
        description="shortest time between two MERGEs into a Delta table",
    )
    delta_tidy_interval_s: int = Field(
        default=3_600,
        ge=1,
        le=604_800,
        json_schema_extra=LIVE,
        description="interval at which small files of Delta tables are compacted and old ones deleted",
    )
    delta_retention_hours: int = Field(
        default=168,
        ge=1,
        le=87_600,
        json_schema_extra=LIVE,
        description="how long old versions of Delta tables can be read",
    )
    history_retention_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        json_schema_extra=LIVE,
        description="how long rows stay in pgtrickle.pgt_refresh_history",
    )
    deep_join_l0_scan_threshold: int = Field(
        default=4,
        ge=2,
        le=1_000,
        description="a query that joins more relations than this is reported (log, explain); nothing else changes",
    )
    part3_max_scan_count: int = Field(
        default=5, ge=2, le=1_000, description="a query that reads more relations than this is reported in the same way"
    )
    max_plan_nodes: int = Field(
        default=2_000, ge=10, le=1_000_000, description="a query whose plan has more nodes than this is refused"
    )
    max_plan_text: int = Field(
        default=200_000,
        ge=10_000,
        le=8_000_000,
        description="a query whose delta is a text of more characters than this is refused: Spark plans all of it",
    )
    max_planning_s: int = Field(
        default=30, ge=1, le=3_600, description="a query that takes more seconds than this to plan is refused"
    )
    sources_elsewhere: bool = Field(
        default=False,
        description="the topics come from another database; the tables here only define columns for queries",
    )
    replica_identity: Literal["full", "keep"] = Field(
        default="full",
        json_schema_extra=LIVE,
        description="full: sources get REPLICA IDENTITY FULL; keep: sources with a key are not altered, and the applier"
        " completes their old rows from its traces",
    )
    block_source_ddl: bool = Field(
        default=False,
        json_schema_extra=LIVE,
        description="refuse DDL on what stream tables read; needs an event trigger, which only a superuser can install",
    )
    auto_evolve: bool = Field(
        default=False,
        json_schema_extra=LIVE,
        description="columns that are added to a source reach the stream tables whose query is written with *, and"
        " replaced views and functions and rewritten rows are followed; a stream table may have its own choice",
    )
    tiered_scheduling: bool = Field(
        default=True,
        json_schema_extra=LIVE,
        description="tiers multiply the intervals of schedules, and deadlines order the refreshes that do not fit into"
        " a tick; off: only frozen stream tables differ from the others",
    )
    auto_backoff: bool = Field(
        default=True,
        json_schema_extra=LIVE,
        description="an interval is stretched while a refresh takes longer than 95 % of it",
    )
    sla_window_hours: int = Field(
        default=24, ge=1, le=8_760, json_schema_extra=LIVE, description="hours of history that sla_summary() counts"
    )
    self_check_interval_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        json_schema_extra=LIVE,
        description="interval at which some rows of one stream table are compared with its query; 0 switches it off",
    )
    delta_sink: bool = Field(default=True, description="write every stream table to Delta Lake too")
    publish_sink: bool = Field(default=True, description="publish every stream table's changes to its topic")
    replication_factor: int = Field(default=1, ge=1, le=10, description="replicas of a new publication topic")

    @property
    def bytes_per_trigger(self) -> int:
        """Most bytes of messages that are brought to the driver at once."""
        return self.max_bytes_per_trigger or self.driver_bytes // BATCHES_IN_DRIVER

    @property
    def driver_bytes(self) -> int:
        """The heap of the Spark driver in bytes."""
        return int(self.spark_driver_memory[:-1]) << {"m": 20, "g": 30}[self.spark_driver_memory[-1]]

    @field_validator("publication_prefix")
    @classmethod
    def _check_publication_prefix(cls, value: str) -> str:
        try:
            return check_prefix(value)
        except TrickleError as error:
            raise ValueError(error.problem) from error
