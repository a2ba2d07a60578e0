-- What the applier remembers about stream tables. Applied once; later changes are later files.

CREATE TABLE pgtrickle.pgt_stream_tables (
    pgt_id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_relid            oid NOT NULL UNIQUE,
    pgt_schema           text NOT NULL,
    pgt_name             text NOT NULL,
    original_query       text NOT NULL,
    -- The analysed query as PostgreSQL prints it with every name qualified: it means the same under any search_path.
    defining_query       text NOT NULL,
    schedule             text NOT NULL,
    refresh_mode         text NOT NULL CHECK (refresh_mode IN ('AUTO', 'DIFFERENTIAL', 'FULL', 'IMMEDIATE')),
    status               text NOT NULL CHECK (status IN ('INITIALIZING', 'ACTIVE', 'PAUSED', 'SUSPENDED')),
    created_at           timestamptz NOT NULL DEFAULT pg_catalog.now(),
    last_error_at        timestamptz,
    last_error_message   text,
    last_error_hint      text,
    UNIQUE (pgt_schema, pgt_name)
);

-- One narrow row per stream table, updated at every refresh in the same transaction as its rows.
CREATE TABLE pgtrickle.pgt_frontiers (
    pgt_id          bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    frontier        pg_lsn NOT NULL,
    data_timestamp  timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE pgtrickle.pgt_dependencies (
    pgt_id         bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_relid   oid NOT NULL,
    source_schema  text NOT NULL,
    source_name    text NOT NULL,
    PRIMARY KEY (pgt_id, source_relid)
);

CREATE TABLE pgtrickle.pgt_refresh_history (
    refresh_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_id              bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    start_time          timestamptz NOT NULL,
    end_time            timestamptz NOT NULL,
    action              text NOT NULL,
    refresh_reason      text NOT NULL,
    rows_inserted       bigint NOT NULL,
    rows_deleted        bigint NOT NULL,
    tick_watermark_lsn  pg_lsn NOT NULL,
    status              text NOT NULL,
    error_message       text
);
CREATE INDEX pgt_refresh_history_of_table ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC);

-- Where the traces' Delta tables stand: written after them, so what it names is complete.
CREATE TABLE pgtrickle.pgt_checkpoints (
    applier     text PRIMARY KEY,
    frontier    pg_lsn NOT NULL,
    manifest    jsonb NOT NULL,
    written_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);
