"""What may be published and acknowledged, and when: each rule alone, then as a law over any stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_consumer.wal.frontier import Frontier
from shared_schema.lsn import Lsn


def test_a_commit_moves_to_its_end() -> None:
    frontier = Frontier(Lsn(100))
    assert frontier.begin(Lsn(110))
    assert frontier.publishable == Lsn(100)
    frontier.commit(Lsn(120))
    assert frontier.publishable == Lsn(120)


def test_a_keepalive_inside_a_transaction_moves_nothing() -> None:
    frontier = Frontier(Lsn(100))
    frontier.begin(Lsn(200))
    frontier.reach(Lsn(190))
    assert frontier.publishable == Lsn(100)


def test_a_keepalive_between_transactions_moves() -> None:
    frontier = Frontier(Lsn(100))
    frontier.reach(Lsn(150))
    frontier.reach(Lsn(120))
    assert frontier.publishable == Lsn(150)
    assert frontier.published == Lsn(100)


def test_commits_before_the_start_are_dropped_and_the_one_at_it_is_not() -> None:
    frontier = Frontier(Lsn(100))
    assert not frontier.begin(Lsn(99))
    frontier.commit(Lsn(100))
    assert frontier.begin(Lsn(100))


def test_a_waiting_capture_holds_the_frontier_below_its_point() -> None:
    frontier = Frontier(Lsn(100))
    frontier.limit = Lsn(150)
    frontier.begin(Lsn(140))
    frontier.commit(Lsn(150))
    assert frontier.publishable == Lsn(149)
    assert frontier.arrived(Lsn(150)) and not frontier.passed(Lsn(150))
    frontier.limit = None
    assert frontier.publishable == Lsn(150)


def test_the_next_point_is_behind_everything_and_no_commit_can_start_before_it() -> None:
    frontier = Frontier(Lsn(96))
    assert frontier.next_point == Lsn(104)
    frontier.begin(Lsn(160))
    assert frontier.next_point == Lsn(168), "the open commit belongs before the point"
    frontier.commit(Lsn(200))
    assert not frontier.passed(frontier.next_point)
    assert (frontier.next_point.value - 1) % 8 == 7


def test_half_a_copy_of_an_earlier_instance_holds_the_frontier_until_it_is_released() -> None:
    frontier = Frontier(Lsn(200))
    frontier.hold(Lsn(100), Lsn(151))
    frontier.limit = Lsn(240)
    frontier.reach(Lsn(300))
    assert frontier.publishable == Lsn(150)
    frontier.limit = None
    frontier.mark_published(Lsn(150), Lsn(300))
    assert (frontier.published, frontier.durable) == (Lsn(150), Lsn(300))
    frontier.release()
    assert frontier.publishable == Lsn(300)


def test_a_point_the_stream_has_passed() -> None:
    frontier = Frontier(Lsn(100))
    frontier.begin(Lsn(150))
    assert frontier.passed(Lsn(150)) and not frontier.passed(Lsn(151))
    frontier.commit(Lsn(160))
    frontier.mark_published(Lsn(160), Lsn(160))
    assert frontier.passed(Lsn(160)) and not frontier.passed(Lsn(161))


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Commits in order with keepalives anywhere, as a walsender sends them: it never promises the unsent."""
    position, events = 100, []
    for _ in range(draw(st.integers(0, 20))):
        position += draw(st.integers(1, 9)) * 8
        if draw(st.booleans()):
            events.append(("begin", position))
            if draw(st.booleans()):
                events.append(("keepalive", position - draw(st.integers(0, 8))))
            position += 8
            events.append(("commit", position))
        else:
            events.append(("keepalive", position))
        if draw(st.booleans()):
            events.append(("publish", 0))
    return events


@given(streams(), st.integers(0, 300))
def test_published_never_covers_a_commit_that_was_not_received_whole(stream: list[tuple[str, int]], cut: int) -> None:
    """Stop anywhere: resuming at `published` returns every commit that is not on the topics, and no other."""
    frontier, whole, on_topics, open_commit = Frontier(Lsn(100)), list[int](), set[int](), 0
    previous = frontier.published
    for kind, position in stream[:cut]:
        match kind:
            case "begin":
                open_commit = position
                assert frontier.begin(Lsn(position))
            case "commit":
                frontier.commit(Lsn(position))
                whole.append(open_commit)
            case "keepalive":
                frontier.reach(Lsn(position))
            case _ if frontier.open_commit is None:
                frontier.mark_published(frontier.publishable, frontier.received)
                on_topics.update(whole)
        assert frontier.published >= previous
        previous = frontier.published
    commits = [position for kind, position in stream if kind == "begin"]
    assert {c for c in commits if c < frontier.published.value} <= on_topics
    assert all(c < frontier.published.value for c in on_topics)
