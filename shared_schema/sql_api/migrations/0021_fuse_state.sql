-- That a fuse is blown is a fact of its own: fuse_blown_at is set from then until reset_fuse, whatever becomes of the status
-- and of its error.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN fuse_blown_detail text;
UPDATE pgtrickle.pgt_stream_tables s SET fuse_blown_detail = s.last_error_message
WHERE s.status = 'SUSPENDED' AND s.last_error_code = 'FuseBlown'
  AND NOT EXISTS (SELECT FROM pgtrickle.pgt_reinitializations r WHERE r.pgt_id = s.pgt_id AND r.refused_at IS NULL);
UPDATE pgtrickle.pgt_stream_tables s SET fuse_blown_at = NULL
WHERE s.fuse_blown_at IS NOT NULL AND s.fuse_blown_detail IS NULL;

-- When the alert about a watermark group that holds its readers for too long was sent: once, also over a restart.
ALTER TABLE pgtrickle.pgt_held_positions ADD COLUMN stuck_alerted_at timestamptz;
