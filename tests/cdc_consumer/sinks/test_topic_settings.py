"""Which settings of topics that somebody else created lose or reject rows, and what mends each."""

from __future__ import annotations

import pytest

from cdc_consumer.sinks.topic_settings import find_compaction, find_risks

GOOD = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "1048588"}


@pytest.mark.parametrize(
    ("differs", "retention_ms", "problem", "mend"),
    [
        ({}, -1, "", ""),
        ({"retention.ms": "604800000"}, -1, "deleted after 604800000 ms", "retention.ms=-1"),
        ({"retention.ms": "604800000"}, 604_800_000, "", ""),
        ({"retention.ms": "3600000"}, 604_800_000, "deleted after 3600000 ms", "retention.ms=604800000"),
        ({"retention.bytes": "1000"}, -1, "deleted beyond 1000 bytes", "retention.bytes=-1"),
        ({"max.message.bytes": "999999"}, -1, "above 999999 bytes are rejected", "max.message.bytes=1000000"),
        ({"max.message.bytes": "1000000"}, -1, "", ""),
    ],
)
def test_risks(differs: dict[str, str], retention_ms: int, problem: str, mend: str) -> None:
    found = find_risks({**GOOD, **differs}, retention_ms, 1_000_000)
    assert [setting for _, setting in found] == ([mend] if mend else [])
    assert all(problem in said for said, _ in found)


def test_a_broker_that_does_not_tell_a_setting_is_not_blamed() -> None:
    assert find_risks({}, -1, 1_000_000) == [] and not find_compaction({})


def test_compaction_beside_another_policy() -> None:
    assert not find_compaction(GOOD)
    assert find_compaction({"cleanup.policy": "compact"}) and find_compaction({"cleanup.policy": "compact,delete"})
