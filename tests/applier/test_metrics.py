"""The guide lists every metric of the applier and no other."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from applier import metrics

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_guide_names_every_metric() -> None:
    named = set(re.findall(r"^\| `(pg_trickle_\w+)`", GUIDE.read_text(), re.MULTILINE))
    kept = [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]
    families = [family for metric in kept for family in metric.describe()]
    assert named == {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
