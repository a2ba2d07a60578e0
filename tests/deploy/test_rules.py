"""The rules of Prometheus are well formed, read metrics that the programs have, and cover every event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from applier import metrics as applier_metrics
from cdc_consumer.health import Health
from cdc_consumer.metrics import Metrics
from deploy.prometheus.rules import BadExpression, check_expression, check_rules, read_metrics
from shared_schema.alerts import AlertEvent

ROOT = Path(__file__).resolve().parents[2]
RULES: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())


@pytest.fixture(scope="module")
def metrics() -> dict[str, frozenset[str]]:
    assert applier_metrics.ALERTS  # its metrics are those of the process
    return read_metrics(REGISTRY) | read_metrics(Metrics(Health()).registry)


def test_the_rules_hold(metrics: dict[str, frozenset[str]]) -> None:
    assert check_rules(RULES, metrics) == []


def test_every_event_has_a_rule_and_a_line_of_the_page() -> None:
    expressions = " ".join(rule["expr"] for group in RULES["groups"] for rule in group["rules"])
    page = (ROOT / "docs" / "operations.md").read_text()
    assert [e.value for e in AlertEvent if f'{{event="{e.value}"}}' not in expressions] == []
    assert [e.value for e in AlertEvent if f"| `{e.value}` |" not in page] == []


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("pg_trickle_nothing > 0", "no program has a metric pg_trickle_nothing"),
        ('increase(pg_trickle_alerts_total{kind="x"}[5m]) > 0', "has no label kind"),
        ("increase(pg_trickle_alerts_total) > 0", "expected type matrix"),
        ("pg_trickle_alerts_total[5m]", "not a range"),
        ("(pg_trickle_alerts_total[5m])", "not a range"),
        ("guess(pg_trickle_ready)", "unknown function"),
        ("max by (colour) (pg_trickle_ready)", "no metric of it has a label colour"),
        # Another metric has it.
        ("max by (stream_table) (pg_trickle_ready)", "no metric of it has a label stream_table"),
        ("pg_trickle_ready == on (colour) pg_trickle_cdc_ready", "no metric of it has a label colour"),
        ('pg_trickle_ready{job="a" or colour="b"}', "has no label colour"),
        ('{job="cdc"} > 0', "no program has a metric"),
        ("pg_trickle_ready ==", "invalid promql query"),
        ("(pg_trickle_ready", "unclosed left parenthesis"),
        ("pg_trickle_ready pg_trickle_ready", "invalid promql query"),
        ("pg_trickle_ready ? 1", "unexpected character"),
    ],
)
def test_a_bad_expression_is_refused(metrics: dict[str, frozenset[str]], expression: str, reason: str) -> None:
    with pytest.raises(BadExpression, match=reason):
        check_expression(expression, metrics)


def test_prometheus_loads_them() -> None:
    loaded = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["rule_files"]
    volumes = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]["volumes"]
    assert all(any(volume.split(":")[1] == path for volume in volumes) for path in loaded) and loaded
