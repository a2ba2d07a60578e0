-- Deltas that are committed in PostgreSQL and that a sink still waits for: an outbox, and called so.
ALTER TABLE pgtrickle.pgt_owed RENAME TO pgt_outbox;
ALTER INDEX pgtrickle.pgt_owed_pkey RENAME TO pgt_outbox_pkey;
