"""The times of the sources' server that belong to a frontier: never newer than the truth."""

from __future__ import annotations

from applier.ingest.source_times import KEPT_STEPS, SourceTime, SourceTimes
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import LastCommit, Progress, decode_progress


def record(frontier: int, commit: tuple[int, int] | None = None, until: int | None = None) -> Progress:
    last = None if commit is None else LastCommit(Lsn(commit[0]), 1, commit[1], ("p",))
    first = None if commit is None else commit[1]
    return Progress("s", "1", 1, ORIGIN, Lsn(frontier), {}, last, complete_until_us=until, first_commit_us=first)


def filled(*records: Progress) -> SourceTimes:
    times = SourceTimes()
    for each in records:
        times.add(each)
    return times


def test_a_record_survives_its_encoding() -> None:
    written = record(20, (15, 1_500), 1_700)
    assert decode_progress(written.encode()) == written
    assert decode_progress(record(20).encode()) == record(20)


def test_a_frontier_has_the_times_of_the_last_record_before_it() -> None:
    times = filled(record(20, (15, 1_500), 1_700), record(40, (35, 3_500), 3_600))
    assert times.at(Lsn(19)) == SourceTime()
    assert times.at(Lsn(20)) == times.at(Lsn(39)) == SourceTime(1_500, 1_700)
    assert times.at(Lsn(40)) == times.at(Lsn(99)) == SourceTime(3_500, 3_600)


def test_what_a_record_does_not_say_stays() -> None:
    # The last commit of the second is beyond its frontier: a table is being copied.
    times = filled(record(20, (15, 1_500), 1_700), record(30, (35, 3_500)), record(25, (22, 9), 9))
    assert times.at(Lsn(30)) == SourceTime(1_500, 1_700)
    assert times.at(Lsn(25)) == SourceTime(1_500, 1_700)


def test_the_first_commit_after_a_frontier() -> None:
    times = filled(record(20, (15, 1_500)), record(30), record(40, (35, 3_500)))
    assert times.first_commit_after(Lsn(10)) is None, "it may have come before the first record"
    assert times.first_commit_after(Lsn(20)) == times.first_commit_after(Lsn(30)) == 3_500
    assert times.first_commit_after(Lsn(40)) is None


def test_many_steps_are_merged_and_never_answer_with_a_later_commit() -> None:
    many = 3 * KEPT_STEPS
    times = filled(*(record(10 * n, (10 * n - 5, 1_000 * n), 1_000 * n) for n in range(1, many)))
    for n in (2, 100, KEPT_STEPS, many - 2):
        first = times.first_commit_after(Lsn(10 * n))
        assert first is None or first <= 1_000 * (n + 1)
        until = times.at(Lsn(10 * n)).complete_until_us
        assert until is None or until <= 1_000 * n
    assert times.at(Lsn(10 * many)) == SourceTime(1_000 * (many - 1), 1_000 * (many - 1))
    assert times.first_commit_after(Lsn(10 * (many - 2))) == 1_000 * (many - 1)
