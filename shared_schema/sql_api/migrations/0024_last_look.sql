-- What the alerts last said of the stream tables: the next start finds what changed meanwhile, and repeats nothing.
ALTER TABLE pgtrickle.pgt_applier_beats ADD COLUMN last_look jsonb;
