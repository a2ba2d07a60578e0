-- The names in a query as its author saw them; the stored query needs no path, but to alter or export it does.
ALTER TABLE pgtrickle.pgt_stream_tables ADD COLUMN search_path text NOT NULL DEFAULT 'pg_catalog';

-- How the applier keeps each stream table, as it was planned last: explain_stream_table() only reads.
CREATE TABLE pgtrickle.pgt_plans (
    pgt_id      bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    plan        jsonb NOT NULL,
    planned_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- A new query that waits for the applier: the old one is kept until the rows of the new one are there.
CREATE TABLE pgtrickle.pgt_alterations (
    pgt_id          bigint PRIMARY KEY REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    original_query  text NOT NULL,
    defining_query  text NOT NULL,
    search_path     text NOT NULL,
    dependencies    jsonb NOT NULL,
    -- The table with the new columns, where they differ; it takes the old one's place when it is filled.
    shadow_relid    oid,
    requested_at    timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- What the applier answered to questions that came through the log; the asker's own transaction need not commit.
CREATE TABLE pgtrickle.pgt_answers (
    question     uuid PRIMARY KEY,
    answer       jsonb NOT NULL,
    answered_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Every setting there is, written by each install from the programs' own definitions.
CREATE TABLE pgtrickle.pgt_setting_definitions (
    name           text PRIMARY KEY,
    program        text NOT NULL,
    kind           text NOT NULL,
    default_value  text,
    min_value      numeric,
    max_value      numeric,
    options        text[],
    pattern        text,
    live           boolean NOT NULL,
    settable       boolean NOT NULL,
    description    text NOT NULL
);

CREATE TABLE pgtrickle.pgt_settings (
    name    text PRIMARY KEY REFERENCES pgtrickle.pgt_setting_definitions ON DELETE CASCADE,
    value   text NOT NULL,
    set_by  name NOT NULL DEFAULT current_user,
    set_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- What a running program uses, and where it has it from.
CREATE TABLE pgtrickle.pgt_settings_in_use (
    program  text NOT NULL,
    name     text NOT NULL,
    value    text,
    source   text NOT NULL,
    PRIMARY KEY (program, name)
);
