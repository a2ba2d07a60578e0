"""What a snapshot sees of transactions, whose numbers have 32 bits in the catalog."""

from __future__ import annotations

import pytest

from cdc_consumer.wal.visibility import read_sight
from shared_schema.lsn import Lsn

WRAPPED = 7 << 32


@pytest.mark.parametrize(
    ("snapshot", "attachment", "since", "is_seen"),
    [
        ("90:95:90,92", ".89", 5, True),
        ("90:95:90,92", ".91", 5, True),
        ("90:95:90,92", ".92", 5, False),
        ("90:95:90,92", ".95", 5, False),
        ("90:95:90,92", ".1000000000", 5, False),
        ("90:95:90,92", ".80.92", 5, False),
        ("90:95:", ".80", 100, False),
        ("90:95:", "", 5, True),
        # It is its own.
        ("90:95:90", ".94.77", 100, True),
        (f"{WRAPPED + 10}:{WRAPPED + 12}:{WRAPPED + 10}", ".4294967290", 5, True),
        (f"{WRAPPED + 10}:{WRAPPED + 12}:{WRAPPED + 10}", ".10", 5, False),
    ],
)
def test_what_a_snapshot_sees(snapshot: str, attachment: str, since: int, is_seen: bool) -> None:
    assert read_sight(snapshot, "0/64", own=77).includes(attachment, Lsn(since)) is is_seen
