"""Signed `ddl` messages of the log in; what happened to the leaf partitions of partitioned tables, out.

The body is JSON. `joined` has the leaves that the transaction added to each partitioned table, `gone` the tables that
are no partitions from its commit on, `tag` and `relids` say what the DDL was and which relations it concerned. `roots`
has whole trees as somebody saw them: another transaction may have changed them before this one was committed. Messages
that are not signed are not believed: anybody may write into the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared_schema.signed_messages import SignedMessage, read_signed

log = logging.getLogger(__name__)

KIND = "ddl"


@dataclass(frozen=True, slots=True)
class TreeNews:
    """What DDL did to leaf partitions. Leaves by the oid of their table, each with what identifies its attachment."""

    joined: Mapping[int, Mapping[int, str]]
    """The leaves that joined."""
    gone: tuple[int, ...]
    """Tables that are no partitions any more, or never were, in order."""
    seen: Mapping[int, Mapping[int, str]]
    """All leaves, as they were seen before the commit."""
    created: frozenset[int]
    """Relations that the DDL created: they have no rows yet."""

    @property
    def is_empty(self) -> bool:
        """Whether no leaf partition is concerned."""
        return not (self.joined or self.gone or self.seen)


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
        return parse_news(message.body)

    def _check(self, content: bytes, xid: int) -> SignedMessage | None:
        return None if self._secret is None else read_signed(content, self._secret, xid)


def parse_news(body: str) -> TreeNews:
    """Return the content of a signed message."""
    said = json.loads(body)
    created = frozenset(map(int, said.get("relids") or ())) if said.get("tag") == "CREATE TABLE" else frozenset()
    gone = tuple(sorted(map(int, said.get("gone") or ())))
    return TreeNews(_trees(said.get("joined")), gone, _trees(said.get("roots")), created)


def _trees(said: Mapping[str, Mapping[str, str]] | None) -> dict[int, dict[int, str]]:
    return {
        int(root): {int(leaf): str(joined) for leaf, joined in leaves.items()} for root, leaves in (said or {}).items()
    }
