-- Predicted costs rest on the history, so that a restart keeps them.
ALTER TABLE pgtrickle.pgt_refresh_history
    -- Rows of its sources at that time.
    ADD COLUMN source_rows bigint;

-- The full refreshes of a stream table are few among many.
CREATE INDEX pgt_refresh_history_full ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC) WHERE action = 'FULL';

ALTER TABLE pgtrickle.pgt_applier_beats
    -- Counters of the scheduler since the start of the applier, by name.
    ADD COLUMN counters jsonb;
