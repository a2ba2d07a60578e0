"""Messages about DDL are believed if they are signed, also after the catalog was installed again with another key."""

from __future__ import annotations

from cdc_consumer.tree_news import NewsReader
from shared_schema.signed_messages import signature

BODY = '{"tag": "ALTER TABLE", "relids": [5], "joined": {}, "gone": [5], "roots": {}}'


def message(secret: bytes, xid: int) -> bytes:
    return f"ddl {signature('ddl', BODY, secret, xid)} {BODY}".encode()


def test_the_key_is_read_again_when_it_does_not_fit() -> None:
    keys, asked = [b"first"], []

    def read_secret() -> bytes:
        asked.append(True)
        return keys[-1]

    reader = NewsReader(read_secret)
    for _ in range(3):
        news = reader.read(message(b"first", 7), 7)
        assert news is not None and news.gone == (5,)
    assert len(asked) == 1
    keys.append(b"second")
    assert reader.read(message(b"second", 8), 8) is not None
    assert reader.read(message(b"first", 9), 9) is None
    assert reader.read(message(b"second", 8), 10) is None, "it was said in another transaction"
