"""What counts as a commit of the open transaction, and what remains after it was published."""

from __future__ import annotations

from cdc_consumer.open_batch import OpenBatch
from cdc_consumer.pgoutput.messages import Begin
from shared_schema.lsn import Lsn

FIRST, SECOND = Begin(Lsn(10), 1_000, 5), Begin(Lsn(20), 2_000, 6)


def test_commits_with_rows_share_a_batch() -> None:
    batch = OpenBatch()
    batch.begin(FIRST)
    batch.commit(FIRST, 3, now=1.0)
    batch.begin(SECOND)
    batch.commit(SECOND, 2, now=2.0)
    batch.add_rows(0, now=3.0)
    assert (batch.rows, batch.commits, batch.oldest_us) == (5, 2, 1_000)
    assert (batch.began_at, batch.ended_at, batch.last_begin) == (3.0, 1.0, SECOND)


def test_a_commit_without_rows_is_not_worth_a_transaction() -> None:
    batch = OpenBatch()
    batch.begin(FIRST)
    batch.commit(FIRST, 0, now=1.0)
    assert (batch.commits, batch.ended_at, batch.oldest_us) == (0, 0.0, 0)
    assert batch.last_begin == FIRST


def test_a_dropped_commit_is_not_the_last_one() -> None:
    batch = OpenBatch()
    batch.commit(None, 0, now=1.0)
    assert batch.commits == 0 and batch.last_begin is None


def test_the_rest_of_a_cut_commit_counts_without_rows() -> None:
    batch = OpenBatch()
    batch.begin(FIRST)
    batch.add_rows(7, now=1.0)
    batch.clear(cut=True)
    batch.commit(FIRST, 0, now=2.0)
    assert batch.commits == 1 and not batch.is_cut


def test_a_message_outside_of_transactions_counts_like_a_commit() -> None:
    batch = OpenBatch()
    batch.add_message(now=1.0)
    assert (batch.rows, batch.commits, batch.ended_at) == (1, 1, 1.0)


def test_requests_end_with_the_batch() -> None:
    batch = OpenBatch()
    batch.request_publication()
    batch.request_status()
    batch.begin(FIRST)
    batch.commit(FIRST, 1, now=1.0)
    batch.clear(cut=False)
    assert batch == OpenBatch(last_begin=FIRST)


LINGER_S = 0.005


def open_batch(received_at: float | None) -> OpenBatch:
    """Return a batch with a commit of the source's time 1 ms that was complete at 1.0."""
    batch = OpenBatch()
    batch.begin(FIRST)
    batch.receive()
    batch.commit(FIRST, 1, now=1.0)
    if received_at is not None:
        batch.add_rows(0, now=received_at)
    return batch


def due_after(batch: OpenBatch, lag_s: float, linger_s: float = LINGER_S) -> float:
    """Return the seconds from the end of the first commit until the batch is due."""
    return round(batch.due_at(linger_s, FIRST.commit_ts_us + int(lag_s * 1_000_000)) - 1.0, 6)


def test_without_a_lag_a_commit_waits_for_the_linger_time_only() -> None:
    for lag_s in (0.0, 0.001, 0.015, 0.1, -3600.0):
        assert due_after(open_batch(received_at=1.0), lag_s) == LINGER_S
        # Commits that come one after the other do not delay it.
        assert due_after(open_batch(received_at=1.004), lag_s) == LINGER_S
        assert due_after(open_batch(received_at=None), lag_s) == LINGER_S


def test_a_batch_grows_with_the_lag_while_more_comes() -> None:
    """At hand, or just handled: the server has more of it."""
    for lag_s, expected_s in ((0.2, 0.025), (1.0, 0.225), (3600.0, 0.3)):
        assert due_after(open_batch(received_at=None), lag_s) == expected_s
        assert due_after(open_batch(received_at=1.0 + expected_s - 0.001), lag_s) == expected_s
    assert due_after(open_batch(received_at=None), 3600.0, linger_s=2.0) == 2.0


def test_the_end_of_a_backlog_is_noticed_by_its_silence() -> None:
    assert due_after(open_batch(received_at=1.1), 3600.0) == 0.13
    assert due_after(open_batch(received_at=1.01), 0.2) == 0.015
    assert due_after(open_batch(received_at=1.0), 0.2, linger_s=0.0) == 0.0025


def test_a_message_says_nothing_of_the_lag() -> None:
    batch = OpenBatch(last_begin=FIRST)
    batch.add_message(now=1.0)
    batch.add_rows(0, now=1.0)
    assert due_after(batch, 3600.0) == LINGER_S
