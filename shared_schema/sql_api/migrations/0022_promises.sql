-- What was assigned or measured for another schedule, SLA, tier or query does not count.
ALTER TABLE pgtrickle.pgt_stream_tables
    -- Changes with its schedule, mode, SLA and tier.
    ADD COLUMN pace_version integer NOT NULL DEFAULT 0;

ALTER TABLE pgtrickle.pgt_runtime
    -- The version for which the applier assigned tier and stretch, and said when the next refresh is due.
    ADD COLUMN pace_version integer NOT NULL DEFAULT 0;

ALTER TABLE pgtrickle.pgt_refresh_history
    -- The SLA at that time; NULL when nothing was promised.
    ADD COLUMN sla_ms bigint,
    -- Whether it is of the table that was replaced by one with other columns.
    ADD COLUMN of_replaced boolean NOT NULL DEFAULT false;
