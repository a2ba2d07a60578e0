"""A checkpoint's manifest is read back unchanged; one of another form is refused with a clear message."""

from __future__ import annotations

from typing import Any

import pytest

from applier.catalog.checkpoints import EMPTY_MANIFEST, Manifest
from applier.errors import InstallError
from shared_schema.lsn import Lsn


def test_what_was_written_is_read() -> None:
    manifest = Manifest(Lsn(16), {"t": {0: 5}}, [], {"1": {"topic": "0/10"}})
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "stored",
    [
        {},
        EMPTY_MANIFEST.to_json() | {"offsets": {"t": 5}},
        {name: value for name, value in EMPTY_MANIFEST.to_json().items() if name != "sinks"},
    ],
)
def test_another_form_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(InstallError, match="has a form that this version does not know"):
        Manifest.from_json(stored)
