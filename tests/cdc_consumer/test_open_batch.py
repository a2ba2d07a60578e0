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
