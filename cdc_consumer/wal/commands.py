"""Replication commands as each server version understands them. Pure.

Protocol version 1 is all that is asked for: committed transactions, whole, in commit order. Servers from 14 on know it
and the option `messages`. Later versions add streaming of open transactions (2), prepared ones (3) and parallel
apply (4), which a consumer that publishes whole commits has no use for, and from 16 on `origin`, whose default `any` is
what a capture wants: changes that came from elsewhere are changes too.
"""

from __future__ import annotations

from shared_schema.lsn import Lsn
from shared_schema.table_schema import quote_identifier

PROTOCOL_VERSION = 1

OPTIONS_IN_PARENTHESES = 150000
"""From here on CREATE_REPLICATION_SLOT takes a list of options instead of keywords."""


def create_slot(server_version: int, name: str, *, temporary: bool, export: bool) -> str:
    """A pgoutput slot, with or without an exported snapshot."""
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    if server_version >= OPTIONS_IN_PARENTHESES:
        option = f"(SNAPSHOT '{'export' if export else 'nothing'}')"
    else:
        option = "EXPORT_SNAPSHOT" if export else "NOEXPORT_SNAPSHOT"
    return f"CREATE_REPLICATION_SLOT {quote_identifier(name)} {kind} pgoutput {option}"


def start_replication(slot: str, at: Lsn, publications: tuple[str, ...]) -> str:
    """Stream the publications from a position on, with logical messages."""
    names = ",".join(quote_identifier(name) for name in publications).replace("'", "''")
    return (
        f"START_REPLICATION SLOT {quote_identifier(slot)} LOGICAL {at} "
        f"(proto_version '{PROTOCOL_VERSION}', publication_names '{names}', messages 'true')"
    )
