"""What PostgreSQL signs is read; what is forged, copied, cut or renamed is not. Only who knows the key can sign."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from applier.catalog.install import install_catalog
from cdc_consumer.wal.catalog import connect, message_key
from shared_schema.signed_messages import KEY_READABLE, READ_KEY, SignedMessage, read_signed, signature

Connection = psycopg.Connection[Any]

KEY = bytes(range(32))
BODY = '{"tag": "ALTER TABLE", "name": "Ünï\ncode"}'


def signed(kind: str = "ddl", body: str = BODY, key: bytes = KEY, xid: int | None = 7) -> bytes:
    return f"{kind} {signature(kind, body, key, xid)} {body}".encode()


def test_a_signed_message_is_read() -> None:
    assert read_signed(signed(), KEY, 7) == SignedMessage("ddl", BODY)
    assert read_signed(signed(xid=None), KEY, None) == SignedMessage("ddl", BODY)
    assert read_signed(signed(body=""), KEY, 7) == SignedMessage("ddl", "")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"capture 12",
        b"wake",
        b"ddl " + b"0" * 64 + b" " + BODY.encode(),
        signed(key=bytes(32)),
        signed()[:-1],
        signed()[1:],
        signed() + b" ",
        signed().replace(b"ddl", b"ask", 1),
        signed().replace(b"ALTER", b"after"),
        signed()[:40],
        b"\xff" + signed(),
        signed() + b"\xff",
    ],
)
def test_anything_else_is_not(content: bytes) -> None:
    assert read_signed(content, KEY, 7) is None


def test_a_message_counts_in_its_own_transaction_alone() -> None:
    assert read_signed(signed(xid=7), KEY, 8) is None
    assert read_signed(signed(xid=7), KEY, None) is None
    assert read_signed(signed(xid=None), KEY, 7) is None
    # Not even when the body begins with what could be a transaction.
    moved = f"ddl {signature('ddl', BODY, KEY, 7)} 7\n{BODY}".encode()
    assert read_signed(moved, KEY, None) is None


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection


def key_of(db: Connection) -> bytes:
    row = db.execute(READ_KEY).fetchone()
    assert row is not None and isinstance(row[0], bytes) and len(row[0]) == 32
    return row[0]


def messages(db: Connection, slot: str) -> list[tuple[int, bytes]]:
    """The transaction and content of every logical message since the last call, as the output plugin shows them."""
    found = db.execute(
        "SELECT xid::text::int8, data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'nothing', 'messages', 'true')",
        (slot,),
    ).fetchall()
    content = []
    for xid, data in found:
        if data[:1] == b"M":
            prefix, _, rest = data[10:].partition(b"\0")
            assert prefix == b"pg_trickle"
            content.append((int(xid), rest[4:]))
    return content


def test_what_postgresql_signs_is_read_with_the_transaction_of_the_stream(db: Connection) -> None:
    slot = f"signed_{secrets.token_hex(4)}"
    db.execute("CREATE PUBLICATION nothing")
    db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    try:
        with db.transaction():
            db.execute("SELECT pgtrickle._emit_signed('ddl', %s, true)", (BODY,))
            with db.transaction():  # a savepoint: the stream names the outer transaction
                db.execute("SELECT pgtrickle._emit_signed('ddl', %s, true)", (BODY,))
        db.execute("SELECT pgtrickle._emit_signed('ask', %s, false)", (BODY,))
        found, key = messages(db, slot), key_of(db)
        assert len(found) == 3
        for xid, content in found[:2]:
            assert read_signed(content, key, xid) == SignedMessage("ddl", BODY)
        assert read_signed(found[2][1], key, None) == SignedMessage("ask", BODY)
        # Anybody may repeat the bytes in a transaction of his own: there they are not valid.
        with db.transaction():
            db.execute("SELECT pg_logical_emit_message(true, 'pg_trickle', %s::bytea)", (found[0][1],))
        [(other, copied)] = messages(db, slot)
        assert copied == found[0][1] and read_signed(copied, key, other) is None
    finally:
        db.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def test_a_kind_is_one_word(db: Connection) -> None:
    for kind in ("", "two words", "line\nbreak", "Upper", None):
        with pytest.raises(errors.InvalidParameterValue):
            db.execute("SELECT pgtrickle._emit_signed(%s, '', true)", (kind,))


def test_every_installation_has_its_own_key_and_keeps_it(db: Connection) -> None:
    key = key_of(db)
    install_catalog(db)
    assert key_of(db) == key
    with db.transaction(force_rollback=True):
        db.execute("DROP SCHEMA pgtrickle CASCADE")
        install_catalog(db)
        assert key_of(db) != key


@pytest.mark.parametrize(
    ("rights", "knows"),
    [
        ("", False),
        ("GRANT USAGE ON SCHEMA pgtrickle TO {role}", False),
        ("GRANT USAGE ON SCHEMA pgtrickle TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {role}", False),
        (
            "ALTER ROLE {role} REPLICATION;"
            "GRANT USAGE ON SCHEMA pgtrickle TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {role}",
            True,
        ),
        (
            "GRANT USAGE ON SCHEMA pgtrickle TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO {role};"
            "GRANT INSERT ON pgtrickle.pgt_consumer_settings_in_use TO {role}",
            True,
        ),
    ],
    ids=["a stranger", "a caller", "a reader", "a replication role", "a consumer"],
)
def test_only_the_owner_and_the_consumer_know_the_key(db: Connection, database: str, rights: str, knows: bool) -> None:
    name = f"some_{secrets.token_hex(4)}"
    role = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hush'").format(role))
    try:
        for right in filter(None, rights.split(";")):
            db.execute(sql.SQL(right).format(role=role))
        with psycopg.connect(make_conninfo(database, user=name, password="hush"), autocommit=True) as own:
            readable = own.execute(KEY_READABLE).fetchone() == (True,)
            assert readable == ("SELECT ON ALL" in rights)
            assert (readable and own.execute(READ_KEY).fetchone() is not None) == knows
            # In the sessions of the consumer a policy that hides rows is an error, but for this table.
            with connect(make_conninfo(database, user=name, password="hush")) as pinned:
                assert (message_key(pinned) is not None) == knows
                assert pinned.execute("SHOW row_security").fetchone() == ("off",)
            for call in ("_emit_signed('ask', '', false)", "_signature('ask', '', '')"):
                with pytest.raises(errors.InsufficientPrivilege):
                    own.execute(f"SELECT pgtrickle.{call}".encode())
    finally:
        db.execute(sql.SQL("DROP OWNED BY {role}; DROP ROLE {role}").format(role=role))
