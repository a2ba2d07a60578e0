-- How fresh a stream table is to be, and how often it is refreshed for that.
ALTER TABLE pgtrickle.pgt_stream_tables
    -- Rows are at most this old; NULL promises nothing.
    ADD COLUMN freshness_deadline_ms bigint CHECK (freshness_deadline_ms > 0),
    -- 1x, 2x and 10x the schedule's interval, and never.
    ADD COLUMN refresh_tier text NOT NULL DEFAULT 'hot' CHECK (refresh_tier IN ('hot', 'warm', 'cold', 'frozen')),
    -- Whether a person chose the tier: then it is not re-assigned.
    ADD COLUMN tier_by_hand boolean NOT NULL DEFAULT false;

ALTER TABLE pgtrickle.pgt_runtime
    -- The tier that the applier assigned for an SLA; it counts as long as the stream table has that SLA.
    ADD COLUMN assigned_tier text,
    ADD COLUMN assigned_for_ms bigint,
    -- What its interval is multiplied with while refreshes take longer than it.
    ADD COLUMN interval_stretch double precision NOT NULL DEFAULT 1;

-- How old the rows were that the refresh replaced, when the new ones were written.
ALTER TABLE pgtrickle.pgt_refresh_history ADD COLUMN freshness_ms double precision;
