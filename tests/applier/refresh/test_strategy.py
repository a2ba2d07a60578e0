"""Which method a refresh uses, and that the reason is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.refresh.holding.gates import SkipReason
from applier.refresh.method.cost_model import Prediction
from applier.refresh.method.strategy import (
    FEW_CHANGES,
    FullForbidden,
    FullPolicy,
    RefreshInputs,
    RefreshMethod,
    RefreshMode,
    RefreshReason,
    Reinitialize,
    choose_strategy,
)

CALM = RefreshInputs(
    RefreshMode.AUTO,
    FullPolicy.ALLOW,
    has_plan=True,
    is_deterministic=True,
    is_filled=True,
    partial=False,
    has_history=True,
    changes=10,
    source_rows=1_000_000,
    threshold=0.15,
)


@pytest.mark.parametrize(
    ("situation", "way", "why"),
    [
        (CALM, RefreshMethod.DIFFERENTIAL, RefreshReason.INCREMENTAL),
        (replace(CALM, is_filled=False), RefreshMethod.FULL, RefreshReason.INITIAL),
        (replace(CALM, changes=0), RefreshMethod.NO_DATA, RefreshReason.UNCHANGED),
        (replace(CALM, changes=0, mode=RefreshMode.FULL), RefreshMethod.NO_DATA, RefreshReason.UNCHANGED),
        (
            replace(CALM, changes=0, has_plan=False, is_deterministic=False),
            RefreshMethod.IN_POSTGRES,
            RefreshReason.QUERY_REFUSED,
        ),
        (replace(CALM, has_plan=False, is_filled=False), RefreshMethod.IN_POSTGRES, RefreshReason.INITIAL),
        (replace(CALM, has_plan=False), RefreshMethod.IN_POSTGRES, RefreshReason.QUERY_REFUSED),
        (replace(CALM, mode=RefreshMode.FULL, has_plan=False), RefreshMethod.IN_POSTGRES, RefreshReason.MODE),
        (replace(CALM, mode=RefreshMode.FULL), RefreshMethod.FULL, RefreshReason.MODE),
        (replace(CALM, mode=RefreshMode.DIFFERENTIAL, changes=999_999), RefreshMethod.DIFFERENTIAL, RefreshReason.MODE),
        (replace(CALM, mode=RefreshMode.IMMEDIATE, changes=999_999), RefreshMethod.DIFFERENTIAL, RefreshReason.MODE),
        (replace(CALM, changes=150_001), RefreshMethod.FULL, RefreshReason.CHANGE_RATIO),
        (replace(CALM, changes=150_000), RefreshMethod.DIFFERENTIAL, RefreshReason.INCREMENTAL),
        (replace(CALM, changes=900, source_rows=900), RefreshMethod.DIFFERENTIAL, RefreshReason.INCREMENTAL),
        (
            replace(CALM, changes=150_001, policy=FullPolicy.ERROR),
            RefreshMethod.DIFFERENTIAL,
            RefreshReason.INCREMENTAL,
        ),
        (replace(CALM, partial=True, changes=0), RefreshMethod.FULL, RefreshReason.REPAIR),
        (replace(CALM, has_history=False), RefreshMethod.FULL, RefreshReason.HISTORY_GONE),
        (
            replace(CALM, mode=RefreshMode.DIFFERENTIAL, has_history=False),
            RefreshMethod.FULL,
            RefreshReason.HISTORY_GONE,
        ),
    ],
)
def test_the_way_and_the_reason(situation: RefreshInputs, way: RefreshMethod, why: RefreshReason) -> None:
    strategy = choose_strategy(situation)
    assert (strategy.method, strategy.reason) == (way, why)


def test_a_forbidden_recomputation_is_an_error_not_a_surprise() -> None:
    with pytest.raises(FullForbidden, match="full_policy"):
        choose_strategy(replace(CALM, has_history=False, policy=FullPolicy.ERROR))


def test_a_predicted_cost_above_a_full_one_is_full_with_the_figures() -> None:
    slow = Prediction(differential_ms=5_000, full_ms=2_000, samples=7)
    chosen = choose_strategy(replace(CALM, changes=50_000, prediction=slow))
    assert (chosen.method, chosen.reason.value) == (RefreshMethod.FULL, "predicted_cost_exceeds_full")
    assert chosen.detail == (
        "50000 changes: about 5000 ms by 7 refreshes, a full one about 2000 ms, prediction_ratio 1.5"
    )
    for calm in (replace(slow, full_ms=3_334), replace(slow, differential_ms=3_000)):
        assert choose_strategy(replace(CALM, changes=50_000, prediction=calm)).reason is RefreshReason.INCREMENTAL


@given(st.integers(1, FEW_CHANGES), st.integers(0, 10**9), st.floats(0, 1e9), st.floats(0, 1e9))
def test_few_changes_never_switch(changes: int, source_rows: int, slow_ms: float, full_ms: float) -> None:
    chosen = choose_strategy(
        replace(CALM, changes=changes, source_rows=source_rows, prediction=Prediction(slow_ms, full_ms, 500))
    )
    assert chosen.method is RefreshMethod.DIFFERENTIAL


def test_the_code_of_earlier_versions_is_known() -> None:
    assert RefreshReason("MEASURED_COST") is RefreshReason.MEASURED_COST


@given(
    st.builds(
        RefreshInputs,
        mode=st.sampled_from(RefreshMode),
        policy=st.just(FullPolicy.ERROR),
        has_plan=st.just(True),
        is_deterministic=st.just(True),
        is_filled=st.just(True),
        partial=st.just(False),
        has_history=st.just(True),
        changes=st.integers(0, 10**9),
        source_rows=st.integers(0, 10**9),
        threshold=st.floats(0, 1),
        prediction=st.none() | st.builds(Prediction, st.floats(0, 1e6), st.floats(0, 1e6), st.integers(5, 500)),
    )
)
def test_never_full_against_the_users_word(situation: RefreshInputs) -> None:
    assert (
        choose_strategy(situation).method in (RefreshMethod.DIFFERENTIAL, RefreshMethod.NO_DATA)
        or situation.mode is RefreshMode.FULL
    )


ASKED = Reinitialize(RefreshReason.REINITIALIZE, "asked", by_user=True)
FOLLOWED = Reinitialize(RefreshReason.AUTO_SCHEMA_EVOLUTION, "a view was replaced", by_user=False)


@pytest.mark.parametrize("request_", [ASKED, FOLLOWED])
@pytest.mark.parametrize(
    "situation",
    [
        CALM,
        replace(CALM, changes=0),
        replace(CALM, partial=True, has_history=False),
        replace(CALM, mode=RefreshMode.DIFFERENTIAL, has_history=False),
    ],
)
def test_a_request_is_a_full_refresh_with_its_reason(situation: RefreshInputs, request_: Reinitialize) -> None:
    """Whatever the mode and the history: rows in doubt are never continued from."""
    chosen = choose_strategy(replace(situation, reinitialize=request_))
    assert (chosen.method, chosen.reason, chosen.detail) == (RefreshMethod.FULL, request_.reason, request_.detail)
    by_postgres = choose_strategy(replace(situation, reinitialize=request_, has_plan=False))
    assert by_postgres.method is RefreshMethod.IN_POSTGRES and by_postgres.reason is request_.reason


def test_only_a_user_may_ask_for_what_the_policy_forbids() -> None:
    strict = replace(CALM, policy=FullPolicy.ERROR)
    assert choose_strategy(replace(strict, reinitialize=ASKED)).method is RefreshMethod.FULL
    with pytest.raises(FullForbidden, match="a view was replaced"):
        choose_strategy(replace(strict, reinitialize=FOLLOWED))


def test_every_reason_of_the_history_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "modes.md").read_text()
    # A refresh without changes leaves no line.
    written = {reason.value for reason in [*RefreshReason, *SkipReason]} - {RefreshReason.UNCHANGED.value}
    assert [reason for reason in sorted(written) if f"`{reason}`" not in page] == []
