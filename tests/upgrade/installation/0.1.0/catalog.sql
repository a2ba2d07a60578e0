--
-- PostgreSQL database dump
--

\restrict FcRUOkeIZoPrdHsCIx5NYQDAeIAsNVqVhEx6H7gLDBh1vJRhsdUqZ7KzZyHNeoE

-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: pgt_stream_tables; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_stream_tables (
    pgt_id bigint NOT NULL,
    pgt_relid oid NOT NULL,
    pgt_schema text NOT NULL,
    pgt_name text NOT NULL,
    original_query text NOT NULL,
    defining_query text NOT NULL,
    schedule text NOT NULL,
    refresh_mode text NOT NULL,
    status text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_error_at timestamp with time zone,
    last_error_message text,
    last_error_hint text,
    last_error_code text,
    search_path text DEFAULT 'pg_catalog'::text NOT NULL,
    visibility text DEFAULT 'transactional'::text NOT NULL,
    partial_until pg_lsn,
    downstream_publication_name text,
    full_policy text DEFAULT 'allow'::text NOT NULL,
    append_only boolean DEFAULT false NOT NULL,
    auto_threshold double precision,
    replaces bigint,
    analysed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pgt_stream_tables_auto_threshold_check CHECK (((auto_threshold >= (0)::double precision) AND (auto_threshold <= (1)::double precision))),
    CONSTRAINT pgt_stream_tables_full_policy_check CHECK ((full_policy = ANY (ARRAY['allow'::text, 'error'::text]))),
    CONSTRAINT pgt_stream_tables_refresh_mode_check CHECK ((refresh_mode = ANY (ARRAY['AUTO'::text, 'DIFFERENTIAL'::text, 'FULL'::text, 'IMMEDIATE'::text]))),
    CONSTRAINT pgt_stream_tables_status_check CHECK ((status = ANY (ARRAY['INITIALIZING'::text, 'ACTIVE'::text, 'PAUSED'::text, 'SUSPENDED'::text]))),
    CONSTRAINT pgt_stream_tables_visibility_check CHECK ((visibility = ANY (ARRAY['transactional'::text, 'progressive'::text])))
);


--
-- Name: pgt_refresh_history; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_refresh_history (
    refresh_id bigint NOT NULL,
    pgt_id bigint NOT NULL,
    start_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone NOT NULL,
    action text NOT NULL,
    refresh_reason text NOT NULL,
    rows_inserted bigint NOT NULL,
    rows_deleted bigint NOT NULL,
    tick_watermark_lsn pg_lsn NOT NULL,
    status text NOT NULL,
    error_message text,
    refresh_reason_detail text,
    initiated_by text DEFAULT 'SCHEDULER'::text NOT NULL,
    rows_in bigint,
    compute_ms double precision,
    write_ms double precision,
    from_lsn pg_lsn
);


--
-- Name: pgt_frontiers; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_frontiers (
    pgt_id bigint NOT NULL,
    frontier pg_lsn NOT NULL,
    data_timestamp timestamp with time zone NOT NULL
)
WITH (fillfactor='50');


--
-- Name: pgt_runtime; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_runtime (
    pgt_id bigint NOT NULL,
    effective_refresh_mode text NOT NULL,
    effective_reason text NOT NULL,
    consecutive_errors integer DEFAULT 0 NOT NULL,
    next_refresh_at timestamp with time zone
);


--
-- Name: pgt_writes; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE UNLOGGED TABLE pgtrickle.pgt_writes (
    pgt_id bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    rows_done bigint NOT NULL,
    rows_total bigint NOT NULL
);


--
-- Name: pg_stat_stream_tables; Type: VIEW; Schema: pgtrickle; Owner: -
--

CREATE VIEW pgtrickle.pg_stat_stream_tables AS
 SELECT s.pgt_schema,
    s.pgt_name,
    s.status,
    s.refresh_mode,
    s.schedule,
    (f.pgt_id IS NOT NULL) AS is_populated,
    f.frontier,
    f.data_timestamp,
    (clock_timestamp() - f.data_timestamp) AS staleness,
    h.refreshes,
    h.rows_inserted,
    h.rows_deleted,
    s.last_error_at,
    s.last_error_message,
    s.visibility,
    s.downstream_publication_name AS publication,
    w.rows_done AS writing_rows_done,
    w.rows_total AS writing_rows_total,
    ((w.rows_done)::double precision / NULLIF(w.seconds, (0)::double precision)) AS writing_rows_per_s,
    make_interval(secs => ((w.seconds * ((w.rows_total - w.rows_done))::double precision) / (NULLIF(w.rows_done, 0))::double precision)) AS writing_eta,
    t.effective_refresh_mode,
    t.effective_reason,
    COALESCE(t.consecutive_errors, 0) AS consecutive_errors,
    t.next_refresh_at,
    s.full_policy,
    s.append_only
   FROM ((((pgtrickle.pgt_stream_tables s
     LEFT JOIN pgtrickle.pgt_frontiers f USING (pgt_id))
     LEFT JOIN pgtrickle.pgt_runtime t USING (pgt_id))
     LEFT JOIN LATERAL ( SELECT count(*) AS refreshes,
            sum(r.rows_inserted) AS rows_inserted,
            sum(r.rows_deleted) AS rows_deleted
           FROM pgtrickle.pgt_refresh_history r
          WHERE (r.pgt_id = s.pgt_id)) h ON (true))
     LEFT JOIN LATERAL ( SELECT p.rows_done,
            p.rows_total,
            date_part('epoch'::text, (p.updated_at - p.started_at)) AS seconds
           FROM pgtrickle.pgt_writes p
          WHERE (p.pgt_id = s.pgt_id)) w ON (true));


--
-- Name: pgt_alterations; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_alterations (
    pgt_id bigint NOT NULL,
    original_query text NOT NULL,
    defining_query text NOT NULL,
    search_path text NOT NULL,
    dependencies jsonb NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_answers; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_answers (
    question uuid NOT NULL,
    answer jsonb NOT NULL,
    answered_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_checkpoints; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_checkpoints (
    applier text NOT NULL,
    frontier pg_lsn NOT NULL,
    manifest jsonb NOT NULL,
    written_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_dependencies; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL,
    source_relid oid NOT NULL,
    source_schema text NOT NULL,
    source_name text NOT NULL,
    source_type text DEFAULT 'TABLE'::text NOT NULL,
    CONSTRAINT pgt_dependencies_source_type_check CHECK ((source_type = ANY (ARRAY['TABLE'::text, 'STREAM_TABLE'::text, 'UNCAPTURED'::text])))
);


--
-- Name: pgt_drain; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_drain (
    only_row boolean DEFAULT true NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pgt_drain_only_row_check CHECK (only_row)
);


--
-- Name: pgt_owed; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_owed (
    pgt_id bigint NOT NULL,
    old_frontier pg_lsn NOT NULL,
    new_frontier pg_lsn NOT NULL,
    part integer NOT NULL,
    rows bytea NOT NULL
);


--
-- Name: pgt_plans; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_plans (
    pgt_id bigint NOT NULL,
    plan jsonb NOT NULL,
    planned_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_recaptures; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_recaptures (
    source_relid oid NOT NULL,
    epoch bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_refresh_history_refresh_id_seq; Type: SEQUENCE; Schema: pgtrickle; Owner: -
--

ALTER TABLE pgtrickle.pgt_refresh_history ALTER COLUMN refresh_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtrickle.pgt_refresh_history_refresh_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: pgt_schema_version; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_service; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_service (
    applier text NOT NULL,
    state text NOT NULL,
    frontier pg_lsn NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pgt_service_state_check CHECK ((state = ANY (ARRAY['RUNNING'::text, 'DRAINED'::text, 'STOPPED'::text])))
);


--
-- Name: pgt_setting_definitions; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_setting_definitions (
    name text NOT NULL,
    program text NOT NULL,
    kind text NOT NULL,
    default_value text,
    min_value numeric,
    max_value numeric,
    options text[],
    pattern text,
    live boolean NOT NULL,
    settable boolean NOT NULL,
    description text NOT NULL
);


--
-- Name: pgt_settings; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_settings (
    name text NOT NULL,
    value text NOT NULL,
    set_by name DEFAULT CURRENT_USER NOT NULL,
    set_at timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: pgt_settings_in_use; Type: TABLE; Schema: pgtrickle; Owner: -
--

CREATE TABLE pgtrickle.pgt_settings_in_use (
    program text NOT NULL,
    name text NOT NULL,
    value text,
    source text NOT NULL
);


--
-- Name: pgt_stream_tables_pgt_id_seq; Type: SEQUENCE; Schema: pgtrickle; Owner: -
--

ALTER TABLE pgtrickle.pgt_stream_tables ALTER COLUMN pgt_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtrickle.pgt_stream_tables_pgt_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Data for Name: pgt_alterations; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_alterations (pgt_id, original_query, defining_query, search_path, dependencies, requested_at) FROM stdin;
18	SELECT id, name FROM customers WHERE id > 10	 SELECT id,\n    name\n   FROM public.customers\n  WHERE (id > 10);	"$user", public	[{"name": "customers", "type": "TABLE", "relid": "16776", "schema": "public"}]	2026-11-17 19:32:43.881974+00
\.


--
-- Data for Name: pgt_answers; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_answers (question, answer, answered_at) FROM stdin;
\.


--
-- Data for Name: pgt_checkpoints; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_checkpoints (applier, frontier, manifest, written_at) FROM stdin;
pg_trickle	0/1D9DD60	{"sinks": {"1": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "2": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "3": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "4": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "5": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "6": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "7": {"delta": "0/1DAF5A8", "topic": "0/1DAF5A8"}, "8": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "9": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "10": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "11": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "12": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "13": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "14": {"delta": "0/1DE3FA0", "topic": "0/1DE3FA0"}, "15": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "16": {"delta": "0/1DE5E58", "topic": "0/1DE5E58"}, "17": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "18": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "19": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "20": {"delta": "0/1DAF468", "topic": "0/1DAF468"}, "21": {"delta": "0/1D1AEA0", "topic": "0/1D1AEA0"}}, "traces": [{"key": ["id"], "rows": 52, "relid": 16776, "table": ["public", "customers"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1C63087", null, null]]}, {"name": "name", "type": [25, -1, "text", "text"], "spans": [["0/1C63087", null, null]]}, {"name": "segment", "type": [25, -1, "text", "text"], "spans": [["0/1C63087", null, null]]}, {"name": "since", "type": [1082, -1, "date", "date"], "spans": [["0/1C63087", null, null]]}, {"name": "profile", "type": [3802, -1, "jsonb", "jsonb"], "spans": [["0/1C63087", null, null]]}], "version": 0, "withdrawn": 6, "membership": "16873", "captured_at": "0/1C63087"}, {"key": ["id"], "rows": 33, "relid": 16805, "table": ["public", "staff"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1C63087", null, null]]}, {"name": "boss", "type": [23, -1, "int4", "integer"], "spans": [["0/1C63087", null, null]]}, {"name": "name", "type": [25, -1, "text", "text"], "spans": [["0/1C63087", null, null]]}], "version": 0, "withdrawn": 1, "membership": "16950", "captured_at": "0/1C63087"}, {"key": ["id"], "rows": 462, "relid": 16784, "table": ["public", "orders"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1C63087", null, null]]}, {"name": "customer", "type": [23, -1, "int4", "integer"], "spans": [["0/1C63087", null, null]]}, {"name": "amount", "type": [1700, 655366, "numeric", "numeric(10,2)"], "spans": [["0/1C63087", null, null]]}, {"name": "placed", "type": [1082, -1, "date", "date"], "spans": [["0/1C63087", null, null]]}, {"name": "note", "type": [25, -1, "text", "text"], "spans": [["0/1C63087", null, null]]}], "version": 0, "withdrawn": 57, "membership": "16874", "captured_at": "0/1C63087"}, {"key": ["id"], "rows": 20, "relid": 16797, "table": ["public", "documents"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "title", "type": [25, -1, "text", "text"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "body", "type": [25, -1, "text", "text"], "spans": [["0/1CA5EF7", null, null]]}], "version": 0, "withdrawn": 4, "membership": "16990", "captured_at": "0/1CA5EF7"}, {"key": ["id"], "rows": 21, "relid": 16813, "table": ["public", "ratios"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "above", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "below", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}], "version": 0, "withdrawn": 0, "membership": "17067", "captured_at": "0/1CA5EF7"}, {"key": ["id"], "rows": 17, "relid": 16841, "table": ["side-ways", "Größe & Co"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "Maß", "type": [1700, -1, "numeric", "numeric"], "spans": [["0/1CA5EF7", null, null]]}], "version": 0, "withdrawn": 1, "membership": "17010", "captured_at": "0/1CA5EF7"}, {"key": [], "rows": 128, "relid": 16792, "table": ["public", "events"], "columns": [{"name": "kind", "type": [25, -1, "text", "text"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "at", "type": [1184, -1, "timestamptz", "timestamp with time zone"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "payload", "type": [3802, -1, "jsonb", "jsonb"], "spans": [["0/1CA5EF7", null, null]]}], "version": 0, "withdrawn": 2, "membership": "16969", "captured_at": "0/1CA5EF7"}, {"key": ["id", "month"], "rows": 76, "relid": 16819, "table": ["public", "measures"], "columns": [{"name": "id", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "month", "type": [23, -1, "int4", "integer"], "spans": [["0/1CA5EF7", null, null]]}, {"name": "v", "type": [701, -1, "float8", "double precision"], "spans": [["0/1CA5EF7", null, null]]}], "version": 0, "withdrawn": 8, "membership": "16999", "captured_at": "0/1CA5EF7"}], "offsets": {"trickle.public.staff": {"0": 36}, "trickle.public.events": {"0": 131}, "trickle.public.orders": {"0": 464}, "trickle.public.ratios": {"0": 23}, "trickle.public.measures": {"0": 78}, "trickle.public.customers": {"0": 54}, "trickle.public.documents": {"0": 23}, "trickle.side-2dways.Gr-c3-b6-c3-9fe-20-26-20Co": {"0": 19}}, "frontier": "0/1D9DD60"}	2026-11-17 19:31:03.768969+00
\.


--
-- Data for Name: pgt_dependencies; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_dependencies (pgt_id, source_relid, source_schema, source_name, source_type) FROM stdin;
1	16776	public	customers	TABLE
1	16784	public	orders	TABLE
2	16784	public	orders	TABLE
3	16879	public	by_customer	STREAM_TABLE
4	16784	public	orders	TABLE
5	16784	public	orders	TABLE
6	16784	public	orders	TABLE
7	16784	public	orders	TABLE
8	16776	public	customers	TABLE
8	16784	public	orders	TABLE
9	16805	public	staff	TABLE
10	16784	public	orders	TABLE
11	16792	public	events	TABLE
12	16792	public	events	TABLE
13	16797	public	documents	TABLE
14	16819	public	measures	TABLE
15	16841	side-ways	Größe & Co	TABLE
16	16784	public	orders	TABLE
17	16784	public	orders	TABLE
18	16776	public	customers	TABLE
19	16776	public	customers	TABLE
20	16776	public	customers	TABLE
21	16813	public	ratios	TABLE
22	16784	public	orders	TABLE
23	17932	public	late	TABLE
23	16784	public	orders	TABLE
24	16776	public	customers	TABLE
\.


--
-- Data for Name: pgt_drain; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_drain (only_row, requested_at) FROM stdin;
\.


--
-- Data for Name: pgt_frontiers; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_frontiers (pgt_id, frontier, data_timestamp) FROM stdin;
20	0/1DE9A70	2026-11-17 19:31:01.60433+00
21	0/1D9DD60	2026-11-17 19:30:49.766529+00
1	0/209FC60	2026-11-17 19:32:43.090318+00
14	0/2070928	2026-11-17 19:32:41.472357+00
8	0/209FC60	2026-11-17 19:32:43.090318+00
9	0/209FC60	2026-11-17 19:32:43.090318+00
11	0/209FC60	2026-11-17 19:32:43.090318+00
12	0/209FC60	2026-11-17 19:32:43.090318+00
13	0/209FC60	2026-11-17 19:32:43.090318+00
15	0/209FC60	2026-11-17 19:32:43.090318+00
18	0/209FC60	2026-11-17 19:32:43.090318+00
19	0/209FC60	2026-11-17 19:32:43.090318+00
2	0/209FC60	2026-11-17 19:32:43.090318+00
3	0/209FC60	2026-11-17 19:32:43.090318+00
4	0/209FC60	2026-11-17 19:32:43.090318+00
5	0/209FC60	2026-11-17 19:32:43.090318+00
6	0/209FC60	2026-11-17 19:32:43.090318+00
10	0/209FC60	2026-11-17 19:32:43.090318+00
17	0/209FC60	2026-11-17 19:32:43.090318+00
7	0/209FC60	2026-11-17 19:32:43.090318+00
16	0/209D458	2026-11-17 19:32:42.301481+00
\.


--
-- Data for Name: pgt_owed; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_owed (pgt_id, old_frontier, new_frontier, part, rows) FROM stdin;
6	0/2001008	0/202F330	0	\\xffffffff100100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000004000000ac0000006c000000340000000400000074ffffff0000010210000000140000000400000000000000030000005f5f770064ffffff0000000140000000a0ffffff00000107100000001c0000000400000000000000020000006332000008000c0004000800080000002600000002000000d4ffffff00000102100000001400000004000000000000000200000063310000c4ffffff0000000140000000100014000800060007000c00000010001000000000000102100000001c0000000400000000000000020000006330000008000c0008000700080000000000000120000000ffffffff3001000014000000000000000c0018000600050008000c000c000000000304001c000000e800000000000000000000000c001e001000040008000c000c000000b000000024000000180000000a000000000000000000000000000600080007000600000000000001080000000000000000000000000000000000000000000000000000002d0000000000000030000000000000000000000000000000300000000000000032000000000000006800000000000000000000000000000068000000000000004100000000000000b0000000000000000000000000000000b000000000000000330000000000000000000000040000000a0000000000000000000000000000000a0000000000000000000000000000000a0000000000000000000000000000000a000000000000000000000000000000280000000000000028b52ffd2028e5000090030000000400000002000000010302000000030037b300023c2b5f000000500000000000000028b52ffd20500d0100d05700560056005e005d005e0057005e0056005d00000000000000095402000301000000000000a00000000000000028b52ffd20a085010084022fde15004ff01500f84c150071481900ce7318002a30190066741600af2e1800543b160026c217000a540400090100000000000000500000000000000028b52ffd2050150100a0ffff010001000100ff0100ff0100000000000000071000590ccc6cb4d186a6b4010000000000ffffffff00000000
7	0/2001008	0/203A830	0	\\xffffffff400100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000005000000d8000000980000006000000034000000040000004cffffff0000010210000000140000000400000000000000030000005f5f77003cffffff000000014000000078ffffff000001061000000018000000040000000000000002000000633300000400040004000000a0ffffff00000107100000001c0000000400000000000000020000006332000008000c0004000800080000000a00000002000000d4ffffff00000102100000001400000004000000000000000200000063310000c4ffffff0000000120000000100014000800060007000c00000010001000000000000102100000001c0000000400000000000000020000006330000008000c000800070008000000000000012000000000000000ffffffff6001000014000000000000000c0018000600050008000c000c000000000304001c000000e002000000000000000000000c001e001000040008000c000c000000d00000002400000018000000410000000000000000000000000006000800070006000000000000010a000000000000000000000000000000000000000000000000000000ac00000000000000b0000000000000000000000000000000b000000000000000820000000000000038010000000000000000000000000000380100000000000008010000000000004002000000000000000000000000000040020000000000001a00000000000000600200000000000000000000000000006002000000000000800000000000000000000000050000004100000000000000000000000000000041000000000000000000000000000000410000000000000000000000000000004100000000000000000000000000000041000000000000000000000000000000040100000000000028b52ffd600400d50400f2cc1f2a804b328c018b6331a4988663dbb62694d070340dc7f2007031e0121223311223313ae0f41e2eaa34bd53ef09b8e511bc3a1e42f45192e7bc89a7f12e1ec7c3781b16abc8cb38e5453c018a43a155f32adec2a527f10e9ec3312fe90dbc86d5e401dce3412bc82fefe1353d83a7f0183ead1ae7959779108f5ec1ebe3250408001726efd77c4f36b0171beec6647635ab3886713a737900000000040100000000000028b52ffd600400850300e2470f0f50685d0ef66315b33de46b206894024f9305f0d25d53fce1b86a9c6138e58b31c4e1cf07877c0924ecedee8427ee3cf075f44a73f5c80b7f67be380a12000bcbf2b07c3f93d950594ccd3a3086fde477fbfcee90df2acb29b28c21dfd1cc8ec180adb2bce4dba7f2ebcc3901000000000000100400000000000028b52ffd601003b507003409b26100486700c85a00dd6d00b07200014f00855200376400a26200d08900b37900316a00656300995c003f6600fd7000795900777e00972a76b450118f796dcd554556435d4a6f4c5e1676bf72cb662f7b3b8801681e7896697c79da571a546374bb4eae83dc82e27c1a54c78848807a8a2a801487c977e65a2d87e4579065aa64fb817184ff5f09518057f6546752547418654120e0b7033296b18c652c6319cb58c63296b18c652c6319cb58c63296b18cc958c63296b18c652c6319cb58c63296b18c652c6319cb58c632963119cb58c63296b18c8b8cf38e1dee70873bdce10e77b8c31dee700f77b8c31dee70873bdc61dc090000000000000028b52ffd2009490000ffffffffffffffff01000000000000080200000000000028b52ffd600801750300e2c60708f039ffff3f5a32057f9252929224495292242929494929254992949252023a1000030fcc6cb42c061e78c0c6461b6db4d1461b6db4d146cb62e081071e78e08107ac0cb7d1b21878e0013b1b6db42c0666365a16030f3cf0c0030f3cf0c0cc46cb62e081998d96c58005ffffffff00000000
\.


--
-- Data for Name: pgt_plans; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_plans (pgt_id, plan, planned_at) FROM stdin;
2	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads customer, amount", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by c0 of count(*), sum(c1)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (customer integer, n bigint, total numeric)\\n  Aggregate by c0 of count(*), sum(c1)\\n      key (c0); delta touched groups; carries (int, bigint not null, decimal(38,2))\\n    Scan public.orders reads customer, amount\\n        key none; delta change rows; carries (int, decimal(10,2))\\n\\nrow key: customer\\nreads: public.orders (customer, amount)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by c0 of count(*), sum(c1)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by c0 of count(*), sum(c1)"], "reads": [{"table": "public.orders", "columns": ["customer", "amount"]}], "columns": [{"name": "customer", "type": "integer", "made_of": [["public", "orders", "customer"]]}, {"name": "n", "type": "bigint", "made_of": []}, {"name": "total", "type": "numeric", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": ["customer"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.017419+00
4	{"plan": {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.orders reads id, customer, amount, note", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Filter numeric_gt(c2, 100)", "operator": "Filter", "complexity": "changes"}, "text": "StreamTable (id integer, customer integer, amount numeric(10,2), note text)\\n  Filter numeric_gt(c2, 100)\\n      key (c0); delta linear; carries (int not null, int, decimal(10,2), string)\\n    Scan public.orders reads id, customer, amount, note\\n        key (c0); delta change rows; carries (int not null, int, decimal(10,2), string)\\n\\nrow key: id\\nreads: public.orders (id, customer, amount, note)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.orders", "columns": ["id", "customer", "amount", "note"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "orders", "id"]]}, {"name": "customer", "type": "integer", "made_of": [["public", "orders", "customer"]]}, {"name": "amount", "type": "numeric(10,2)", "made_of": [["public", "orders", "amount"]]}, {"name": "note", "type": "text", "made_of": [["public", "orders", "note"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.070461+00
5	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads placed, note", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by c0 of count(*), count(c1)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (placed date, n bigint, noted bigint)\\n  Aggregate by c0 of count(*), count(c1)\\n      key (c0); delta touched groups; carries (date, bigint not null, bigint not null)\\n    Scan public.orders reads placed, note\\n        key none; delta change rows; carries (date, string)\\n\\nrow key: placed\\nreads: public.orders (placed, note)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by c0 of count(*), count(c1)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by c0 of count(*), count(c1)"], "reads": [{"table": "public.orders", "columns": ["placed", "note"]}], "columns": [{"name": "placed", "type": "date", "made_of": [["public", "orders", "placed"]]}, {"name": "n", "type": "bigint", "made_of": []}, {"name": "noted", "type": "bigint", "made_of": [["public", "orders", "note"]]}], "crossed": [], "in_full": [], "row_key": ["placed"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.091029+00
7	{"text": "PostgreSQL runs the query itself, in full: a system column is not supported at line 4, column 6 [unsupported_column]\\n", "in_full": [{"code": "run_by_postgres", "node": "the query", "reason": "a system column is not supported at line 4, column 6 [unsupported_column]"}], "complexity": "whole_input", "suggestions": ["rewrite what cannot be followed, and only the changes are computed"]}	2026-11-17 19:31:39.160809+00
8	{"plan": {"delta": "linear", "inputs": [{"delta": "bilinear, and rows without a partner by touched keys", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.customers reads id, name, profile", "operator": "Scan", "complexity": "changes"}, {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.orders reads id, customer, amount", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Filter numeric_gt(c2, 330)", "operator": "Filter", "complexity": "changes"}], "row_key": [0, 3], "describe": "LeftJoin on left c0 = right c1", "operator": "OuterJoin", "complexity": "touched_keys"}], "row_key": [0, 3], "describe": "Project c0, c1, c2, c3, c5", "operator": "Project", "complexity": "changes"}, "text": "StreamTable (id integer, name text, profile jsonb, number integer, amount numeric(10,2))\\n  Project c0, c1, c2, c3, c5\\n      key (c0, c3); delta linear; carries (int not null, string, string, int, decimal(10,2))\\n    LeftJoin on left c0 = right c1\\n        key (c0, c3); delta bilinear, and rows without a partner by touched keys; carries (int not null, string, string, int, int, decimal(10,2))\\n      Scan public.customers reads id, name, profile\\n          key (c0); delta change rows; carries (int not null, string, string)\\n      Filter numeric_gt(c2, 330)\\n          key (c0); delta linear; carries (int not null, int, decimal(10,2))\\n        Scan public.orders reads id, customer, amount\\n            key (c0); delta change rows; carries (int not null, int, decimal(10,2))\\n\\nrow key: id, number\\nreads: public.customers (id, name, profile)\\nreads: public.orders (id, customer, amount)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.customers", "columns": ["id", "name", "profile"]}, {"table": "public.orders", "columns": ["id", "customer", "amount"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "customers", "id"]]}, {"name": "name", "type": "text", "made_of": [["public", "customers", "name"]]}, {"name": "profile", "type": "jsonb", "made_of": [["public", "customers", "profile"]]}, {"name": "number", "type": "integer", "made_of": [["public", "orders", "id"]]}, {"name": "amount", "type": "numeric(10,2)", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": ["id", "number"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.191736+00
9	{"plan": {"delta": "what lost a derivation leaves and is derived again; rounds over what changes", "inputs": [{"delta": "linear", "inputs": [{"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.staff reads id, boss", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Filter c1 IS NULL", "operator": "Filter", "complexity": "changes"}], "row_key": [0], "describe": "Project c0, c0", "operator": "Project", "complexity": "changes"}, {"delta": "linear", "inputs": [{"delta": "bilinear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.staff reads id, boss", "operator": "Scan", "complexity": "changes"}, {"delta": "none, within its recursion", "inputs": [], "row_key": null, "describe": "Working rows of recursion 1", "operator": "Working", "complexity": "changes"}], "row_key": null, "describe": "Join on left c1 = right c0", "operator": "Join", "complexity": "matches"}], "row_key": null, "describe": "Project c0, c3", "operator": "Project", "complexity": "changes"}], "row_key": [0, 1], "describe": "Recursion 1 of distinct rows", "operator": "Recursion", "complexity": "changes"}, "text": "StreamTable (id integer, top integer)\\n  Recursion 1 of distinct rows\\n      key (c0, c1); delta what lost a derivation leaves and is derived again; rounds over what changes; carries (int not null, int)\\n    Project c0, c0\\n        key (c0); delta linear; carries (int not null, int not null)\\n      Filter c1 IS NULL\\n          key (c0); delta linear; carries (int not null, int)\\n        Scan public.staff reads id, boss\\n            key (c0); delta change rows; carries (int not null, int)\\n    Project c0, c3\\n        key none; delta linear; carries (int not null, int)\\n      Join on left c1 = right c0\\n          key none; delta bilinear; carries (int not null, int, int, int)\\n        Scan public.staff reads id, boss\\n            key (c0); delta change rows; carries (int not null, int)\\n        Working rows of recursion 1\\n            key none; delta none, within its recursion; carries (int, int)\\n\\nrow key: id, top\\nreads: public.staff (id, boss)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Recursion 1 of distinct rows\\nin full: nothing; every node follows the changes\\n", "keeps": ["Recursion 1 of distinct rows"], "reads": [{"table": "public.staff", "columns": ["id", "boss"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "staff", "id"]]}, {"name": "top", "type": "integer", "made_of": [["public", "staff", "id"]]}], "crossed": [], "in_full": [], "row_key": ["id", "top"], "complexity": "matches", "suggestions": []}	2026-11-17 19:31:39.219005+00
11	{"plan": {"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.events reads kind, payload", "operator": "Scan", "complexity": "changes"}, "text": "StreamTable (kind text, payload jsonb)\\n  Scan public.events reads kind, payload\\n      key none; delta change rows; carries (string, string)\\n\\nrow key: none: equal rows are counted\\nreads: public.events (kind, payload)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.events", "columns": ["kind", "payload"]}], "columns": [{"name": "kind", "type": "text", "made_of": [["public", "events", "kind"]]}, {"name": "payload", "type": "jsonb", "made_of": [["public", "events", "payload"]]}], "crossed": [], "in_full": [], "row_key": null, "complexity": "changes", "suggestions": ["select the columns of a key: equal rows have to be counted without one"]}	2026-11-17 19:31:39.245785+00
13	{"plan": {"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.documents reads id, title, body", "operator": "Scan", "complexity": "changes"}, "text": "StreamTable (id integer, title text, body text)\\n  Scan public.documents reads id, title, body\\n      key (c0); delta change rows; carries (int not null, string, string)\\n\\nrow key: id\\nreads: public.documents (id, title, body)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.documents", "columns": ["id", "title", "body"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "documents", "id"]]}, {"name": "title", "type": "text", "made_of": [["public", "documents", "title"]]}, {"name": "body", "type": "text", "made_of": [["public", "documents", "body"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.26725+00
14	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.measures reads month, v", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by c0 of count(*), max(c1)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (month integer, n bigint, most double precision)\\n  Aggregate by c0 of count(*), max(c1)\\n      key (c0); delta touched groups; carries (int not null, bigint not null, double)\\n    Scan public.measures reads month, v\\n        key none; delta change rows; carries (int not null, double)\\n\\nrow key: month\\nreads: public.measures (month, v)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.measures", "columns": ["month", "v"]}], "columns": [{"name": "month", "type": "integer", "made_of": [["public", "measures", "month"]]}, {"name": "n", "type": "bigint", "made_of": []}, {"name": "most", "type": "double precision", "made_of": [["public", "measures", "v"]]}], "crossed": [], "in_full": [], "row_key": ["month"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.279805+00
15	{"plan": {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan side-ways.Größe & Co reads id, Maß", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Project c0, c1, numeric_mul(c1, 2)", "operator": "Project", "complexity": "changes"}, "text": "StreamTable (id integer, Maß numeric, doppelt so groß numeric)\\n  Project c0, c1, numeric_mul(c1, 2)\\n      key (c0); delta linear; carries (int not null, string, string)\\n    Scan side-ways.Größe & Co reads id, Maß\\n        key (c0); delta change rows; carries (int not null, string)\\n\\nrow key: id\\nreads: side-ways.Größe & Co (id, Maß)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "side-ways.Größe & Co", "columns": ["id", "Maß"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["side-ways", "Größe & Co", "id"]]}, {"name": "Maß", "type": "numeric", "made_of": [["side-ways", "Größe & Co", "Maß"]]}, {"name": "doppelt so groß", "type": "numeric", "made_of": [["side-ways", "Größe & Co", "Maß"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.293467+00
16	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads amount", "operator": "Scan", "complexity": "changes"}], "row_key": [], "describe": "Aggregate of count(*), sum(c0)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (n bigint, total numeric)\\n  Aggregate of count(*), sum(c0)\\n      key (); delta touched groups; carries (bigint not null, decimal(38,2))\\n    Scan public.orders reads amount\\n        key none; delta change rows; carries (decimal(10,2))\\n\\nrow key: one row\\nreads: public.orders (amount)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate of count(*), sum(c0)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate of count(*), sum(c0)"], "reads": [{"table": "public.orders", "columns": ["amount"]}], "columns": [{"name": "n", "type": "bigint", "made_of": []}, {"name": "total", "type": "numeric", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": [], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.311217+00
17	{"plan": {"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.orders reads id, amount, placed", "operator": "Scan", "complexity": "changes"}, "text": "StreamTable (id integer, amount numeric(10,2), placed date)\\n  Scan public.orders reads id, amount, placed\\n      key (c0); delta change rows; carries (int not null, decimal(10,2), date)\\n\\nrow key: id\\nreads: public.orders (id, amount, placed)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.orders", "columns": ["id", "amount", "placed"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "orders", "id"]]}, {"name": "amount", "type": "numeric(10,2)", "made_of": [["public", "orders", "amount"]]}, {"name": "placed", "type": "date", "made_of": [["public", "orders", "placed"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.324903+00
20	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.customers reads segment", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by c0 of count(*)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (segment text, n bigint)\\n  Aggregate by c0 of count(*)\\n      key (c0); delta touched groups; carries (string, bigint not null)\\n    Scan public.customers reads segment\\n        key none; delta change rows; carries (string)\\n\\nrow key: segment\\nreads: public.customers (segment)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by c0 of count(*)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by c0 of count(*)"], "reads": [{"table": "public.customers", "columns": ["segment"]}], "columns": [{"name": "segment", "type": "text", "made_of": [["public", "customers", "segment"]]}, {"name": "n", "type": "bigint", "made_of": []}], "crossed": [], "in_full": [], "row_key": ["segment"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:30:06.102424+00
21	{"plan": {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.ratios reads id, above, below", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Project c0, int4div(c1, c2)", "operator": "Project", "complexity": "changes"}, "text": "StreamTable (id integer, quotient integer)\\n  Project c0, int4div(c1, c2)\\n      key (c0); delta linear; carries (int not null, int)\\n    Scan public.ratios reads id, above, below\\n        key (c0); delta change rows; carries (int not null, int, int)\\n\\nrow key: id\\nreads: public.ratios (id, above, below)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.ratios", "columns": ["id", "above", "below"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "ratios", "id"]]}, {"name": "quotient", "type": "integer", "made_of": [["public", "ratios", "above"], ["public", "ratios", "below"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:30:06.118226+00
1	{"plan": {"delta": "touched groups", "inputs": [{"delta": "bilinear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads customer, amount, placed", "operator": "Scan", "complexity": "changes"}, {"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.customers reads id, segment", "operator": "Scan", "complexity": "changes"}], "row_key": null, "describe": "Join on left c0 = right c0", "operator": "Join", "complexity": "matches"}], "row_key": [0], "describe": "Aggregate by c4 of count(*), sum(c1), avg(c1), min(c2), max(c1)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (segment text, n bigint, total numeric, mean numeric, first date, most numeric)\\n  Aggregate by c4 of count(*), sum(c1), avg(c1), min(c2), max(c1)\\n      key (c0); delta touched groups; carries (string, bigint not null, decimal(38,2), string, date, decimal(10,2))\\n    Join on left c0 = right c0\\n        key none; delta bilinear; carries (int, decimal(10,2), date, int not null, string)\\n      Scan public.orders reads customer, amount, placed\\n          key none; delta change rows; carries (int, decimal(10,2), date)\\n      Scan public.customers reads id, segment\\n          key (c0); delta change rows; carries (int not null, string)\\n\\nrow key: segment\\nreads: public.orders (customer, amount, placed)\\nreads: public.customers (id, segment)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by c4 of count(*), sum(c1), avg(c1), min(c2), max(c1)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by c4 of count(*), sum(c1), avg(c1), min(c2), max(c1)"], "reads": [{"table": "public.orders", "columns": ["customer", "amount", "placed"]}, {"table": "public.customers", "columns": ["id", "segment"]}], "columns": [{"name": "segment", "type": "text", "made_of": [["public", "customers", "segment"]]}, {"name": "n", "type": "bigint", "made_of": []}, {"name": "total", "type": "numeric", "made_of": [["public", "orders", "amount"]]}, {"name": "mean", "type": "numeric", "made_of": [["public", "orders", "amount"]]}, {"name": "first", "type": "date", "made_of": [["public", "orders", "placed"]]}, {"name": "most", "type": "numeric", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": ["segment"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.002364+00
3	{"plan": {"delta": "first rows of the first rows kept, or of the whole input before and after", "inputs": [{"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads customer, amount", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by c0 of sum(c1)", "operator": "Aggregate", "complexity": "touched_keys"}], "row_key": [0], "describe": "TopK first 5 by c1 DESC NULLS LAST, c0", "operator": "TopK", "complexity": "touched_keys"}, "text": "StreamTable (customer integer, total numeric)\\n  TopK first 5 by c1 DESC NULLS LAST, c0\\n      key (c0); delta first rows of the first rows kept, or of the whole input before and after; carries (int, decimal(38,2))\\n    Aggregate by c0 of sum(c1)\\n        key (c0); delta touched groups; carries (int, decimal(38,2))\\n      Scan public.orders reads customer, amount\\n          key none; delta change rows; carries (int, decimal(10,2))\\n\\nrow key: customer\\nreads: public.orders (customer, amount)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by c0 of sum(c1)\\nkeeps of its own: TopK first 5 by c1 DESC NULLS LAST, c0\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by c0 of sum(c1)", "TopK first 5 by c1 DESC NULLS LAST, c0"], "reads": [{"table": "public.orders", "columns": ["customer", "amount"]}], "columns": [{"name": "customer", "type": "integer", "made_of": [["public", "orders", "customer"]]}, {"name": "total", "type": "numeric", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": ["customer"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.050792+00
19	{"plan": {"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.customers reads id, name", "operator": "Scan", "complexity": "changes"}, "text": "StreamTable (id integer, name text)\\n  Scan public.customers reads id, name\\n      key (c0); delta change rows; carries (int not null, string)\\n\\nrow key: id\\nreads: public.customers (id, name)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.customers", "columns": ["id", "name"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "customers", "id"]]}, {"name": "name", "type": "text", "made_of": [["public", "customers", "name"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.350245+00
6	{"plan": {"delta": "touched groups", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.orders reads customer, amount", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Aggregate by int4mod(c0, 5) of count(*), sum(c1)", "operator": "Aggregate", "complexity": "touched_keys"}, "text": "StreamTable (part integer, n bigint, total numeric)\\n  Aggregate by int4mod(c0, 5) of count(*), sum(c1)\\n      key (c0); delta touched groups; carries (int, bigint not null, decimal(38,2))\\n    Scan public.orders reads customer, amount\\n        key none; delta change rows; carries (int, decimal(10,2))\\n\\nrow key: part\\nreads: public.orders (customer, amount)\\nstate: the traces of what is read, shared with every other stream table\\nkeeps of its own: Aggregate by int4mod(c0, 5) of count(*), sum(c1)\\nin full: nothing; every node follows the changes\\n", "keeps": ["Aggregate by int4mod(c0, 5) of count(*), sum(c1)"], "reads": [{"table": "public.orders", "columns": ["customer", "amount"]}], "columns": [{"name": "part", "type": "integer", "made_of": [["public", "orders", "customer"]]}, {"name": "n", "type": "bigint", "made_of": []}, {"name": "total", "type": "numeric", "made_of": [["public", "orders", "amount"]]}], "crossed": [], "in_full": [], "row_key": ["part"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.130444+00
10	{"plan": {"delta": "linear", "inputs": [{"delta": "partitions of c1 touched, before and after", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.orders reads id, customer, amount", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Window of row_number() for each c1 by c2, c0", "operator": "Window", "complexity": "touched_keys"}], "row_key": [0], "describe": "Project c0, c1, c3", "operator": "Project", "complexity": "changes"}, "text": "StreamTable (id integer, customer integer, place bigint)\\n  Project c0, c1, c3\\n      key (c0); delta linear; carries (int not null, int, bigint not null)\\n    Window of row_number() for each c1 by c2, c0\\n        key (c0); delta partitions of c1 touched, before and after; carries (int not null, int, decimal(10,2), bigint not null)\\n      Scan public.orders reads id, customer, amount\\n          key (c0); delta change rows; carries (int not null, int, decimal(10,2))\\n\\nrow key: id\\nreads: public.orders (id, customer, amount)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.orders", "columns": ["id", "customer", "amount"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "orders", "id"]]}, {"name": "customer", "type": "integer", "made_of": [["public", "orders", "customer"]]}, {"name": "place", "type": "bigint", "made_of": [["public", "orders", "amount"], ["public", "orders", "customer"], ["public", "orders", "id"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "touched_keys", "suggestions": []}	2026-11-17 19:31:39.235827+00
12	{"plan": {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": null, "describe": "Scan public.events reads kind, at", "operator": "Scan", "complexity": "changes"}], "row_key": null, "describe": "Filter textne(c0, 'kind 0')", "operator": "Filter", "complexity": "changes"}, "text": "StreamTable (kind text, at timestamp with time zone)\\n  Filter textne(c0, 'kind 0')\\n      key none; delta linear; carries (string, timestamp)\\n    Scan public.events reads kind, at\\n        key none; delta change rows; carries (string, timestamp)\\n\\nrow key: none: equal rows are counted\\nreads: public.events (kind, at)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.events", "columns": ["kind", "at"]}], "columns": [{"name": "kind", "type": "text", "made_of": [["public", "events", "kind"]]}, {"name": "at", "type": "timestamp with time zone", "made_of": [["public", "events", "at"]]}], "crossed": [], "in_full": [], "row_key": null, "complexity": "changes", "suggestions": ["select the columns of a key: equal rows have to be counted without one"]}	2026-11-17 19:31:39.256272+00
18	{"plan": {"delta": "linear", "inputs": [{"delta": "change rows", "inputs": [], "row_key": [0], "describe": "Scan public.customers reads id, name", "operator": "Scan", "complexity": "changes"}], "row_key": [0], "describe": "Filter int4gt(c0, 3)", "operator": "Filter", "complexity": "changes"}, "text": "StreamTable (id integer, name text)\\n  Filter int4gt(c0, 3)\\n      key (c0); delta linear; carries (int not null, string)\\n    Scan public.customers reads id, name\\n        key (c0); delta change rows; carries (int not null, string)\\n\\nrow key: id\\nreads: public.customers (id, name)\\nstate: the traces of what is read, shared with every other stream table\\nin full: nothing; every node follows the changes\\n", "keeps": [], "reads": [{"table": "public.customers", "columns": ["id", "name"]}], "columns": [{"name": "id", "type": "integer", "made_of": [["public", "customers", "id"]]}, {"name": "name", "type": "text", "made_of": [["public", "customers", "name"]]}], "crossed": [], "in_full": [], "row_key": ["id"], "complexity": "changes", "suggestions": []}	2026-11-17 19:31:39.334633+00
\.


--
-- Data for Name: pgt_recaptures; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_recaptures (source_relid, epoch, requested_at) FROM stdin;
\.


--
-- Data for Name: pgt_refresh_history; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_refresh_history (refresh_id, pgt_id, start_time, end_time, action, refresh_reason, rows_inserted, rows_deleted, tick_watermark_lsn, status, error_message, refresh_reason_detail, initiated_by, rows_in, compute_ms, write_ms, from_lsn) FROM stdin;
1	7	2026-11-17 19:30:08.412027+00	2026-11-17 19:30:08.518067+00	FULL_IN_POSTGRES	INITIAL	140	0	0/1CD1B60	COMPLETED	\N	\N	INITIAL	0	61.28217399987079	38.14168400003837	0/0
2	1	2026-11-17 19:30:10.112258+00	2026-11-17 19:30:27.734338+00	FULL	INITIAL	3	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	9873.396680000042	7.0820309999817255	0/0
3	2	2026-11-17 19:30:10.113751+00	2026-11-17 19:30:27.747632+00	FULL	INITIAL	40	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	9023.828289999983	3.558980999969208	0/0
4	3	2026-11-17 19:30:10.115978+00	2026-11-17 19:30:27.758305+00	FULL	INITIAL	5	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	15169.64252699995	3.6526849999063415	0/0
5	4	2026-11-17 19:30:10.118096+00	2026-11-17 19:30:27.782725+00	FULL	INITIAL	220	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	2597.240963999866	18.391104000102132	0/0
6	5	2026-11-17 19:30:12.715489+00	2026-11-17 19:30:27.790414+00	FULL	INITIAL	50	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	6436.979697999959	2.214433999824905	0/0
7	6	2026-11-17 19:30:19.137678+00	2026-11-17 19:30:27.797414+00	FULL	INITIAL	5	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	4481.937281	2.0972140000594663	0/0
8	8	2026-11-17 19:30:19.152575+00	2026-11-17 19:30:27.805133+00	FULL	INITIAL	40	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	2598.8320460000978	2.732400000013513	0/0
9	9	2026-11-17 19:30:19.995079+00	2026-11-17 19:30:27.814028+00	FULL	INITIAL	30	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	3040.681627999902	3.4037600000829116	0/0
10	10	2026-11-17 19:30:21.751551+00	2026-11-17 19:30:27.830963+00	FULL	INITIAL	300	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	3311.331504000009	11.396207999951002	0/0
11	11	2026-11-17 19:30:23.035894+00	2026-11-17 19:30:27.838461+00	FULL	INITIAL	120	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	408.9369619998706	4.898893000017779	0/0
12	12	2026-11-17 19:30:23.444968+00	2026-11-17 19:30:27.860499+00	FULL	INITIAL	96	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	330.49194599993825	19.391823999967528	0/0
13	13	2026-11-17 19:30:23.619738+00	2026-11-17 19:30:27.87257+00	FULL	INITIAL	12	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	472.5897759999498	7.148059999963152	0/0
14	14	2026-11-17 19:30:23.775596+00	2026-11-17 19:30:27.880509+00	FULL	INITIAL	12	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	2506.7955449999317	2.542773999948622	0/0
15	15	2026-11-17 19:30:24.092476+00	2026-11-17 19:30:27.891463+00	FULL	INITIAL	15	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	555.260644999862	3.8349559999915073	0/0
16	16	2026-11-17 19:30:24.647865+00	2026-11-17 19:30:27.896176+00	FULL	INITIAL	1	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	2755.020067000032	2.775874000008116	0/0
17	17	2026-11-17 19:30:25.063004+00	2026-11-17 19:30:27.926009+00	FULL	INITIAL	300	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	296.4707990001898	20.94208600010461	0/0
18	18	2026-11-17 19:30:25.297237+00	2026-11-17 19:30:27.938587+00	FULL	INITIAL	37	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	339.8748639999667	6.406384999991133	0/0
19	19	2026-11-17 19:30:25.359605+00	2026-11-17 19:30:27.947748+00	FULL	INITIAL	40	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	181.70429800011334	3.025674999889816	0/0
20	20	2026-11-17 19:30:25.541436+00	2026-11-17 19:30:27.957202+00	FULL	INITIAL	3	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	2181.5441679998457	3.525909000018146	0/0
21	21	2026-11-17 19:30:25.637289+00	2026-11-17 19:30:27.972634+00	FULL	INITIAL	20	0	0/1CD1B28	COMPLETED	\N	\N	INITIAL	0	456.49299199999405	6.80154500014396	0/0
22	1	2026-11-17 19:30:36.375178+00	2026-11-17 19:30:39.673905+00	DIFFERENTIAL	MODE	3	3	0/1D0D0B8	COMPLETED	\N	\N	MANUAL	162	3134.8101369999313	11.85203999989426	0/1D05DF0
23	2	2026-11-17 19:30:36.375829+00	2026-11-17 19:30:39.679063+00	DIFFERENTIAL	MODE	40	40	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	633.6075330000313	4.268606000096042	0/1D05DF0
24	3	2026-11-17 19:30:36.378177+00	2026-11-17 19:30:39.685961+00	DIFFERENTIAL	MODE	5	5	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	2215.533581000045	5.804531999956453	0/1D05DF0
25	4	2026-11-17 19:30:36.378316+00	2026-11-17 19:30:39.693151+00	DIFFERENTIAL	INCREMENTAL	50	32	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	320.23090600000614	6.107218999886754	0/1D05DF0
26	5	2026-11-17 19:30:36.698651+00	2026-11-17 19:30:39.699674+00	DIFFERENTIAL	MODE	43	34	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	522.3870419999912	5.604118999826824	0/1D05DF0
27	6	2026-11-17 19:30:37.009589+00	2026-11-17 19:30:39.710856+00	FULL	MODE	5	5	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	514.6685949998755	10.186467000039556	0/1D05DF0
28	8	2026-11-17 19:30:37.2212+00	2026-11-17 19:30:39.715738+00	DIFFERENTIAL	INCREMENTAL	6	6	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	2437.1132999999645	4.273899000054371	0/1D05DF0
29	10	2026-11-17 19:30:37.524421+00	2026-11-17 19:30:39.730539+00	DIFFERENTIAL	MODE	253	205	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	1977.1942659999695	14.105344999961744	0/1D05DF0
30	17	2026-11-17 19:30:38.593946+00	2026-11-17 19:30:39.772559+00	DIFFERENTIAL	MODE	92	44	0/1D0D0B8	COMPLETED	\N	\N	SCHEDULER	162	204.309190999993	33.140261999960785	0/1D05DF0
31	7	2026-11-17 19:30:36.37116+00	2026-11-17 19:30:39.954963+00	FULL_IN_POSTGRES	QUERY_REFUSED	12	20	0/1D17828	COMPLETED	\N	\N	SCHEDULER	162	38.957345999961035	12.433011999974042	0/1D046E8
32	1	2026-11-17 19:30:39.979867+00	2026-11-17 19:30:43.381503+00	DIFFERENTIAL	MODE	3	2	0/1D1AEA0	COMPLETED	\N	\N	MANUAL	12	2704.2832340000587	5.330869000090388	0/1D0D0B8
33	8	2026-11-17 19:30:39.983091+00	2026-11-17 19:30:43.385646+00	DIFFERENTIAL	INCREMENTAL	6	6	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	12	1584.3460379999215	3.463984000063647	0/1D0D0B8
34	9	2026-11-17 19:30:39.985571+00	2026-11-17 19:30:43.390442+00	DIFFERENTIAL	MODE	5	4	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	3	3388.90055700017	4.140476999964449	0/1D0D0B8
35	11	2026-11-17 19:30:39.993244+00	2026-11-17 19:30:43.397553+00	DIFFERENTIAL	MODE	5	1	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	8	107.29906599999595	6.516631000067719	0/1D0D0B8
36	12	2026-11-17 19:30:40.100628+00	2026-11-17 19:30:43.398732+00	DIFFERENTIAL	INCREMENTAL	4	0	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	8	247.6100859998951	0.7792080000399437	0/1D0D0B8
37	13	2026-11-17 19:30:40.34834+00	2026-11-17 19:30:43.403586+00	DIFFERENTIAL	MODE	4	4	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	8	165.90566700006093	4.474548999951367	0/1D0D0B8
38	15	2026-11-17 19:30:40.514322+00	2026-11-17 19:30:43.407397+00	DIFFERENTIAL	MODE	1	1	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	2	282.88784999995187	3.4187020000899793	0/1D0D0B8
39	18	2026-11-17 19:30:40.797365+00	2026-11-17 19:30:43.411251+00	DIFFERENTIAL	MODE	1	1	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	12	239.43178400008946	3.4498979998716095	0/1D0D0B8
40	19	2026-11-17 19:30:41.036938+00	2026-11-17 19:30:43.415501+00	DIFFERENTIAL	MODE	1	1	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	12	37.88387400004467	3.793396999981269	0/1D0D0B8
41	20	2026-11-17 19:30:41.074944+00	2026-11-17 19:30:43.422562+00	DIFFERENTIAL	MODE	2	1	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	12	460.899536999932	6.358921000128248	0/1D0D0B8
42	21	2026-11-17 19:30:41.536011+00	2026-11-17 19:30:43.427426+00	DIFFERENTIAL	MODE	1	0	0/1D1AEA0	COMPLETED	\N	\N	SCHEDULER	1	136.08735699995123	4.437510999878214	0/1D0D0B8
43	14	2026-11-17 19:30:46.731892+00	2026-11-17 19:30:47.526711+00	DIFFERENTIAL	MODE	6	6	0/1D8FDE0	COMPLETED	\N	\N	MANUAL	16	779.8165120000249	12.192402999971819	0/1D026A0
44	16	2026-11-17 19:30:48.303132+00	2026-11-17 19:30:48.471033+00	DIFFERENTIAL	INCREMENTAL	1	1	0/1D96748	COMPLETED	\N	\N	MANUAL	162	159.36409199980517	6.530647000090539	0/1D036F8
45	21	2026-11-17 19:30:50.02407+00	2026-11-17 19:30:50.172763+00	DIFFERENTIAL	MODE	0	0	0/1D9E618	FAILED	the query of public.divided fails on the data: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012	\N	SCHEDULER	1	148.49746000004416	0	0/1D9DD60
47	1	2026-11-17 19:30:51.347055+00	2026-11-17 19:30:55.77001+00	DIFFERENTIAL	MODE	4	4	0/1DAF468	COMPLETED	\N	\N	MANUAL	188	2674.6645179998723	4.102644999875338	0/1D9E618
46	21	2026-11-17 19:30:50.687728+00	2026-11-17 19:30:50.867263+00	DIFFERENTIAL	MODE	0	0	0/1D9E618	FAILED	the query of public.divided fails on the data: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012	\N	SCHEDULER	1	179.27248099999815	0	0/1D9DD60
48	2	2026-11-17 19:30:51.348312+00	2026-11-17 19:30:55.77416+00	DIFFERENTIAL	MODE	40	40	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	275.4442749999271	3.3950130000448553	0/1D9E618
49	3	2026-11-17 19:30:51.348778+00	2026-11-17 19:30:55.779322+00	DIFFERENTIAL	MODE	5	5	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	1544.8760719998518	4.675248000012289	0/1D9E618
50	4	2026-11-17 19:30:51.348951+00	2026-11-17 19:30:55.786676+00	DIFFERENTIAL	INCREMENTAL	69	36	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	212.2733060000428	6.547249000050215	0/1D9E618
51	5	2026-11-17 19:30:51.56131+00	2026-11-17 19:30:55.789986+00	DIFFERENTIAL	MODE	42	42	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	276.61901500005115	2.5364210000589082	0/1D9E618
52	6	2026-11-17 19:30:51.623885+00	2026-11-17 19:30:55.803839+00	FULL	MODE	5	5	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	210.83301499993468	12.256350999905408	0/1D9E618
53	8	2026-11-17 19:30:51.834807+00	2026-11-17 19:30:55.80892+00	DIFFERENTIAL	INCREMENTAL	10	10	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	188	3286.128405999989	3.722562999882939	0/1D9E618
54	9	2026-11-17 19:30:51.837992+00	2026-11-17 19:30:55.812062+00	DIFFERENTIAL	MODE	5	4	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	3	3925.218180999991	2.781524000056379	0/1D9E618
55	10	2026-11-17 19:30:52.893771+00	2026-11-17 19:30:55.824776+00	DIFFERENTIAL	MODE	252	208	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	2316.323911999916	12.22160200018152	0/1D9E618
56	11	2026-11-17 19:30:54.021842+00	2026-11-17 19:30:55.827195+00	DIFFERENTIAL	MODE	6	2	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	8	235.41241000020818	2.081224999983533	0/1D9E618
57	12	2026-11-17 19:30:54.257359+00	2026-11-17 19:30:55.828478+00	DIFFERENTIAL	INCREMENTAL	4	0	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	8	143.80604899997707	0.8503940000537114	0/1D9E618
58	13	2026-11-17 19:30:54.406017+00	2026-11-17 19:30:55.831414+00	DIFFERENTIAL	MODE	4	4	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	8	77.78988299992307	2.5164769999719283	0/1D9E618
59	15	2026-11-17 19:30:54.483925+00	2026-11-17 19:30:55.834075+00	DIFFERENTIAL	MODE	1	1	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	2	54.44152299992311	2.189628999985871	0/1D9E618
60	18	2026-11-17 19:30:54.570034+00	2026-11-17 19:30:55.836498+00	DIFFERENTIAL	MODE	1	1	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	12	53.848831999857794	2.0728070001041488	0/1D9E618
61	19	2026-11-17 19:30:54.624077+00	2026-11-17 19:30:55.8391+00	DIFFERENTIAL	MODE	1	1	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	12	20.565562999991016	2.18685100003313	0/1D9E618
62	20	2026-11-17 19:30:54.644718+00	2026-11-17 19:30:55.841734+00	DIFFERENTIAL	MODE	2	2	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	12	233.46907600011946	2.1988479998071853	0/1D9E618
63	17	2026-11-17 19:30:54.538468+00	2026-11-17 19:30:55.885795+00	DIFFERENTIAL	MODE	97	53	0/1DAF468	COMPLETED	\N	\N	SCHEDULER	176	31.479828000101406	34.37523799993869	0/1D9E618
64	7	2026-11-17 19:30:51.345718+00	2026-11-17 19:30:56.058217+00	FULL_IN_POSTGRES	QUERY_REFUSED	18	19	0/1DAF5A8	COMPLETED	\N	\N	SCHEDULER	176	51.30536399997254	10.735912000200187	0/1D9E618
65	14	2026-11-17 19:30:59.192342+00	2026-11-17 19:30:59.869566+00	DIFFERENTIAL	MODE	6	6	0/1DE3FA0	COMPLETED	\N	\N	MANUAL	16	669.6886799998083	4.943524000054822	0/1D8FDE0
66	16	2026-11-17 19:31:00.320148+00	2026-11-17 19:31:00.554309+00	DIFFERENTIAL	INCREMENTAL	1	1	0/1DE5E58	COMPLETED	\N	\N	MANUAL	176	217.86073100020076	12.144103000082396	0/1D96748
67	1	2026-11-17 19:31:45.180279+00	2026-11-17 19:31:56.34572+00	DIFFERENTIAL	MODE	4	4	0/1E6B000	COMPLETED	\N	\N	MANUAL	196	6232.046048000029	14.39596399995935	0/1DE9A70
68	2	2026-11-17 19:31:45.189152+00	2026-11-17 19:31:56.354699+00	DIFFERENTIAL	MODE	40	40	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	3336.05407999994	6.538406000117902	0/1DE9A70
69	3	2026-11-17 19:31:45.189441+00	2026-11-17 19:31:56.364539+00	DIFFERENTIAL	MODE	5	5	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	9281.164629000159	8.78942500003177	0/1DE9A70
70	4	2026-11-17 19:31:45.189648+00	2026-11-17 19:31:56.37471+00	DIFFERENTIAL	INCREMENTAL	78	41	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	528.0378680001832	8.974744999932227	0/1DE9A70
71	5	2026-11-17 19:31:45.717844+00	2026-11-17 19:31:56.381947+00	DIFFERENTIAL	MODE	40	40	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	2658.0935190002037	5.9358570001677435	0/1DE9A70
72	6	2026-11-17 19:31:48.376162+00	2026-11-17 19:31:56.399698+00	FULL	MODE	5	5	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	1325.2232369998183	15.520902000162096	0/1DE9A70
73	8	2026-11-17 19:31:48.525357+00	2026-11-17 19:31:56.415338+00	DIFFERENTIAL	INCREMENTAL	10	10	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	196	6108.61720600019	9.385963000113406	0/1DE9A70
74	9	2026-11-17 19:31:49.701532+00	2026-11-17 19:31:56.421943+00	DIFFERENTIAL	MODE	5	4	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	3	6617.889215000105	5.7691800000156945	0/1DE9A70
75	10	2026-11-17 19:31:51.412437+00	2026-11-17 19:31:56.437728+00	DIFFERENTIAL	MODE	239	199	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	2914.93588000003	14.641749000020354	0/1DE9A70
76	11	2026-11-17 19:31:54.327512+00	2026-11-17 19:31:56.447241+00	DIFFERENTIAL	MODE	5	1	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	8	189.3834339998648	8.439257999953043	0/1DE9A70
77	12	2026-11-17 19:31:54.470724+00	2026-11-17 19:31:56.453731+00	DIFFERENTIAL	INCREMENTAL	4	0	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	8	257.47748100002354	5.661900999939462	0/1DE9A70
78	13	2026-11-17 19:31:54.516984+00	2026-11-17 19:31:56.473123+00	DIFFERENTIAL	MODE	4	4	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	8	184.02885099999367	18.330011999978524	0/1DE9A70
79	14	2026-11-17 19:31:54.634126+00	2026-11-17 19:31:56.477707+00	DIFFERENTIAL	MODE	6	6	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	16	1122.955495000042	3.8912309998977435	0/1DE5E58
80	15	2026-11-17 19:31:54.7011+00	2026-11-17 19:31:56.481748+00	DIFFERENTIAL	MODE	1	1	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	2	126.4030059999186	3.3886319999965053	0/1DE9A70
81	18	2026-11-17 19:31:54.827594+00	2026-11-17 19:31:56.485572+00	DIFFERENTIAL	MODE	1	1	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	12	128.342542999917	3.3027839999704156	0/1DE9A70
82	19	2026-11-17 19:31:54.878409+00	2026-11-17 19:31:56.490324+00	DIFFERENTIAL	MODE	1	1	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	12	55.50203099983264	4.368909000049825	0/1DE9A70
83	17	2026-11-17 19:31:54.728325+00	2026-11-17 19:31:56.534691+00	DIFFERENTIAL	MODE	99	59	0/1E6B000	COMPLETED	\N	\N	SCHEDULER	184	149.995749000027	29.561020000073768	0/1DE9A70
84	7	2026-11-17 19:31:45.168419+00	2026-11-17 19:31:56.890047+00	FULL_IN_POSTGRES	QUERY_REFUSED	34	18	0/1EB68D0	COMPLETED	\N	\N	SCHEDULER	184	63.892004000081215	17.971897999814246	0/1DE8C30
85	16	2026-11-17 19:32:00.912833+00	2026-11-17 19:32:01.525472+00	DIFFERENTIAL	INCREMENTAL	1	1	0/1F28188	COMPLETED	\N	\N	MANUAL	184	605.2904059999946	5.8741759999065835	0/1DE67B0
86	1	2026-11-17 19:32:31.420706+00	2026-11-17 19:32:35.133633+00	DIFFERENTIAL	MODE	4	4	0/202F330	COMPLETED	\N	\N	MANUAL	188	3666.5857979999146	12.292323999872679	0/2001008
87	2	2026-11-17 19:32:31.42671+00	2026-11-17 19:32:35.149268+00	DIFFERENTIAL	MODE	39	39	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	470.1703709999947	11.970242999950642	0/2001008
88	3	2026-11-17 19:32:31.426853+00	2026-11-17 19:32:35.161693+00	DIFFERENTIAL	MODE	5	5	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	2286.771994000219	6.564564999962386	0/2001008
89	4	2026-11-17 19:32:31.426958+00	2026-11-17 19:32:35.176626+00	DIFFERENTIAL	INCREMENTAL	79	45	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	225.55224200004886	13.173599000083414	0/2001008
90	5	2026-11-17 19:32:31.652616+00	2026-11-17 19:32:35.188792+00	DIFFERENTIAL	MODE	40	40	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	434.317867000118	10.26823800020793	0/2001008
91	6	2026-11-17 19:32:31.897065+00	2026-11-17 19:32:35.215623+00	FULL	MODE	5	5	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	1046.452097999918	24.174259999881542	0/2001008
92	8	2026-11-17 19:32:32.087081+00	2026-11-17 19:32:35.22408+00	DIFFERENTIAL	INCREMENTAL	9	4	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	3025.839734999863	7.524676999992153	0/2001008
93	10	2026-11-17 19:32:32.94376+00	2026-11-17 19:32:35.250029+00	DIFFERENTIAL	MODE	218	182	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	1660.9484479999992	21.61670299983598	0/2001008
94	17	2026-11-17 19:32:33.713834+00	2026-11-17 19:32:35.372322+00	DIFFERENTIAL	MODE	99	63	0/202F330	COMPLETED	\N	\N	SCHEDULER	188	223.23660799997924	99.73025799990864	0/2001008
95	7	2026-11-17 19:32:31.423679+00	2026-11-17 19:32:35.7147+00	FULL_IN_POSTGRES	QUERY_REFUSED	45	20	0/203A830	COMPLETED	\N	\N	SCHEDULER	188	64.56069899991235	16.76919999999882	0/2001008
96	1	2026-11-17 19:32:35.748089+00	2026-11-17 19:32:38.381618+00	DIFFERENTIAL	MODE	3	3	0/203E0D8	COMPLETED	\N	\N	MANUAL	12	1538.5490900000605	12.215576000016881	0/202F330
97	8	2026-11-17 19:32:35.753264+00	2026-11-17 19:32:38.397589+00	DIFFERENTIAL	INCREMENTAL	7	7	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	12	1265.8384889998615	14.227709999886429	0/202F330
98	9	2026-11-17 19:32:35.756532+00	2026-11-17 19:32:38.406258+00	DIFFERENTIAL	MODE	5	4	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	3	2604.201957999976	7.151102999841896	0/202F330
99	11	2026-11-17 19:32:35.758291+00	2026-11-17 19:32:38.415141+00	DIFFERENTIAL	MODE	5	1	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	8	146.81276099986462	7.835165999949822	0/202F330
100	12	2026-11-17 19:32:35.905225+00	2026-11-17 19:32:38.41865+00	DIFFERENTIAL	INCREMENTAL	4	0	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	8	122.84376100001282	2.8638660000979144	0/202F330
101	13	2026-11-17 19:32:36.028173+00	2026-11-17 19:32:38.427081+00	DIFFERENTIAL	MODE	4	4	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	8	170.1278089999505	7.062147000169716	0/202F330
102	15	2026-11-17 19:32:36.19841+00	2026-11-17 19:32:38.431881+00	DIFFERENTIAL	MODE	1	1	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	2	197.9811180001434	3.7117689998922287	0/202F330
103	18	2026-11-17 19:32:36.396526+00	2026-11-17 19:32:38.435717+00	DIFFERENTIAL	MODE	1	1	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	12	186.38433800015264	3.2860770002116624	0/202F330
104	19	2026-11-17 19:32:36.583005+00	2026-11-17 19:32:38.441235+00	DIFFERENTIAL	MODE	1	1	0/203E0D8	COMPLETED	\N	\N	SCHEDULER	12	61.07898999994177	4.939900999943347	0/202F330
105	14	2026-11-17 19:32:41.481315+00	2026-11-17 19:32:41.935815+00	DIFFERENTIAL	MODE	6	6	0/2070928	COMPLETED	\N	\N	MANUAL	16	448.6738289999721	4.333707999876424	0/202F330
106	16	2026-11-17 19:32:42.31571+00	2026-11-17 19:32:42.466557+00	DIFFERENTIAL	INCREMENTAL	1	1	0/209D458	COMPLETED	\N	\N	MANUAL	188	147.1810440000354	2.8270150000935246	0/2001008
\.


--
-- Data for Name: pgt_runtime; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_runtime (pgt_id, effective_refresh_mode, effective_reason, consecutive_errors, next_refresh_at) FROM stdin;
20	DIFFERENTIAL	MODE	0	\N
21	DIFFERENTIAL	MODE	1	\N
1	DIFFERENTIAL	MODE	0	\N
2	DIFFERENTIAL	MODE	0	\N
3	DIFFERENTIAL	MODE	0	\N
4	DIFFERENTIAL	INCREMENTAL	0	\N
5	DIFFERENTIAL	MODE	0	\N
6	FULL	MODE	0	\N
8	DIFFERENTIAL	INCREMENTAL	0	\N
9	DIFFERENTIAL	MODE	0	\N
10	DIFFERENTIAL	MODE	0	\N
11	DIFFERENTIAL	MODE	0	\N
12	DIFFERENTIAL	INCREMENTAL	0	\N
13	DIFFERENTIAL	MODE	0	\N
15	DIFFERENTIAL	MODE	0	\N
18	DIFFERENTIAL	MODE	0	\N
19	DIFFERENTIAL	MODE	0	\N
17	DIFFERENTIAL	MODE	0	\N
7	FULL_IN_POSTGRES	QUERY_REFUSED	0	\N
16	DIFFERENTIAL	INCREMENTAL	0	2026-12-31 23:59:00+00
14	DIFFERENTIAL	MODE	0	2026-11-17 19:33:00+00
\.


--
-- Data for Name: pgt_schema_version; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_schema_version (version, name, applied_at) FROM stdin;
1	0001_catalog.sql	2026-11-17 19:29:46.426733+00
2	0002_sources.sql	2026-11-17 19:29:46.426733+00
3	0003_control_plane.sql	2026-11-17 19:29:46.426733+00
4	0004_sinks.sql	2026-11-17 19:29:46.426733+00
5	0005_scheduling.sql	2026-11-17 19:29:46.426733+00
6	0006_alterations.sql	2026-11-17 19:29:46.426733+00
\.


--
-- Data for Name: pgt_service; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_service (applier, state, frontier, since) FROM stdin;
pg_trickle	RUNNING	0/1D9DD60	2026-11-17 19:31:39.605732+00
\.


--
-- Data for Name: pgt_setting_definitions; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_setting_definitions (name, program, kind, default_value, min_value, max_value, options, pattern, live, settable, description) FROM stdin;
batch_max_rows	pg-trickle-cdc	integer	10000	1	1000000	\N	\N	f	t	rows after which a Kafka transaction ends with the next commit
catch_up_rows	pg-trickle-applier	integer	100000	1000	10000000	\N	\N	t	t	most change rows followed in one refresh; who is further behind comes up in steps
checkpoint_rows	pg-trickle-applier	integer	10000	100	10000000	\N	\N	t	t	rows a trace holds in memory before they go to its Delta table
copy_chunk_pages	pg-trickle-cdc	integer	4096	1	1000000	\N	\N	f	t	pages of a table that one COPY reads when it is captured
copy_connections	pg-trickle-cdc	integer	4	1	64	\N	\N	f	t	connections that copy a large table's chunks at the same time
deep_join_l0_scan_threshold	pg-trickle-applier	integer	4	2	1000	\N	\N	f	t	relations in one join beyond which a stream table is said to be deep; nothing else changes
delta_interval_ms	pg-trickle-applier	integer	1000	100	3600000	\N	\N	t	t	least time between two MERGEs into a Delta stream table
delta_retention_hours	pg-trickle-applier	integer	168	1	87600	\N	\N	t	t	how long old versions of Delta stream tables can be read
delta_root	pg-trickle-applier	text	pg_trickle_delta	\N	\N	\N	\N	f	f	folder or URI below which Delta stream tables live
delta_sink	pg-trickle-applier	boolean	true	\N	\N	\N	\N	f	t	keep every stream table in Delta Lake too
delta_tidy_interval_s	pg-trickle-applier	integer	3600	1	604800	\N	\N	t	t	every so many seconds small files of Delta stream tables are joined and old ones deleted
differential_max_change_ratio	pg-trickle-applier	number	0.15	0.0	1.0	\N	\N	t	t	AUTO: share of the sources' rows that may change before the whole is computed
heartbeat_ms	pg-trickle-cdc	integer	10000	100	600000	\N	\N	f	t	how often an idle position is published and the publications are looked at for new tables
history_retention_days	pg-trickle-applier	integer	90	1	36500	\N	\N	t	t	how long refreshes stay in pgtrickle.pgt_refresh_history
linger_ms	pg-trickle-cdc	integer	5	0	10000	\N	\N	f	t	how long finished commits wait for others to share a Kafka transaction
log_format	both	choice	text	\N	\N	{text,json}	\N	f	f	one line of text or one JSON object
log_level	both	choice	info	\N	\N	{debug,info,warning,error}	\N	f	t	least level logged
max_buffer_rows	pg-trickle-applier	integer	1000000	10000	1000000000	\N	\N	t	t	change rows kept for stream tables that stand still; beyond, they are computed anew as a whole
max_consecutive_errors	pg-trickle-applier	integer	3	1	1000	\N	\N	t	t	failed refreshes in a row after which a stream table is suspended
max_offsets_per_trigger	pg-trickle-applier	integer	50000	1000	10000000	\N	\N	f	t	most messages read from Kafka in one go
max_parallel_workers	pg-trickle-applier	integer	4	1	64	\N	\N	t	t	stream tables computed at the same time
memory_budget_mb	pg-trickle-applier	integer	1024	0	1000000	\N	\N	f	t	what may be kept ready of the relations, after the filters of stream tables; 0 keeps nothing
metrics_host	both	text	127.0.0.1	\N	\N	\N	\N	f	f	address of /metrics, /healthz and /readyz
mode	pg-trickle-cdc	choice	log	\N	\N	{log,sidecar,remote}	\N	f	f	where change rows go: Kafka topics, change-buffer tables in the source database, or such tables in another one
part3_max_scan_count	pg-trickle-applier	integer	5	2	1000	\N	\N	f	t	relations read by a query beyond which the same is said
pipeline_batch_size	pg-trickle-applier	integer	4096	1	1000000	\N	\N	t	t	rows per COPY + MERGE batch of one window
publication_prefix	pg-trickle-applier	text	trickle_out	\N	\N	\N	\N	f	f	first part of the topics that stream tables publish to
publications	pg-trickle-cdc	list	pg_trickle	\N	\N	\N	\N	f	t	publications to stream, a comma list or a JSON list; missing ones are created empty
publish_sink	pg-trickle-applier	boolean	true	\N	\N	\N	\N	f	t	publish every stream table's changes to its topic
replica_identity	pg-trickle-applier	choice	full	\N	\N	{full,keep}	\N	t	t	full: sources get REPLICA IDENTITY FULL; keep: those with a key stay as they are, their old rows are completed by what the applier holds of them
ring_buffer_slots	pg-trickle-cdc	integer	65536	1000	10000000	\N	\N	f	t	messages kept in memory while the sink is slow or away; what comes then goes to disk
ring_buffer_sources	pg-trickle-cdc	list	auto	\N	\N	\N	\N	f	t	whose changes are received on while the sink is away: off, auto (tables with more than 10 000 rows/s), or a list of schema.table
ring_spill_folder	pg-trickle-cdc	text		\N	\N	\N	\N	f	f	where the ring's overflow goes, the system's default if empty
ring_spill_max_mb	pg-trickle-cdc	integer	4096	0	10000000	\N	\N	f	t	most the ring may keep on disk; then the server keeps the rest
scratch_dir	pg-trickle-applier	text	\N	\N	\N	\N	\N	f	f	local folder for Spark's own files; nothing in it must survive a restart
self_check_interval_s	pg-trickle-applier	integer	0	0	86400	\N	\N	t	t	every so many seconds some rows of one stream table are compared with its query; 0 is off
slot	both	text	pg_trickle	\N	\N	\N	^[a-z0-9_]{1,63}$	f	f	replication slot; also the key of the progress record
slot_wait_s	pg-trickle-cdc	integer	0	0	86400	\N	\N	f	t	how long to stand by while another instance streams from the slot, 0 without end
sources_elsewhere	pg-trickle-applier	boolean	false	\N	\N	\N	\N	f	t	the topics are of another database; the tables here only tell queries what columns there are
spark_driver_memory	pg-trickle-applier	text	2g	\N	\N	\N	^\\d+[mg]$	f	f	heap of the Spark driver
spark_master	pg-trickle-applier	text	local[*]	\N	\N	\N	\N	f	f	Spark master URL
staging_rows	pg-trickle-applier	integer	200000	1	1000000000	\N	\N	f	t	what reads or changes more rows than this does not pass through the driver
state_dir	pg-trickle-applier	text	pg_trickle_state	\N	\N	\N	\N	f	f	folder or URI of the traces' Delta tables
target_lock_timeout_ms	pg-trickle-applier	integer	30000	0	3600000	\N	\N	f	t	how long to wait for a lock somebody holds on a stream table before it is suspended; 0 for ever
topic_partitions	pg-trickle-cdc	integer	1	1	1000	\N	\N	f	t	partitions of a new table topic
topic_prefix	both	text	trickle	\N	\N	\N	\N	f	f	first part of every source topic's name
topic_retention_ms	pg-trickle-cdc	integer	-1	-1	\N	\N	\N	f	t	retention of a new table topic; -1 keeps every change row
transaction_max_s	pg-trickle-cdc	integer	300	0	800	\N	\N	f	t	seconds after which a long copy or source commit goes on in another Kafka transaction; stay below the broker's transaction.max.timeout.ms
wal_max_changes_per_poll	pg-trickle-cdc	integer	10000	1	1000000	\N	\N	f	t	messages taken from the replication connection at once
wal_max_lag_bytes	pg-trickle-cdc	integer	65536	0	1099511627776	\N	\N	f	t	log that may be unpublished without a word; more than this for two heartbeats is a warning
wal_sender_timeout_s	pg-trickle-cdc	integer	6	3	3600	\N	\N	f	t	after so long without a sign of life the server frees the slot for a standby (wal_sender_timeout of our session)
\.


--
-- Data for Name: pgt_settings; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_settings (name, value, set_by, set_at) FROM stdin;
pipeline_batch_size	64	postgres	2026-11-17 19:30:03.762474+00
max_consecutive_errors	2	postgres	2026-11-17 19:30:03.76654+00
checkpoint_rows	5000	postgres	2026-11-17 19:30:03.767338+00
heartbeat_ms	2000	postgres	2026-11-17 19:30:03.76831+00
log_level	info	postgres	2026-11-17 19:30:03.769036+00
delta_interval_ms	400	postgres	2026-11-17 19:32:43.176397+00
\.


--
-- Data for Name: pgt_settings_in_use; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_settings_in_use (program, name, value, source) FROM stdin;
pg-trickle-applier	topic_prefix	trickle	default
pg-trickle-applier	slot	pg_trickle	default
pg-trickle-applier	metrics_host	127.0.0.1	environment
pg-trickle-applier	log_format	text	default
pg-trickle-applier	log_level	info	setting
pg-trickle-applier	publication_prefix	trickle_out	default
pg-trickle-applier	delta_root	/tmp/pg-trickle-installation-33praam4/delta	environment
pg-trickle-applier	state_dir	/tmp/pg-trickle-installation-33praam4/state	environment
pg-trickle-applier	scratch_dir	/tmp/pg-trickle-installation-33praam4/scratch	environment
pg-trickle-applier	metrics_port	29932	environment
pg-trickle-applier	spark_master	local[*]	default
pg-trickle-applier	spark_driver_memory	2g	default
pg-trickle-applier	memory_budget_mb	1024	default
pg-trickle-applier	max_offsets_per_trigger	50000	default
pg-trickle-applier	pipeline_batch_size	64	setting
pg-trickle-applier	max_parallel_workers	4	default
pg-trickle-applier	staging_rows	200000	default
pg-trickle-applier	target_lock_timeout_ms	30000	default
pg-trickle-applier	max_consecutive_errors	2	setting
pg-trickle-applier	differential_max_change_ratio	0.15	default
pg-trickle-applier	catch_up_rows	100000	default
pg-trickle-applier	max_buffer_rows	1000000	default
pg-trickle-applier	checkpoint_rows	5000	setting
pg-trickle-applier	delta_interval_ms	3600000	setting
pg-trickle-applier	delta_tidy_interval_s	3600	default
pg-trickle-applier	delta_retention_hours	168	default
pg-trickle-applier	history_retention_days	90	default
pg-trickle-applier	deep_join_l0_scan_threshold	4	default
pg-trickle-applier	part3_max_scan_count	5	default
pg-trickle-applier	sources_elsewhere	false	default
pg-trickle-applier	replica_identity	full	default
pg-trickle-applier	self_check_interval_s	0	default
pg-trickle-applier	delta_sink	true	default
pg-trickle-applier	publish_sink	true	default
pg-trickle-applier	replication_factor	1	default
\.


--
-- Data for Name: pgt_stream_tables; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_stream_tables (pgt_id, pgt_relid, pgt_schema, pgt_name, original_query, defining_query, schedule, refresh_mode, status, created_at, last_error_at, last_error_message, last_error_hint, last_error_code, search_path, visibility, partial_until, downstream_publication_name, full_policy, append_only, auto_threshold, replaces, analysed_at) FROM stdin;
4	16899	public	large_orders	SELECT id, customer, amount, note FROM orders WHERE amount > 100	 SELECT id,\n    customer,\n    amount,\n    note\n   FROM public.orders\n  WHERE (amount > (100)::numeric);	1s	AUTO	ACTIVE	2026-11-17 19:30:03.806724+00	\N	\N	\N	\N	"$user", public	transactional	\N	pgt_pub_large_orders	allow	f	0.5	\N	2026-11-17 19:30:03.806724+00
22	17072	public	refused	SELECT id, customer, amount, xmin IS NOT NULL AS stored FROM orders WHERE amount > 200	 SELECT id,\n    customer,\n    amount,\n    (xmin IS NOT NULL) AS stored\n   FROM public.orders\n  WHERE (amount > (200)::numeric);	1s	DIFFERENTIAL	SUSPENDED	2026-11-17 19:30:04.011974+00	2026-11-17 19:30:06.136773+00	a system column is not supported at line 4, column 6 [unsupported_column]	use a column of your own	Refused	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:04.011974+00
2	16879	public	by_customer	SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer	 SELECT customer,\n    count(*) AS n,\n    sum(amount) AS total\n   FROM public.orders\n  GROUP BY customer;	continuous	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.793367+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.793367+00
3	16889	public	top_customers	SELECT customer, total FROM by_customer ORDER BY total DESC NULLS LAST, customer LIMIT 5	 SELECT customer,\n    total\n   FROM public.by_customer\n  ORDER BY total DESC NULLS LAST, customer\n LIMIT 5;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.801033+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.801033+00
5	16909	public	per_day	SELECT placed, count(*) AS n, count(note) AS noted FROM orders GROUP BY placed	 SELECT placed,\n    count(*) AS n,\n    count(note) AS noted\n   FROM public.orders\n  GROUP BY placed;	1s	IMMEDIATE	ACTIVE	2026-11-17 19:30:03.814112+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.814112+00
7	16927	public	run_by_postgres	SELECT id, customer, amount, xmin IS NOT NULL AS stored FROM orders WHERE amount > 200	 SELECT id,\n    customer,\n    amount,\n    (xmin IS NOT NULL) AS stored\n   FROM public.orders\n  WHERE (amount > (200)::numeric);	1s	AUTO	ACTIVE	2026-11-17 19:30:03.826639+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.826639+00
1	16867	public	by_segment	SELECT c.segment, count(*) AS n, sum(o.amount) AS total, avg(o.amount) AS mean, min(o.placed) AS first, max(o.amount) AS most FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.segment	 SELECT c.segment,\n    count(*) AS n,\n    sum(o.amount) AS total,\n    avg(o.amount) AS mean,\n    min(o.placed) AS first,\n    max(o.amount) AS most\n   FROM (public.orders o\n     JOIN public.customers c ON ((c.id = o.customer)))\n  GROUP BY c.segment;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.770026+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.770026+00
6	16917	public	whole	SELECT customer % 5 AS part, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer % 5	 SELECT (customer % 5) AS part,\n    count(*) AS n,\n    sum(amount) AS total\n   FROM public.orders\n  GROUP BY (customer % 5);	1s	FULL	ACTIVE	2026-11-17 19:30:03.821038+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.821038+00
8	16935	public	outer_joined	SELECT c.id, c.name, c.profile, o.id AS number, o.amount FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.amount > 330	 SELECT c.id,\n    c.name,\n    c.profile,\n    o.id AS number,\n    o.amount\n   FROM (public.customers c\n     LEFT JOIN public.orders o ON (((o.customer = c.id) AND (o.amount > (330)::numeric))));	1s	AUTO	ACTIVE	2026-11-17 19:30:03.830692+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	error	f	\N	\N	2026-11-17 19:30:03.830692+00
9	16946	public	below	WITH RECURSIVE below(id, top) AS (SELECT id, id FROM staff WHERE boss IS NULL UNION SELECT s.id, b.top FROM staff s JOIN below b ON s.boss = b.id) SELECT id, top FROM below	 WITH RECURSIVE below(id, top) AS (\n         SELECT staff.id,\n            staff.id\n           FROM public.staff\n          WHERE (staff.boss IS NULL)\n        UNION\n         SELECT s.id,\n            b.top\n           FROM (public.staff s\n             JOIN below b ON ((s.boss = b.id)))\n        )\n SELECT id,\n    top\n   FROM below;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.83502+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.83502+00
10	16955	public	ranked	SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place FROM orders	 SELECT id,\n    customer,\n    row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place\n   FROM public.orders;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.841007+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.841007+00
11	16963	public	bag	SELECT kind, payload FROM events	 SELECT kind,\n    payload\n   FROM public.events;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.84448+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.84448+00
12	16974	public	appended	SELECT kind, at FROM events WHERE kind <> 'kind 0'	 SELECT kind,\n    at\n   FROM public.events\n  WHERE (kind <> 'kind 0'::text);	1s	AUTO	ACTIVE	2026-11-17 19:30:03.903482+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	t	\N	\N	2026-11-17 19:30:03.903482+00
13	16984	public	documents_kept	SELECT id, title, body FROM documents	 SELECT id,\n    title,\n    body\n   FROM public.documents;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.909081+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.909081+00
14	16995	public	by_month	SELECT month, count(*) AS n, max(v) AS most FROM measures GROUP BY month	 SELECT month,\n    count(*) AS n,\n    max(v) AS most\n   FROM public.measures\n  GROUP BY month;	30s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.914416+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.914416+00
15	17004	side-ways	Größen	SELECT id, "Maß", "Maß" * 2 AS "doppelt so groß" FROM "side-ways"."Größe & Co"	 SELECT id,\n    "Maß",\n    ("Maß" * (2)::numeric) AS "doppelt so groß"\n   FROM "side-ways"."Größe & Co";	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.953749+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.953749+00
16	17015	public	nightly	SELECT count(*) AS n, sum(amount) AS total FROM orders	 SELECT count(*) AS n,\n    sum(amount) AS total\n   FROM public.orders;	59 23 31 12 *	AUTO	ACTIVE	2026-11-17 19:30:03.982351+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.982351+00
24	17963	public	pgt_new_19	SELECT name, id, segment, since FROM customers WHERE segment <> 'trade'	 SELECT name,\n    id,\n    segment,\n    since\n   FROM public.customers\n  WHERE (segment <> 'trade'::text);	1s	DIFFERENTIAL	INITIALIZING	2026-11-17 19:32:43.890442+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	19	2026-11-17 19:32:43.890442+00
18	17033	public	altered	SELECT id, name FROM customers WHERE id > 3	 SELECT id,\n    name\n   FROM public.customers\n  WHERE (id > 3);	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.992629+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.992629+00
19	17043	public	rebuilt	SELECT id, name FROM customers	 SELECT id,\n    name\n   FROM public.customers;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.999122+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.999122+00
20	17053	public	paused	SELECT segment, count(*) AS n FROM customers GROUP BY segment	 SELECT segment,\n    count(*) AS n\n   FROM public.customers\n  GROUP BY segment;	1s	DIFFERENTIAL	PAUSED	2026-11-17 19:30:04.002992+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:04.002992+00
17	17025	public	gradual	SELECT id, amount, placed FROM orders	 SELECT id,\n    amount,\n    placed\n   FROM public.orders;	1s	DIFFERENTIAL	ACTIVE	2026-11-17 19:30:03.989417+00	\N	\N	\N	\N	"$user", public	progressive	\N	\N	allow	f	\N	\N	2026-11-17 19:30:03.989417+00
21	17063	public	divided	SELECT id, above / below AS quotient FROM ratios	 SELECT id,\n    (above / below) AS quotient\n   FROM public.ratios;	1s	DIFFERENTIAL	SUSPENDED	2026-11-17 19:30:04.007064+00	2026-11-17 19:30:50.869065+00	the query of public.divided fails on the data: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012	PostgreSQL would refuse it too; guard the expression (CASE, NULLIF) or correct the rows	CalculationError	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:30:04.007064+00
23	17944	public	unborn	SELECT l.id, l.v, o.amount FROM late l JOIN orders o ON o.customer = l.customer	 SELECT l.id,\n    l.v,\n    o.amount\n   FROM (public.late l\n     JOIN public.orders o ON ((o.customer = l.customer)));	1s	DIFFERENTIAL	INITIALIZING	2026-11-17 19:32:43.87001+00	\N	\N	\N	\N	"$user", public	transactional	\N	\N	allow	f	\N	\N	2026-11-17 19:32:43.87001+00
\.


--
-- Data for Name: pgt_writes; Type: TABLE DATA; Schema: pgtrickle; Owner: -
--

COPY pgtrickle.pgt_writes (pgt_id, started_at, updated_at, rows_done, rows_total) FROM stdin;
\.


--
-- Name: pgt_refresh_history_refresh_id_seq; Type: SEQUENCE SET; Schema: pgtrickle; Owner: -
--

SELECT pg_catalog.setval('pgtrickle.pgt_refresh_history_refresh_id_seq', 106, true);


--
-- Name: pgt_stream_tables_pgt_id_seq; Type: SEQUENCE SET; Schema: pgtrickle; Owner: -
--

SELECT pg_catalog.setval('pgtrickle.pgt_stream_tables_pgt_id_seq', 24, true);


--
-- Name: pgt_alterations pgt_alterations_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_alterations
    ADD CONSTRAINT pgt_alterations_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_answers pgt_answers_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_answers
    ADD CONSTRAINT pgt_answers_pkey PRIMARY KEY (question);


--
-- Name: pgt_checkpoints pgt_checkpoints_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_checkpoints
    ADD CONSTRAINT pgt_checkpoints_pkey PRIMARY KEY (applier);


--
-- Name: pgt_dependencies pgt_dependencies_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_dependencies
    ADD CONSTRAINT pgt_dependencies_pkey PRIMARY KEY (pgt_id, source_relid);


--
-- Name: pgt_drain pgt_drain_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_drain
    ADD CONSTRAINT pgt_drain_pkey PRIMARY KEY (only_row);


--
-- Name: pgt_frontiers pgt_frontiers_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_frontiers
    ADD CONSTRAINT pgt_frontiers_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_owed pgt_owed_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_owed
    ADD CONSTRAINT pgt_owed_pkey PRIMARY KEY (pgt_id, new_frontier, part);


--
-- Name: pgt_plans pgt_plans_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_plans
    ADD CONSTRAINT pgt_plans_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_recaptures pgt_recaptures_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_recaptures
    ADD CONSTRAINT pgt_recaptures_pkey PRIMARY KEY (source_relid);


--
-- Name: pgt_refresh_history pgt_refresh_history_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_refresh_history
    ADD CONSTRAINT pgt_refresh_history_pkey PRIMARY KEY (refresh_id);


--
-- Name: pgt_runtime pgt_runtime_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_runtime
    ADD CONSTRAINT pgt_runtime_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_schema_version pgt_schema_version_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_schema_version
    ADD CONSTRAINT pgt_schema_version_pkey PRIMARY KEY (version);


--
-- Name: pgt_service pgt_service_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_service
    ADD CONSTRAINT pgt_service_pkey PRIMARY KEY (applier);


--
-- Name: pgt_setting_definitions pgt_setting_definitions_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_setting_definitions
    ADD CONSTRAINT pgt_setting_definitions_pkey PRIMARY KEY (name);


--
-- Name: pgt_settings_in_use pgt_settings_in_use_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_settings_in_use
    ADD CONSTRAINT pgt_settings_in_use_pkey PRIMARY KEY (program, name);


--
-- Name: pgt_settings pgt_settings_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_settings
    ADD CONSTRAINT pgt_settings_pkey PRIMARY KEY (name);


--
-- Name: pgt_stream_tables pgt_stream_tables_pgt_relid_key; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_stream_tables
    ADD CONSTRAINT pgt_stream_tables_pgt_relid_key UNIQUE (pgt_relid);


--
-- Name: pgt_stream_tables pgt_stream_tables_pgt_schema_pgt_name_key; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_stream_tables
    ADD CONSTRAINT pgt_stream_tables_pgt_schema_pgt_name_key UNIQUE (pgt_schema, pgt_name);


--
-- Name: pgt_stream_tables pgt_stream_tables_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_stream_tables
    ADD CONSTRAINT pgt_stream_tables_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_writes pgt_writes_pkey; Type: CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_writes
    ADD CONSTRAINT pgt_writes_pkey PRIMARY KEY (pgt_id);


--
-- Name: pgt_refresh_history_by_time; Type: INDEX; Schema: pgtrickle; Owner: -
--

CREATE INDEX pgt_refresh_history_by_time ON pgtrickle.pgt_refresh_history USING btree (start_time);


--
-- Name: pgt_refresh_history_of_table; Type: INDEX; Schema: pgtrickle; Owner: -
--

CREATE INDEX pgt_refresh_history_of_table ON pgtrickle.pgt_refresh_history USING btree (pgt_id, refresh_id DESC);


--
-- Name: pgt_alterations pgt_alterations_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_alterations
    ADD CONSTRAINT pgt_alterations_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_dependencies pgt_dependencies_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_dependencies
    ADD CONSTRAINT pgt_dependencies_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_frontiers pgt_frontiers_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_frontiers
    ADD CONSTRAINT pgt_frontiers_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_owed pgt_owed_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_owed
    ADD CONSTRAINT pgt_owed_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_plans pgt_plans_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_plans
    ADD CONSTRAINT pgt_plans_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_refresh_history pgt_refresh_history_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_refresh_history
    ADD CONSTRAINT pgt_refresh_history_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_runtime pgt_runtime_pgt_id_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_runtime
    ADD CONSTRAINT pgt_runtime_pgt_id_fkey FOREIGN KEY (pgt_id) REFERENCES pgtrickle.pgt_stream_tables(pgt_id) ON DELETE CASCADE;


--
-- Name: pgt_settings pgt_settings_name_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_settings
    ADD CONSTRAINT pgt_settings_name_fkey FOREIGN KEY (name) REFERENCES pgtrickle.pgt_setting_definitions(name) ON DELETE CASCADE;


--
-- Name: pgt_stream_tables pgt_stream_tables_replaces_fkey; Type: FK CONSTRAINT; Schema: pgtrickle; Owner: -
--

ALTER TABLE ONLY pgtrickle.pgt_stream_tables
    ADD CONSTRAINT pgt_stream_tables_replaces_fkey FOREIGN KEY (replaces) REFERENCES pgtrickle.pgt_stream_tables(pgt_id);


--
-- PostgreSQL database dump complete
--

\unrestrict FcRUOkeIZoPrdHsCIx5NYQDAeIAsNVqVhEx6H7gLDBh1vJRhsdUqZ7KzZyHNeoE

