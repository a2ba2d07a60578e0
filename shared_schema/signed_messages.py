"""Bytes of a log message and the key in; kind and body out, if the message was signed by `pgtrickle._emit_signed`.

Anybody may write a message into the log, so only signed ones are believed. The content is `<kind> <64 hex digits>
<body>`. The signature is HMAC-SHA-256 over kind, transaction and body: a message copied into another transaction is not
valid. One outside a transaction can be repeated by anybody, so its body must say when it was written. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import LiteralString

MESSAGE_PREFIX = "pg_trickle"
"""The prefix of this project's messages in the log: wake-ups, `capture…` after tables were added to a publication, and
signed messages."""

KEY_READABLE: LiteralString = (
    "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_secret'"
    " AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))"
)
READ_KEY: LiteralString = "SELECT secret FROM pgtrickle.pgt_secret"
"""No row for a role that may not know it. A program without the key believes no message."""

_FORM = re.compile(rb"([a-z_]+) ([0-9a-f]{64}) (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """What a signed message says."""

    kind: str
    body: str


def signature(kind: str, body: str, secret: bytes, xid: int | None) -> str:
    """Return the signature of a message: 64 hex digits. `xid` is None outside a transaction."""
    covered = f"{kind}\n{'' if xid is None else xid}\n{body}"
    return hmac.new(secret, covered.encode(), hashlib.sha256).hexdigest()


def read_signed(content: bytes, secret: bytes, xid: int | None) -> SignedMessage | None:
    """Return the message if its signature is right. `xid` is that of its transaction, None outside a transaction."""
    form = _FORM.fullmatch(content)
    if form is None:
        return None
    try:
        kind, given, body = (part.decode() for part in form.groups())
    except UnicodeDecodeError:
        return None
    if not hmac.compare_digest(given, signature(kind, body, secret, xid)):
        return None
    return SignedMessage(kind, body)
