"""Whole ticks with schedules, an SLA and costs: tiers that are re-assigned, and what a restart finds in the history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import psycopg

from tests.applier.runtime.conftest import FEW, LateStatements, Ticks, change, create

Notified = list[dict[str, object]]

TIER = "SELECT tier FROM pgtrickle._tiers JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = 'few'"
LAST = "SELECT action, refresh_reason, refresh_reason_detail FROM pgtrickle.get_refresh_history('few', 1)"


def ask(ticks: Ticks, query: str) -> tuple[object, ...]:
    return ticks.lab.connection.execute(query.encode()).fetchone() or ()


def pass_time(ticks: Ticks, seconds: float) -> None:
    """Let the last refresh of every stream table be longer ago."""
    query = "UPDATE pgtrickle.pgt_frontiers SET refreshed_at = refreshed_at - make_interval(secs => %s)"
    ticks.lab.connection.execute(query, (seconds,))


def cycle(ticks: Ticks, after_s: float) -> object:
    """Change a row and run a tick some seconds after the last refresh; return the tier that follows."""
    change(ticks)
    pass_time(ticks, after_s)
    ticks.run(ignore_schedules=False)
    assert ticks.lab.differences("few", FEW) == 0
    return ask(ticks, TIER)[0]


@contextmanager
def alerts(ticks: Ticks) -> Iterator[Callable[[], Notified]]:
    with psycopg.connect(ticks.lab.url, autocommit=True) as listener:
        listener.execute("LISTEN pg_trickle_alert")
        yield lambda: [json.loads(one.payload) for one in listener.notifies(timeout=0.2)]


def test_an_sla_of_30_s_with_a_delay_is_promoted_within_three_cycles_and_goes_back(
    make_ticks: Callable[..., Ticks],
) -> None:
    ticks = make_ticks()
    connection = ticks.lab.connection
    create(ticks, few=FEW)
    connection.execute("SELECT pgtrickle.alter_stream_table('few', schedule => '10s', sla => '30 s')")
    ticks.run()
    with alerts(ticks) as heard:
        # In time, then the refreshes come late.
        assert [cycle(ticks, after_s) for after_s in (21, 45, 45, 45)] == ["warm", "warm", "warm", "hot"]
        assert [(one["event"], one["sla_ms"]) for one in heard()] == [("predicted_sla_breach", 30_000)]
    summary = "SELECT tier, refreshes, breaches, p50_ms BETWEEN 45000 AND 60000, error_budget_remaining FROM"
    assert ask(ticks, f"{summary} pgtrickle.sla_summary()") == ("hot", 4, 3, True, 0.0)
    soon = "SELECT next_refresh_at <= now() + interval '10 s' FROM pgtrickle.pgt_runtime"
    assert ask(ticks, soon) == (True,)
    # An applier that is started anew goes on in that tier; the delay is over.
    ticks = make_ticks()
    assert [cycle(ticks, after_s) for after_s in (11, 11, 11, 22)] == ["hot", "hot", "warm", "warm"]

    connection.execute("SELECT pgtrickle.alter_stream_table('few', tier => 'frozen')")
    change(ticks)
    pass_time(ticks, 86_400)
    ticks.run(ignore_schedules=False)
    assert ticks.lab.differences("few", FEW) == 2
    with psycopg.connect(ticks.lab.url, autocommit=True) as waiting:
        # As wait_for and refresh_stream_table ask.
        waiting.execute(
            "SELECT pg_advisory_lock_shared(pgtrickle._request_lock_class(), pgt_id::int)"
            " FROM pgtrickle.pgt_stream_tables"
        )
        ticks.run(ignore_schedules=False)
    assert ticks.lab.differences("few", FEW) == 0
    # When it is due by another schedule is known before it is due.
    connection.execute("SELECT pgtrickle.set_stream_table_sla('few', NULL)")
    connection.execute("SELECT pgtrickle.alter_stream_table('few', tier => 'hot', schedule => '1000d')")
    ticks.run(ignore_schedules=False)
    assert ask(ticks, "SELECT next_refresh_at > now() + interval '1 d' FROM pgtrickle.pgt_runtime") == (True,)


def test_a_late_consumer_is_told_before_the_breach_and_promotes_by_the_clock_of_the_source(
    make_ticks: Callable[..., Ticks],
) -> None:
    """Nothing is simulated: commits arrive seconds after they were made, and time passes."""
    ticks = make_ticks()
    late = LateStatements(ticks.lab, ticks.times)
    ticks.intake = late
    # Up to 5 s it would begin as hot. Warm is every two seconds.
    create(ticks, few=FEW)
    ticks.lab.connection.execute("SELECT pgtrickle.set_stream_table_sla('few', '5.1 s')")
    numbers = count(1_000)

    def go_on(until: Callable[[], bool]) -> None:
        """Commit and tick, as long as it takes."""
        end = time.monotonic() + 60
        while not until():
            assert time.monotonic() < end
            ticks.lab.change("a", f"INSERT INTO a VALUES ({next(numbers)}, 1)")
            ticks.lab.step()
            late.note_commit()
            ticks.run(ignore_schedules=False)
            time.sleep(0.1)

    def is_in(tier: str) -> Callable[[], bool]:
        return lambda: ask(ticks, TIER) == (tier,)

    def refreshes() -> list[tuple[bool, float]]:
        """Return of each whether it broke the SLA, and the seconds since the one before."""
        query = (
            "SELECT freshness_ms > sla_ms, extract(epoch FROM end_time - lag(end_time) OVER (ORDER BY refresh_id))"
            " FROM pgtrickle.pgt_refresh_history WHERE freshness_ms IS NOT NULL ORDER BY refresh_id"
        )
        return ticks.lab.connection.execute(query).fetchall()

    go_on(lambda: [is_broken for is_broken, _ in refreshes()[-2:]] == [False] * 2)
    assert ask(ticks, "SELECT complete_until IS NOT NULL FROM pgtrickle.pgt_frontiers") == (True,)
    before = len(refreshes())
    with alerts(ticks) as heard:
        late.delay_s = 5.5
        go_on(lambda: refreshes()[-1][0])
        foretold = heard()
        assert [one["event"] for one in foretold] == ["predicted_sla_breach"]
        assert 4_590 <= float(str(foretold[0]["age_ms"])) < 5_100, "nothing was broken yet"
        go_on(is_in("hot"))
        assert heard() == [], "it is told once"
    since = refreshes()[before:]
    breaks = [is_broken for is_broken, _ in since]
    # What had arrived before the delay was still in time.
    assert breaks[-3:] == [True] * 3 and not any(breaks[:-3]), "three in a row, and it is hot"
    # By the applier's clock all is well: it is refreshed as often as before.
    assert all(seconds < 5.1 for _, seconds in since[-2:])
    late.delay_s, before = 0.0, len(refreshes())
    go_on(is_in("warm"))
    # The rows that the first one replaces are still old.
    assert [is_broken for is_broken, _ in refreshes()[before:]] == [True] + [False] * 3
    assert ticks.lab.differences("few", FEW) == 0


def test_a_cost_spike_in_the_history_is_known_after_a_restart(make_ticks: Callable[..., Ticks]) -> None:
    ticks = make_ticks()
    connection = ticks.lab.connection
    ticks.lab.change("a", "INSERT INTO a SELECT i, i % 7 FROM generate_series(100, 20000) i")
    ticks.lab.step()
    create(ticks, few=FEW)
    ticks.run_with_long()

    def spread(rows: int) -> tuple[object, ...]:
        ticks.lab.change("a", f"UPDATE a SET k = (k + 1) % 7 WHERE id BETWEEN 100 AND {99 + rows}")
        ticks.lab.step()
        ticks.run_with_long()
        assert ticks.lab.differences("few", FEW) == 0
        return ask(ticks, LAST)

    usual = [spread(rows)[:2] for rows in (600, 700, 800, 900, 2_000)]
    assert usual == [("DIFFERENTIAL", "INCREMENTAL")] * 5
    # From now on the history says that a change row costs 20 ms.
    connection.execute(
        "UPDATE pgtrickle.pgt_refresh_history SET compute_ms = rows_in * 20 WHERE action = 'DIFFERENTIAL'"
    )
    ticks = make_ticks()
    action, reason, detail = spread(2_000)
    assert (action, reason) == ("FULL", "predicted_cost_exceeds_full")
    assert str(detail).startswith("4000 changes: about 80") and "by 5 refreshes, a full one about " in str(detail)
    # A delta of few rows stays one, whatever it costs.
    assert spread(1)[:2] == ("DIFFERENTIAL", "INCREMENTAL")
    connection.execute(
        "DELETE FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL' AND refresh_id NOT IN"
        " (SELECT refresh_id FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL' ORDER BY 1 LIMIT 4)"
    )
    ticks = make_ticks()
    assert spread(1_000)[:2] == ("DIFFERENTIAL", "INCREMENTAL"), "four samples predict nothing"
