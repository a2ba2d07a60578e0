"""What a snapshot surely contains, also after transaction ids began again."""

from __future__ import annotations

import pytest

from cdc_consumer.wal.horizon import XIDS, read_horizon


@pytest.mark.parametrize(
    ("snapshot", "joined", "sees"),
    [
        ("1000:1010:1003", ".900", True),
        ("1000:1010:1003", ".900.999", True),
        ("1000:1010:1003", ".900.1003", False),
        # A subtransaction of a running transaction is not in the list.
        ("1000:1010:1003", ".1005", False),
        ("1000:1010:", ".1500", False),
        ("1000:1010:", "", True),
        # Ids began again a little while ago, or are about to.
        (f"{3 * XIDS + 5}:{3 * XIDS + 9}:", f".{XIDS - 20}", True),
        (f"{3 * XIDS + 5}:{3 * XIDS + 9}:", ".3", True),
        (f"{3 * XIDS + 5}:{3 * XIDS + 9}:", ".7", False),
        (f"{XIDS - 4}:{XIDS - 1}:", ".3", False),
        # More than half of all ids ago.
        (f"{3 * XIDS}:{3 * XIDS + 9}:", f".{XIDS // 3}", True),
    ],
)
def test_attachments(snapshot: str, joined: str, sees: bool) -> None:
    assert read_horizon(snapshot).sees(joined) is sees
