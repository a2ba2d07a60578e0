"""Up to which frontier readers elsewhere may trust the captured tables."""

from __future__ import annotations

from cdc_consumer.wal.compared import ComparedPositions
from shared_schema.lsn import ORIGIN, Lsn
from shared_schema.progress import ComparedRange


def test_nothing_is_confirmed_between_a_difference_and_its_end() -> None:
    compared = ComparedPositions()
    assert compared.range == ComparedRange(ORIGIN, ORIGIN), "a new session has compared nothing"
    assert compared.confirm(Lsn(9), Lsn(16))
    assert not compared.confirm(Lsn(30), Lsn(33)) and compared.range == ComparedRange(Lsn(16), Lsn(30))
    compared.lose()
    assert compared.range == ComparedRange(Lsn(16), Lsn(30))
    assert compared.confirm(Lsn(50), Lsn(56)), "the difference is over"
    assert not any(compared.range.includes(Lsn(at)) for at in (20, 31, 50, 55, 56))
    assert not compared.confirm(Lsn(70), Lsn(72)) and compared.range.includes(Lsn(56))
