"""The container files agree with each other and with the code; they cannot be run where there is no Docker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
PROMETHEUS: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())

PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?")
ONE_SHOT = {"install"}


def settings_of(service: str) -> set[str]:
    """Return the variables that a service's binary reads."""
    from applier.settings import ApplierSettings
    from cdc_consumer.settings import ConsumerSettings

    cls = ConsumerSettings if service == "cdc" else ApplierSettings
    return {f"PG_TRICKLE_{name.upper()}" for name in cls.model_fields}


def container_port(service: str) -> int:
    """Return the port inside the container that a service publishes on the host."""
    (port,) = SERVICES[service]["ports"]
    return int(port.rpartition(":")[2])


def test_the_services_are_those_of_the_system() -> None:
    assert set(SERVICES) == {"postgres", "kafka", "install", "cdc", "applier", "prometheus", "grafana"}


@pytest.mark.parametrize("service", SERVICES)
def test_images_are_pinned(service: str) -> None:
    assert PINNED.fullmatch(SERVICES[service]["image"])


def test_base_images_are_pinned() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) - stages
    assert bases
    assert all(PINNED.fullmatch(base) for base in bases)


@pytest.mark.parametrize("service", sorted(set(SERVICES) - ONE_SHOT))
def test_every_long_running_service_has_a_healthcheck_and_restarts(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[service]["restart"] == "unless-stopped"


@pytest.mark.parametrize("service", ["install", "cdc", "applier"])
def test_every_setting_passed_exists(service: str) -> None:
    passed = {name for name in SERVICES[service]["environment"] if name.startswith("PG_TRICKLE_")}
    assert {"PG_TRICKLE_DATABASE_URL", "PG_TRICKLE_KAFKA_BOOTSTRAP"} <= passed
    assert passed <= settings_of(service)


@pytest.mark.parametrize("service", ["cdc", "applier"])
def test_metrics_ports_agree(service: str) -> None:
    port = SERVICES[service]["environment"]["PG_TRICKLE_METRICS_PORT"]
    assert container_port(service) == port
    assert f"127.0.0.1:{port}/readyz" in SERVICES[service]["healthcheck"]["test"][-1]
    stage = DOCKERFILE.partition(f" AS {service}\n")[2].partition("\nFROM ")[0]
    assert f"EXPOSE {port}" in stage
    scraped = {job["job_name"]: job["static_configs"][0]["targets"] for job in PROMETHEUS["scrape_configs"]}
    assert scraped[service] == [f"{service}:{port}"]


def test_addresses_inside_agree_with_the_services() -> None:
    environment = SERVICES["cdc"]["environment"]
    assert environment["PG_TRICKLE_DATABASE_URL"].endswith(f"@postgres:{container_port('postgres')}/app")
    assert SERVICES["postgres"]["environment"]["POSTGRES_DB"] == "app"
    advertised = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"PLAINTEXT://{environment['PG_TRICKLE_KAFKA_BOOTSTRAP']}," in advertised
    assert f"HOST://127.0.0.1:{container_port('kafka')}" in advertised
    grafana = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert grafana["datasources"][0]["url"] == f"http://prometheus:{container_port('prometheus')}"


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_for_this_machine_only(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


@pytest.mark.parametrize("service", ["install", "cdc", "applier"])
def test_build_targets_exist_and_what_they_copy(service: str) -> None:
    build = SERVICES[service]["build"]
    assert build["dockerfile"] == "deploy/Dockerfile"
    assert f" AS {build['target']}\n" in DOCKERFILE
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for sources in re.findall(r"^COPY ([^-].*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


@pytest.mark.parametrize("target", ["cdc", "applier"])
def test_binaries_do_not_run_as_root_and_are_the_console_scripts(target: str) -> None:
    stage = DOCKERFILE.partition(f" AS {target}\n")[2].partition("\nFROM ")[0]
    assert "\nUSER trickle\n" in f"\n{stage}"
    (script,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', stage, re.MULTILINE)
    assert f"\n{script} = " in (ROOT / "pyproject.toml").read_text()


def test_files_mounted_exist() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", [])]
    for mount in mounts:
        source = mount.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_dashboard_shows_metrics_that_exist() -> None:
    from prometheus_client import REGISTRY

    import applier.metrics  # noqa: F401  registers them
    from cdc_consumer.health import Health
    from cdc_consumer.metrics import Metrics

    existing: set[str] = set()
    for registry in (REGISTRY, Metrics(Health()).registry):
        for family in registry.collect():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            existing |= {family.name + suffix for suffix in suffixes}
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/pg_trickle.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in shown for name in re.findall(r"pg_trickle_\w+", expression)}
    assert used
    assert used <= existing
