"""How long each stage of a start took is in one line of the log and in the metric, once, when a tick is done."""

from __future__ import annotations

import logging
import time

import pytest
from prometheus_client import REGISTRY

from applier.runtime.start_stages import READY_STAGE, StartStages


def shown(stage: str) -> float | None:
    """Return the value of the metric."""
    return REGISTRY.get_sample_value("pg_trickle_start_seconds", {"stage": stage})


def test_the_stages_of_a_start(caplog: pytest.LogCaptureFixture) -> None:
    stages = StartStages()
    with stages.stage("jvm"):
        time.sleep(0.02)
    with pytest.raises(OSError, match="away"), stages.stage("topics"):
        raise OSError("away")
    with caplog.at_level(logging.INFO, "applier.runtime.start_stages"):
        stages.note_ready()
        with stages.stage("jvm"):
            time.sleep(0.05)
        stages.note_ready()
    [line] = caplog.records
    assert line.getMessage() == "ready" and not hasattr(line, "topics_ms"), "what failed was not done"
    jvm_ms, after_s = vars(line)["jvm_ms"], vars(line)["after_s"]
    assert 20 <= jvm_ms < 50, "only the start counts"
    assert shown("jvm") == pytest.approx(jvm_ms / 1000, abs=0.001)
    ready = shown(READY_STAGE)
    assert ready is not None and ready == pytest.approx(after_s, abs=0.01)
    # The imports count from the start of the process: here that of the tests.
    imports = shown("imports")
    assert imports is not None and 0 < imports < ready
