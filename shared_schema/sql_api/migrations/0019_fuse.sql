-- The fuse: a stream table is not refreshed over an LSN range with abnormally many change rows until somebody decides.
ALTER TABLE pgtrickle.pgt_stream_tables
    -- NULL is the setting fuse_default_ceiling.
    ADD COLUMN fuse text CHECK (fuse IN ('off', 'on', 'auto')),
    -- Change rows of its sources; below 1 a share of the rows of its sources. NULL is the setting fuse_default_ceiling.
    ADD COLUMN fuse_ceiling double precision CHECK (fuse_ceiling > 0),
    -- k in mean + k standard deviations of the change rows of earlier refreshes.
    ADD COLUMN fuse_sensitivity double precision CHECK (fuse_sensitivity > 0),
    -- The range that was stopped begins at the frontier and ends here.
    ADD COLUMN fuse_blown_at timestamptz,
    ADD COLUMN fuse_blown_until pg_lsn,
    ADD COLUMN fuse_blown_changes bigint,
    ADD COLUMN fuse_blown_limit bigint,
    -- reset_fuse: changes up to here are let through, or the frontier is moved there without them.
    ADD COLUMN fuse_passes_until pg_lsn,
    ADD COLUMN fuse_skips_until pg_lsn,
    -- Since then its rows are not those of its query, until it is computed as a whole.
    ADD COLUMN fuse_skipped_at timestamptz,
    ADD COLUMN fuse_skipped_changes bigint;
