"""The guide lists every metric of the applier and no other; series are bounded and go with their stream table."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from applier import metrics
from applier.metrics import COMMIT_TO_VISIBLE, LABELLED_TABLES, OTHERS, ROWS_OUT, STALENESS

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_guide_names_every_metric() -> None:
    named = set(re.findall(r"^\| `(pg_trickle_\w+)`", GUIDE.read_text(), re.MULTILINE))
    kept = [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]
    families = [*(family for metric in kept for family in metric.describe()), *STALENESS.describe()]
    assert named == {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def names(metric: Collector) -> set[str]:
    """Return the stream tables that have series."""
    return {sample.labels["stream_table"] for family in metric.collect() for sample in family.samples}


def test_staleness_grows_until_it_is_read_again_and_forgets_what_is_gone() -> None:
    now = time.monotonic()
    STALENESS.set({"public.a": 1.0, "public.b": 2.0}, {"public.b": 3.0}, now - 5)
    shown, allowed = ({s.labels["stream_table"]: s.value for s in family.samples} for family in STALENESS.collect())
    assert shown == {"public.a": pytest.approx(6, abs=0.5), "public.b": pytest.approx(7, abs=0.5)}
    assert allowed == {"public.b": 3.0}
    STALENESS.set({f"public.t{n}": float(n) for n in range(LABELLED_TABLES + 5)}, {}, now)
    assert len(names(STALENESS)) == LABELLED_TABLES and "public.t504" in names(STALENESS), "the stalest are shown"
    STALENESS.set({}, {}, now)
    assert names(STALENESS) == set()


def test_series_are_bounded_and_go_with_their_stream_table() -> None:
    for table in names(COMMIT_TO_VISIBLE) | names(ROWS_OUT):
        metrics.forget(table)  # of tests that ran before in this process
    for number in range(LABELLED_TABLES + 5):
        COMMIT_TO_VISIBLE.labels(metrics.name_of(f"public.many{number}"), "postgres").observe(1)
    assert len(names(COMMIT_TO_VISIBLE)) == LABELLED_TABLES + 1 and OTHERS in names(COMMIT_TO_VISIBLE)
    for number in range(LABELLED_TABLES + 5):
        metrics.forget(f"public.many{number}")
    assert names(COMMIT_TO_VISIBLE) == {OTHERS}
    COMMIT_TO_VISIBLE.remove_by_labels({"stream_table": OTHERS})
    assert metrics.name_of("public.many0") == "public.many0"
    metrics.forget("public.many0")
