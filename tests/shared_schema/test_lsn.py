"""LSNs, LSN ranges and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_schema.errors import ContractError
from shared_schema.lsn import LSN_MAX, Lsn, LsnRange

positions = st.integers(0, LSN_MAX).map(Lsn)


@given(positions)
def test_text_round_trip(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn


@given(positions, positions)
def test_order_is_that_of_the_numbers(a: Lsn, b: Lsn) -> None:
    assert (a < b) == (a.value < b.value)


@pytest.mark.parametrize("text", ["", "/", "0", "0/", "/0", "g/0", "0/123456789", "0/0/0", "-1/0"])
def test_no_position(text: str) -> None:
    with pytest.raises(ContractError):
        Lsn.parse(text)


@given(positions, positions, positions)
def test_lsn_ranges_are_half_open(a: Lsn, b: Lsn, lsn: Lsn) -> None:
    old, new = min(a, b), max(a, b)
    assert (lsn in LsnRange(old, new)) == (old <= lsn < new)


def test_an_lsn_range_does_not_run_backwards() -> None:
    with pytest.raises(ContractError):
        LsnRange(Lsn(2), Lsn(1))
