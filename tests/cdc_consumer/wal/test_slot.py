"""Whether progress and slot belong together: every case in which they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_consumer.errors import ForeignServer, ForeignSlot, ServerBehind, SlotLost, SourceError
from cdc_consumer.wal.session import ServerIdentity
from cdc_consumer.wal.slot import SlotState, check_resumable, check_usable
from shared_schema.lsn import Lsn
from shared_schema.progress import Progress

PROGRESS = Progress("s", "42", 1, slot_lsn=Lsn(100), frontier=Lsn(200), end_offsets={})
SERVER = ServerIdentity("42", 1, Lsn(300))
SLOT = SlotState("s", "pgoutput", "db", True, None, Lsn(150), Lsn(90), "reserved")


def no_history(_: int) -> dict[int, Lsn]:
    raise AssertionError("asked for a history that is not needed")


def test_a_slot_at_or_behind_the_frontier_is_fine() -> None:
    check_resumable(PROGRESS, SERVER, SLOT, no_history)
    check_resumable(PROGRESS, replace(SERVER, position=Lsn(200)), replace(SLOT, confirmed_flush=Lsn(200)), no_history)


@pytest.mark.parametrize(
    ("server", "slot", "error"),
    [
        (replace(SERVER, system_id="43"), SLOT, ForeignServer),
        (replace(SERVER, timeline=2), SLOT, ForeignServer),
        (replace(SERVER, position=Lsn(199)), SLOT, ServerBehind),
        (SERVER, None, SlotLost),
        (SERVER, replace(SLOT, wal_status="lost"), SlotLost),
        (SERVER, replace(SLOT, confirmed_flush=None), SlotLost),
        (SERVER, replace(SLOT, confirmed_flush=Lsn(201)), ForeignSlot),
        (SERVER, replace(SLOT, confirmed_flush=Lsn(99)), ForeignSlot),
        (SERVER, replace(SLOT, plugin="test_decoding"), ForeignSlot),
        (SERVER, replace(SLOT, ours=False), ForeignSlot),
    ],
)
def test_everything_else_stops_with_a_hint(
    server: ServerIdentity, slot: SlotState | None, error: type[SourceError]
) -> None:
    with pytest.raises(error) as raised:
        check_resumable(PROGRESS, server, slot, lambda _: {})
    assert raised.value.hint
    assert not raised.value.retryable


def test_a_physical_slot_of_our_name_is_not_ours() -> None:
    with pytest.raises(ForeignSlot):
        check_usable(replace(SLOT, plugin="", ours=False))


def test_a_promoted_standby_continues_only_with_everything_published() -> None:
    promoted = replace(SERVER, timeline=3)
    check_resumable(PROGRESS, promoted, SLOT, lambda timeline: {1: Lsn(200), 2: Lsn(250)} if timeline == 3 else {})
    with pytest.raises(ForeignServer, match="left timeline 1 at 0/C7") as raised:
        check_resumable(PROGRESS, promoted, SLOT, lambda _: {1: Lsn(199), 2: Lsn(250)})
    assert "resync --restored --slot s" in raised.value.hint
    with pytest.raises(ForeignServer, match="not in the history"):
        check_resumable(PROGRESS, promoted, SLOT, lambda _: {2: Lsn(250)})
