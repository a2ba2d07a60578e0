-- Differences that cannot be computed again from a window (a full refresh, another query), kept until every sink has them.
CREATE TABLE pgtrickle.pgt_owed (
    pgt_id        bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    old_frontier  pg_lsn NOT NULL,
    new_frontier  pg_lsn NOT NULL,
    part          integer NOT NULL,
    -- Net rows as an Arrow stream.
    rows          bytea NOT NULL,
    PRIMARY KEY (pgt_id, new_frontier, part)
);

ALTER TABLE pgtrickle.pgt_stream_tables
    -- Whether a window's rows appear together or batch by batch.
    ADD COLUMN visibility text NOT NULL DEFAULT 'transactional' CHECK (visibility IN ('transactional', 'progressive')),
    -- Set while a progressive window is under way: the rows are neither those of the frontier nor those of this one.
    ADD COLUMN partial_until pg_lsn,
    ADD COLUMN downstream_publication_name text;

-- How far a long write is; written outside of its transaction, so that others see it.
CREATE UNLOGGED TABLE pgtrickle.pgt_writes (
    pgt_id      bigint PRIMARY KEY,
    started_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    rows_done   bigint NOT NULL,
    rows_total  bigint NOT NULL
);
