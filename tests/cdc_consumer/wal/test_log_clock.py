"""Up to which moment of the source's clock the topics are complete: by position, never by our own time of day."""

from __future__ import annotations

from cdc_consumer.wal.log_clock import LogClock
from shared_schema.beats import Completeness
from shared_schema.lsn import Lsn
from shared_schema.progress import LastCommit


def commit(lsn: int, at_us: int) -> LastCommit:
    return LastCommit(Lsn(lsn), 7, at_us, ("p",))


def known(clock: LogClock) -> Completeness | None:
    return clock.beat()[0]


def test_a_reading_counts_once_its_position_is_on_the_topics() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.read(Lsn(150), 1_000)
    clock.reach(Lsn(149))
    assert known(clock) is None
    clock.reach(Lsn(150))
    assert known(clock) == Completeness(Lsn(100), 1_000)


def test_an_idle_source_stays_complete_until_the_last_reading() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    for second in range(1, 6):
        clock.read(Lsn(150), second * 1_000_000)
        clock.reach(Lsn(150))
        assert known(clock) == Completeness(Lsn(100), second * 1_000_000)


def test_nothing_is_claimed_before_the_transaction_of_the_sink_is_committed() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.read(Lsn(150), 1_000)
    clock.reach(Lsn(150))
    clock.read(Lsn(300), 2_000)
    assert clock.until_at(Lsn(310), commit(200, 1_500)) == 2_000
    assert clock.until_at(Lsn(250), commit(200, 1_500)) == 1_500
    assert known(clock) == Completeness(Lsn(100), 1_000)
    clock.publish(Lsn(250), commit(200, 1_500), 1_500, has_rows=True)
    assert known(clock) == Completeness(Lsn(250), 1_500)


def test_a_commit_beyond_the_frontier_says_nothing() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.publish(Lsn(200), commit(250, 9_000), 9_000, has_rows=False)
    assert known(clock) is None and clock.until_at(Lsn(200), commit(250, 9_000)) is None


def test_the_earlier_frontier_is_complete_until_the_first_commit_after_it() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.read(Lsn(150), 1_000)
    clock.reach(Lsn(150))
    assert clock.beat() == (Completeness(Lsn(100), 1_000), None)
    for number in range(5):
        clock.publish(Lsn(210 + number), commit(200 + number, 5_000 + number), 5_000 + number, has_rows=True)
    assert clock.beat() == (Completeness(Lsn(214), 5_004), Completeness(Lsn(100), 5_000))
    # It stays while nothing new comes.
    assert clock.beat()[1] == Completeness(Lsn(100), 5_000)


def test_a_clock_that_is_set_back_counts_from_its_next_reading() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.read(Lsn(150), 9_000_000)
    clock.reach(Lsn(150))
    clock.read(Lsn(150), 2_000_000)
    clock.reach(Lsn(150))
    assert known(clock) == Completeness(Lsn(100), 2_000_000)
    clock.publish(Lsn(200), commit(180, 1_900_000), 1_900_000, has_rows=True)
    assert known(clock) == Completeness(Lsn(200), 1_900_000)


def test_an_older_position_never_replaces_a_newer_one() -> None:
    clock = LogClock()
    clock.resume(Lsn(100))
    clock.publish(Lsn(300), commit(250, 4_000), 4_000, has_rows=True)
    clock.read(Lsn(200), 3_000)
    clock.reach(Lsn(300))
    assert known(clock) == Completeness(Lsn(300), 4_000)
