"""The rules of Prometheus are well formed, read metrics that the programs have, and cover every event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
CONFIGURATION: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())


@pytest.fixture(scope="module")
def metrics() -> dict[str, frozenset[str]]:
    assert applier_metrics.ALERTS  # its metrics are those of the process
    return read_metrics(REGISTRY) | read_metrics(Metrics(Health()).registry)


def test_the_rules_hold(metrics: dict[str, frozenset[str]]) -> None:
    assert check_rules(RULES, metrics) == []


def test_every_event_has_a_rule_a_series_from_the_start_and_a_line_of_the_page() -> None:
    events, states = ({rule["alert"]: rule["expr"] for rule in group["rules"]} for group in RULES["groups"])
    names = {event: "PgTrickle" + event.value.title().replace("_", "") for event in AlertEvent}
    rise = 'increase(pg_trickle_alerts_total{{event="{}"}}[10m]) > 0'
    assert events == {name: rise.format(event.value) for event, name in names.items()}
    page = (ROOT / "docs" / "operations.md").read_text()
    lines = {event: rf"^\| `{event.value}` \|.*\| `{name}` \|$" for event, name in names.items()}
    assert [event.value for event, line in lines.items() if not re.search(line, page, re.MULTILINE)] == []
    assert [name for name in states if f"`{name}`" not in page] == []
    # Prometheus sees no increase in a series that begins with its first alert.
    for registry in (REGISTRY, Metrics(Health()).registry):
        labels = [{"event": event.value} for event in AlertEvent]
        assert None not in [registry.get_sample_value("pg_trickle_alerts_total", label) for label in labels]


def test_rules_name_the_jobs_that_are_scraped() -> None:
    jobs = {job["job_name"] for job in CONFIGURATION["scrape_configs"]}
    (down,) = [rule for group in RULES["groups"] for rule in group["rules"] if rule["alert"] == "PgTrickleDown"]
    assert down["expr"] == f'up{{job=~"{"|".join(sorted(jobs, reverse=True))}"}} == 0'


def _queries(panel: dict[str, Any]) -> Iterator[str]:
    yield from (target["expr"] for target in panel.get("targets", []))
    for inner in panel.get("panels", []):
        yield from _queries(inner)


def test_queries_of_dashboards_and_pages_hold(metrics: dict[str, frozenset[str]]) -> None:
    dashboards = [json.loads(path.read_text()) for path in (ROOT / "deploy" / "grafana").rglob("*.json")]
    found = [query for board in dashboards for query in _queries(board)]
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    blocks = re.findall(r"^```promql\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    in_pages = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    assert found and len(in_pages) > 2
    for query in [*found, *filter(None, in_pages)]:
        check_expression(query.replace("$__rate_interval", "5m"), metrics)


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
    loaded = CONFIGURATION["rule_files"]
    volumes = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["prometheus"]["volumes"]
    assert all(any(volume.split(":")[1] == path for volume in volumes) for path in loaded) and loaded
