"""Settings: bounds, lists, one clear error."""

from __future__ import annotations

import pytest

from cdc_consumer.settings import ConsumerSettings
from shared_schema.errors import SettingsError
from shared_schema.settings import load_settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_TRICKLE_DATABASE_URL", "postgresql://h/db")


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ("a",)), ("a, b", ("a", "b")), ('["a,x", "b"]', ("a,x", "b"))],
)
def test_publications(monkeypatch: pytest.MonkeyPatch, text: str, names: tuple[str, ...]) -> None:
    monkeypatch.setenv("PG_TRICKLE_PUBLICATIONS", text)
    assert load_settings(ConsumerSettings).publications == names
    assert load_settings(ConsumerSettings, publications=text).publications == names


def test_defaults() -> None:
    settings = load_settings(ConsumerSettings)
    assert settings.publications == ("pg_trickle",)
    assert settings.transactional_id == "trickle-pg_trickle"
    assert "h/db" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger_ms", "-1"),
        ("heartbeat_ms", "1"),
        ("batch_max_rows", "0"),
        ("slot", "No"),
        ("publications", ""),
        ("ring_buffer_slots", "1"),
        ("ring_buffer_sources", "t"),
        ("ring_spill_folder", "/nowhere"),
    ],
)
def test_out_of_bounds_names_the_setting(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PG_TRICKLE_{name.upper()}", value)
    with pytest.raises(SettingsError, match=name):
        load_settings(ConsumerSettings)


def test_every_setting_is_described() -> None:
    assert all(field.description for field in ConsumerSettings.model_fields.values())
