"""Which way a refresh goes, and that the reason is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.strategy import Costs, FullForbidden, FullPolicy, Mode, Situation, Way, Why, decide

CALM = Situation(
    Mode.AUTO,
    FullPolicy.ALLOW,
    followed=True,
    steady=True,
    filled=True,
    partial=False,
    history=True,
    changes=10,
    source_rows=1_000_000,
    threshold=0.15,
)


@pytest.mark.parametrize(
    ("situation", "way", "why"),
    [
        (CALM, Way.DIFFERENTIAL, Why.INCREMENTAL),
        (replace(CALM, filled=False), Way.FULL, Why.INITIAL),
        (replace(CALM, changes=0), Way.NO_DATA, Why.UNCHANGED),
        (replace(CALM, changes=0, mode=Mode.FULL), Way.NO_DATA, Why.UNCHANGED),
        (replace(CALM, changes=0, followed=False, steady=False), Way.IN_POSTGRES, Why.QUERY_REFUSED),
        (replace(CALM, followed=False, filled=False), Way.IN_POSTGRES, Why.INITIAL),
        (replace(CALM, followed=False), Way.IN_POSTGRES, Why.QUERY_REFUSED),
        (replace(CALM, mode=Mode.FULL, followed=False), Way.IN_POSTGRES, Why.MODE),
        (replace(CALM, mode=Mode.FULL), Way.FULL, Why.MODE),
        (replace(CALM, mode=Mode.DIFFERENTIAL, changes=999_999), Way.DIFFERENTIAL, Why.MODE),
        (replace(CALM, mode=Mode.IMMEDIATE, changes=999_999), Way.DIFFERENTIAL, Why.MODE),
        (replace(CALM, changes=150_001), Way.FULL, Why.CHANGE_RATIO),
        (replace(CALM, changes=150_000), Way.DIFFERENTIAL, Why.INCREMENTAL),
        (replace(CALM, changes=900, source_rows=900), Way.DIFFERENTIAL, Why.INCREMENTAL),
        (replace(CALM, changes=150_001, policy=FullPolicy.ERROR), Way.DIFFERENTIAL, Why.INCREMENTAL),
        (replace(CALM, partial=True, changes=0), Way.FULL, Why.REPAIR),
        (replace(CALM, history=False), Way.FULL, Why.HISTORY_GONE),
        (replace(CALM, mode=Mode.DIFFERENTIAL, history=False), Way.FULL, Why.HISTORY_GONE),
    ],
)
def test_the_way_and_the_reason(situation: Situation, way: Way, why: Why) -> None:
    strategy = decide(situation)
    assert (strategy.way, strategy.why) == (way, why)


def test_a_forbidden_recomputation_is_an_error_not_a_surprise() -> None:
    with pytest.raises(FullForbidden, match="full_policy"):
        decide(replace(CALM, history=False, policy=FullPolicy.ERROR))


def test_costs_are_learnt_and_tip_the_scales() -> None:
    costs = Costs().after_full(2_000, 1_000_000).after_changes(5_000, 50_000)
    assert decide(replace(CALM, changes=50_000, costs=costs)).why is Why.MEASURED_COST
    assert decide(replace(CALM, changes=20_000, costs=costs)).why is Why.INCREMENTAL
    # Sources that grew make the whole dearer.
    assert decide(replace(CALM, changes=50_000, source_rows=3_000_000, costs=costs)).why is Why.INCREMENTAL
    assert costs.after_changes(9_999, 10) == costs


@given(
    st.builds(
        Situation,
        mode=st.sampled_from(Mode),
        policy=st.just(FullPolicy.ERROR),
        followed=st.just(True),
        steady=st.just(True),
        filled=st.just(True),
        partial=st.just(False),
        history=st.just(True),
        changes=st.integers(0, 10**9),
        source_rows=st.integers(0, 10**9),
        threshold=st.floats(0, 1),
        costs=st.builds(Costs, st.floats(0, 1e6), st.integers(0, 10**9), st.floats(0, 10)),
    )
)
def test_never_full_against_the_users_word(situation: Situation) -> None:
    assert decide(situation).way in (Way.DIFFERENTIAL, Way.NO_DATA) or situation.mode is Mode.FULL
