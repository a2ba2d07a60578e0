-- A canary is a stream table with another query, maintained beside the one whose id this is; only PostgreSQL has its rows.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN canary_of bigint REFERENCES pgtrickle.pgt_stream_tables;
