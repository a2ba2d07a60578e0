"""The generated pages are what the code says now."""

from __future__ import annotations

import pytest

from deploy.pages import pages


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_a_generated_page_is_current(path: object) -> None:
    expected = {str(p): text for p, text in pages().items()}
    with open(str(path)) as file:
        assert file.read() == expected[str(path)], "run `make docs`"
