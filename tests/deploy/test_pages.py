"""The generated pages agree with the current code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from applier.functions.aggregates.aggregate_entry import AggregateEntry
from applier.functions.aggregates.aggregates import AGGREGATES
from applier.functions.allow_list import ENTRIES
from applier.functions.entry import Entry
from applier.refresh.holding.gates import SkipReason
from applier.refresh.method.strategy import RefreshMethod, RefreshReason
from applier.spark.java_functions import SOURCES
from deploy.pages import pages
from deploy.pages.places import where

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_a_generated_page_is_current(path: object) -> None:
    expected = {str(p): text for p, text in pages().items()}
    with open(str(path)) as file:
        assert file.read() == expected[str(path)], "run `make docs`"


def test_the_page_of_modes_names_all_that_the_history_says() -> None:
    page = (ROOT / "docs" / "modes.md").read_text()
    reasons = [reason.value for enum in (RefreshReason, SkipReason) for reason in enum]
    assert [reason for reason in reasons if f"| `{reason}` |" not in page] == []
    assert [method.value for method in RefreshMethod if f"`{method.value}`" not in page] == []


def test_the_page_of_functions_has_the_views() -> None:
    page = (ROOT / "docs" / "functions.md").read_text()
    for view in ("quick_health", "df_threshold_advice", "pg_stat_stream_tables"):
        assert re.search(rf"^\| `{view}` \| view \| \w.* \|$", page, re.MULTILINE), view


def test_every_function_is_known_to_run_somewhere() -> None:
    sources = "".join(path.read_text() for path in SOURCES.rglob("*.java"))
    known: dict[str, Entry | AggregateEntry] = {**ENTRIES, **AGGREGATES}
    for name, entry in known.items():
        places = () if entry.internal else where(entry)
        assert places or entry.internal, name
        for function in (place for place in places if place != "Spark"):
            assert f'"{function}"' in sources, f"{name} calls {function}, which is not there"
