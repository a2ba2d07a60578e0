"""Builds the text of replication commands for each server version. Does no IO.

The consumer uses protocol version 1: committed transactions, complete, in commit order. Servers from 14 on support it
and the option `messages`. Later versions add streaming of open transactions (2), prepared transactions (3) and parallel
apply (4). A consumer that publishes whole commits does not need these. Servers from 16 on have the option `origin`,
whose default `any` is right for a capture: changes that were replicated from another server are changes too.
"""

from __future__ import annotations

from shared_schema.lsn import Lsn
from shared_schema.table_schema import quote_identifier

PROTOCOL_VERSION = 1

OPTIONS_IN_PARENTHESES = 150000
"""From this server version on CREATE_REPLICATION_SLOT takes a list of options instead of keywords."""


def create_slot(server_version: int, name: str, *, temporary: bool, export: bool) -> str:
    """Return the command that creates a pgoutput slot, with or without an exported snapshot."""
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    if server_version >= OPTIONS_IN_PARENTHESES:
        option = f"(SNAPSHOT '{'export' if export else 'nothing'}')"
    else:
        option = "EXPORT_SNAPSHOT" if export else "NOEXPORT_SNAPSHOT"
    return f"CREATE_REPLICATION_SLOT {quote_identifier(name)} {kind} pgoutput {option}"


def start_replication(slot: str, at: Lsn, publications: tuple[str, ...]) -> str:
    """Return the command that streams the publications from a position on, with logical messages."""
    names = ",".join(quote_identifier(name) for name in publications).replace("'", "''")
    return (
        f"START_REPLICATION SLOT {quote_identifier(slot)} LOGICAL {at} "
        f"(proto_version '{PROTOCOL_VERSION}', publication_names '{names}', messages 'true')"
    )
