-- Schedules, refresh modes and what the scheduler shows of itself.
ALTER TABLE pgtrickle.pgt_stream_tables
    ADD COLUMN full_policy text NOT NULL DEFAULT 'allow' CHECK (full_policy IN ('allow', 'error')),
    ADD COLUMN append_only boolean NOT NULL DEFAULT false,
    -- Share of the sources' rows beyond which AUTO computes the whole; NULL is differential_max_change_ratio.
    ADD COLUMN auto_threshold double precision CHECK (auto_threshold BETWEEN 0 AND 1);

-- UNCAPTURED: read by PostgreSQL itself in FULL mode; leaves no rows in the log.
ALTER TABLE pgtrickle.pgt_dependencies DROP CONSTRAINT pgt_dependencies_source_type_check,
    ADD CONSTRAINT pgt_dependencies_source_type_check CHECK (source_type IN ('TABLE', 'STREAM_TABLE', 'UNCAPTURED'));

-- Written by the applier alone, so that nobody's open transaction makes it wait.
CREATE TABLE pgtrickle.pgt_runtime (
    pgt_id                  bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    effective_refresh_mode  text NOT NULL,
    effective_reason        text NOT NULL,
    consecutive_errors      integer NOT NULL DEFAULT 0,
    next_refresh_at         timestamptz
);

ALTER TABLE pgtrickle.pgt_refresh_history
    ADD COLUMN refresh_reason_detail text,
    ADD COLUMN initiated_by text NOT NULL DEFAULT 'SCHEDULER',
    -- Change rows of the sources in the window.
    ADD COLUMN rows_in bigint,
    ADD COLUMN compute_ms double precision,
    ADD COLUMN write_ms double precision,
    ADD COLUMN from_lsn pg_lsn;
CREATE INDEX pgt_refresh_history_by_time ON pgtrickle.pgt_refresh_history (start_time);

-- At most one row: everything is finished, then nothing is begun until it is gone.
CREATE TABLE pgtrickle.pgt_drain (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    requested_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE TABLE pgtrickle.pgt_service (
    applier   text PRIMARY KEY,
    state     text NOT NULL CHECK (state IN ('RUNNING', 'DRAINED', 'STOPPED')),
    frontier  pg_lsn NOT NULL,
    since     timestamptz NOT NULL DEFAULT pg_catalog.now()
);
