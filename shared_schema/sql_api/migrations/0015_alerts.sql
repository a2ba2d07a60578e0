-- What the consumer's beat says of sessions that failed since it started, for wal_source_status().
ALTER TABLE pgtrickle.pgt_consumer_beats
    ADD COLUMN last_error     text,
    ADD COLUMN last_error_at  timestamptz,
    -- How many sessions failed, and when the last of them did: the newest first.
    ADD COLUMN attempts       integer,
    ADD COLUMN attempted_at   timestamptz[];
