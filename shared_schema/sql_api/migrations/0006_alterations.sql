-- A stream table that is built to take another one's place, because its columns differ.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN replaces bigint REFERENCES pgtrickle.pgt_stream_tables;
ALTER TABLE pgtrickle.pgt_alterations DROP COLUMN shadow_relid;

-- When the query was analysed: what 'today' meant in it.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN analysed_at timestamptz;
UPDATE pgtrickle.pgt_stream_tables SET analysed_at = created_at;
ALTER TABLE pgtrickle.pgt_stream_tables
    ALTER COLUMN analysed_at SET DEFAULT pg_catalog.now(), ALTER COLUMN analysed_at SET NOT NULL;
