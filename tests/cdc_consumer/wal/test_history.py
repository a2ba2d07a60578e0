"""What the server sends again must be what was published; anything else is another history."""

from __future__ import annotations

import pytest

from cdc_consumer.errors import ServerBehind
from cdc_consumer.pgoutput.messages import Begin
from cdc_consumer.wal.history import HistoryCheck
from shared_schema.lsn import Lsn
from shared_schema.progress import LastCommit, Progress

LAST = Begin(Lsn(100), 5_000, 7)
PROGRESS = Progress("s", "1", 1, Lsn(10), Lsn(200), {}, LastCommit(Lsn(100), 7, 5_000, ("p",)))


def test_the_commit_that_was_published_comes_again() -> None:
    check = HistoryCheck(PROGRESS, Lsn(90))
    check.reach(Lsn(95))
    check.begin(Begin(Lsn(95), 1, 1))
    check.begin(LAST)
    check.reach(Lsn(150))
    check.begin(Begin(Lsn(200), 9_000, 9))


def test_a_slot_beyond_it_sends_nothing_again() -> None:
    check = HistoryCheck(PROGRESS, Lsn(150))
    check.reach(Lsn(180))
    check.begin(Begin(Lsn(200), 9_000, 9))


@pytest.mark.parametrize(
    ("begins_at", "commit"),
    [
        (90, Begin(Lsn(100), 5_000, 8)),  # another transaction at the same place
        (90, Begin(Lsn(100), 5_001, 7)),
        (90, Begin(Lsn(110), 5_000, 7)),  # ours never came
        (90, Begin(Lsn(300), 9_000, 9)),
        (150, Begin(Lsn(160), 6_000, 8)),  # one that we never saw, before our frontier
    ],
)
def test_another_history(begins_at: int, commit: Begin) -> None:
    with pytest.raises(ServerBehind, match="restored"):
        HistoryCheck(PROGRESS, Lsn(begins_at)).begin(commit)


def test_an_idle_server_of_another_history() -> None:
    check = HistoryCheck(PROGRESS, Lsn(90))
    check.reach(Lsn(100))
    with pytest.raises(ServerBehind):
        check.reach(Lsn(101))
