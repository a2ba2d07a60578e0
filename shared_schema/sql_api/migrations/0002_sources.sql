-- Which relations the consumer is asked to copy anew, and how often that was asked for.
CREATE TABLE pgtrickle.pgt_recaptures (
    source_relid  oid PRIMARY KEY,
    epoch         bigint NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN last_error_code text;

-- A stream table as a source is read as its query; its own sources are found through it.
ALTER TABLE pgtrickle.pgt_dependencies ADD COLUMN source_type text NOT NULL DEFAULT 'TABLE'
    CHECK (source_type IN ('TABLE', 'STREAM_TABLE'));
