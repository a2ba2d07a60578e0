-- Signed log messages. A message in the log has no author: everybody may write one. The programs act on the content of
-- signed ones alone (shared_schema/signed_messages.py reads them); all others only wake.

-- A dump of a role that may not see the key is restored without it; then there is another one.
INSERT INTO pgtrickle.pgt_secret (secret)
-- Each uuid has 122 bits from the server's strong random source.
SELECT pg_catalog.sha256(pg_catalog.string_agg(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()), ''::bytea))
FROM pg_catalog.generate_series(1, 4) HAVING NOT EXISTS (SELECT FROM pgtrickle.pgt_secret);

-- HMAC-SHA-256. The key is not longer than a block of 64 bytes.
CREATE OR REPLACE FUNCTION pgtrickle._hmac(key bytea, message bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    inside   bytea := decode(repeat('36', 64), 'hex');
    outside  bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    FOR n IN 0 .. length(key) - 1 LOOP
        inside := set_byte(inside, n, get_byte(key, n) # 54);
        outside := set_byte(outside, n, get_byte(key, n) # 92);
    END LOOP;
    RETURN sha256(outside || sha256(inside || message));
END $$;

-- The signature of a message. It names the transaction of a transactional message: a copy in another one is not valid.
CREATE OR REPLACE FUNCTION pgtrickle._signature(kind text, body text, in_transaction text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(pgtrickle._hmac(s.secret, convert_to(concat(kind, E'\n', in_transaction, E'\n', body), 'UTF8')), 'hex')
    FROM pgtrickle.pgt_secret s
$$;
REVOKE ALL ON FUNCTION pgtrickle._signature(text, text, text) FROM PUBLIC;

-- Writes a signed message, `<kind> <signature> <body>` in UTF-8. Only the owner of the schema and its members may call it.
CREATE OR REPLACE FUNCTION pgtrickle._emit_signed(kind text, body text, transactional boolean) RETURNS pg_lsn
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    in_transaction  text := CASE WHEN transactional THEN pg_current_xact_id()::xid::text ELSE '' END;
    content         bytea;
    at              pg_lsn;
BEGIN
    IF kind IS NULL OR kind !~ '^[a-z_]+$' OR body IS NULL OR transactional IS NULL THEN
        RAISE EXCEPTION '% is not a kind of message', quote_nullable(kind)
            USING HINT = 'Only the functions of schema pgtrickle call this.', ERRCODE = 'invalid_parameter_value';
    END IF;
    content := convert_to(format('%s %s %s', kind, pgtrickle._signature(kind, body, in_transaction), body), 'UTF8');
    IF NOT transactional AND current_setting('server_version_num')::int >= 170000 THEN
        -- Flush at once: the walsender only sends what is on disk.
        EXECUTE $q$SELECT pg_logical_emit_message(false, 'pg_trickle', $1, true)$q$ INTO at USING content;
        RETURN at;
    END IF;
    RETURN pg_logical_emit_message(transactional, 'pg_trickle', content);
END $$;
REVOKE ALL ON FUNCTION pgtrickle._emit_signed(text, text, boolean) FROM PUBLIC;

-- The API itself alters sources when it admits them: that is neither announced nor refused. Everybody may set a setting, so its
-- value is a signature for this transaction of this session. A caller who may not sign goes on without it.
CREATE OR REPLACE FUNCTION pgtrickle._mark_own_ddl(own boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mark  text := '';
BEGIN
    IF own AND has_function_privilege('pgtrickle._signature(text, text, text)', 'EXECUTE') THEN
        mark := pgtrickle._signature('admits', pg_backend_pid()::text, pg_current_xact_id()::text);
    END IF;
    PERFORM set_config('pg_trickle.admits', mark, true);
END $$;

-- Whether the DDL of this moment is the API's own; asked by functions of the owner.
CREATE OR REPLACE FUNCTION pgtrickle._is_own_ddl() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mark  text := coalesce(current_setting('pg_trickle.admits', true), '');
BEGIN
    IF mark = '' THEN
        RETURN false;
    END IF;
    RETURN mark = pgtrickle._signature('admits', pg_backend_pid()::text, pg_current_xact_id()::text);
END $$;
