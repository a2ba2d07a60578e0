-- Gates: the readers of a source stay at one position while it is loaded. The applier reads these rows and writes none of
-- those that a user writes, so that nobody's open transaction makes it wait. A row stays after the gate is opened: it says from where on its
-- readers go on.
CREATE TABLE pgtrickle.pgt_source_gates (
    source_relid  oid PRIMARY KEY,
    gated         boolean NOT NULL,
    -- Where the log ended when the gate was closed: what committed before it reaches the readers, later changes wait.
    gate_lsn      pg_lsn NOT NULL,
    gated_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    gated_by      text NOT NULL DEFAULT current_user,
    ungate_lsn    pg_lsn,
    ungated_at    timestamptz,
    CHECK (gated OR ungate_lsn IS NOT NULL)
);

-- How far external loaders have got, by their own clock.
CREATE TABLE pgtrickle.pgt_watermarks (
    source_relid  oid PRIMARY KEY,
    watermark     timestamptz NOT NULL,
    advanced_at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    advanced_by   text NOT NULL DEFAULT current_user,
    wal_lsn       pg_lsn NOT NULL
);

-- Sources whose watermarks must agree before stream tables that read several of them go on. Whether they do is stored with
-- each watermark, in the same transaction.
CREATE TABLE pgtrickle.pgt_watermark_groups (
    group_name      text PRIMARY KEY,
    source_relids   oid[] NOT NULL CHECK (pg_catalog.cardinality(source_relids) >= 2),
    tolerance_secs  double precision NOT NULL CHECK (tolerance_secs >= 0),
    created_at      timestamptz NOT NULL DEFAULT pg_catalog.now(),
    aligned         boolean NOT NULL,
    -- Where the log ended when they parted last, and when they met again.
    parted_lsn      pg_lsn,
    parted_at       timestamptz,
    aligned_lsn     pg_lsn,
    CHECK (aligned OR parted_lsn IS NOT NULL AND parted_at IS NOT NULL)
);

-- Where readers are held, written by the applier when it sees first that a gate or a group is closed: from then on the
-- position stays, also over a restart. Of a gate the oid of its source, of a group its name.
CREATE TABLE pgtrickle.pgt_held_positions (
    kind        text NOT NULL,
    gate        text NOT NULL,
    closed_lsn  pg_lsn NOT NULL,
    held_lsn    pg_lsn NOT NULL,
    PRIMARY KEY (kind, gate)
);

-- Stream tables whose frontiers are shown and compared together.
CREATE TABLE pgtrickle.pgt_refresh_groups (
    group_name  text PRIMARY KEY,
    members     text[] NOT NULL CHECK (pg_catalog.cardinality(members) >= 2),
    isolation   text NOT NULL CHECK (isolation IN ('read_committed', 'repeatable_read')),
    created_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Whoever may read what is pending may read these too: the functions that only look need all of them.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                  FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = 'pgtrickle.pgt_alterations'::regclass AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON pgtrickle.pgt_source_gates, pgtrickle.pgt_watermarks,'
                       ' pgtrickle.pgt_watermark_groups, pgtrickle.pgt_held_positions, pgtrickle.pgt_refresh_groups TO %s', reader);
    END LOOP;
END $$;
