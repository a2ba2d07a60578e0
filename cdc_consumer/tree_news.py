"""Signed `ddl` messages of the log in; the leaf partitions that partitioned tables have from that position on, out.

The body is JSON. `roots` has the leaves of each partitioned table after the DDL, `tag` and `relids` say what the DDL
was and which relations it concerned. Messages that are not signed are not believed: anybody may write into the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared_schema.signed_messages import read_signed

log = logging.getLogger(__name__)

KIND = "ddl"


@dataclass(frozen=True, slots=True)
class TreeNews:
    """The leaves of partitioned tables after DDL, by the oid of the table."""

    roots: Mapping[int, Mapping[int, str]]
    """For each leaf what identifies its attachment."""
    created: frozenset[int]
    """Relations that the DDL created: they have no rows yet."""


class NewsReader:
    """Reads messages. `read_secret` returns the key of signatures, None if it is not known."""

    def __init__(self, read_secret: Callable[[], bytes | None]) -> None:
        self._read_secret = read_secret
        self._secret: bytes | None = None

    def read(self, content: bytes, xid: int) -> TreeNews | None:
        """Return what a message of the transaction `xid` says; None if it is another message, or not to be believed."""
        if not content.startswith(KIND.encode() + b" "):
            return None
        self._secret = self._secret or self._read_secret()
        message = read_signed(content, self._secret, xid) if self._secret is not None else None
        if message is None:
            log.warning("a message about DDL in the log is not signed, it is ignored", extra={"xid": xid})
            return None
        return parse_news(message.body)


def parse_news(body: str) -> TreeNews:
    """Return the content of a signed message."""
    said = json.loads(body)
    roots = {
        int(root): {int(leaf): str(joined) for leaf, joined in leaves.items()}
        for root, leaves in (said.get("roots") or {}).items()
    }
    created = frozenset(map(int, said.get("relids") or ())) if said.get("tag") == "CREATE TABLE" else frozenset()
    return TreeNews(roots, created)
