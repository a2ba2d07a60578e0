-- A stream table that catches up: up to here its sources were ahead when its last refresh was planned. Its fuse measures what
-- is before this position by the largest commit, also after a restart.
ALTER TABLE pgtrickle.pgt_frontiers ADD COLUMN catching_up_until pg_lsn;
