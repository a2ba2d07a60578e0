"""Signed `ddl` messages of the log in; the leaf partitions that partitioned tables have from that position on, out.

The body is JSON. `roots` has the leaves of each partitioned table after the DDL, `tag` and `relids` say what the DDL
was and which relations it concerned, `saw` and `saw_at` what its transaction could see. Messages that are not signed
are not believed: anybody may write into the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_consumer.wal.visibility import Sight, read_sight
from shared_schema.signed_messages import SignedMessage, read_signed

log = logging.getLogger(__name__)

KIND = "ddl"


@dataclass(frozen=True, slots=True)
class TreeNews:
    """The leaves of partitioned tables after DDL, by the oid of the table."""

    roots: Mapping[int, Mapping[int, str]]
    """For each leaf what identifies its attachment."""
    created: frozenset[int]
    """Relations that the DDL created: they have no rows yet."""
    sight: Sight | None = None
    """What the DDL could see: other transactions may have attached partitions meanwhile. None if it does not say."""


class NewsReader:
    """Reads messages. `read_secret` returns the key of signatures, None if it is not known."""

    def __init__(self, read_secret: Callable[[], bytes | None]) -> None:
        self._read_secret = read_secret
        self._secret: bytes | None = None

    def read(self, content: bytes, xid: int) -> TreeNews | None:
        """Return what a message of the transaction `xid` says; None if it is another message, or not to be believed."""
        if not content.startswith(KIND.encode() + b" "):
            return None
        message = self._check(content, xid)
        if message is None and (present := self._read_secret()) != self._secret:
            # Not read yet, or the catalog was installed again.
            self._secret = present
            message = self._check(content, xid)
        if message is None:
            log.warning("a message about DDL in the log is not signed, it is ignored", extra={"xid": xid})
            return None
        return parse_news(message.body, xid)

    def _check(self, content: bytes, xid: int) -> SignedMessage | None:
        return None if self._secret is None else read_signed(content, self._secret, xid)


def parse_news(body: str, xid: int) -> TreeNews:
    """Return the content of a signed message of the transaction `xid`."""
    said = json.loads(body)
    roots = {
        int(root): {int(leaf): str(joined) for leaf, joined in leaves.items()}
        for root, leaves in (said.get("roots") or {}).items()
    }
    created = frozenset(map(int, said.get("relids") or ())) if said.get("tag") == "CREATE TABLE" else frozenset()
    sight = read_sight(said["saw"], said["saw_at"], xid) if "saw" in said else None
    return TreeNews(roots, created, sight)
