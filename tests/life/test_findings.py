"""Every line of the findings has its tests, and they exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.life.findings import FINDINGS

ROOT = Path(__file__).parents[2]


@cache
def functions(path: str) -> frozenset[str]:
    found = ast.parse((ROOT / path).read_text()).body if (ROOT / path).exists() else []
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def test_every_line_has_tests_that_exist() -> None:
    lines = [
        f"{kind}{number}" for kind, last in (("A", 20), ("B", 13), ("C", 4), ("D", 6)) for number in range(1, last + 1)
    ]
    assert list(FINDINGS) == lines
    assert [line for line, found in FINDINGS.items() if bool(found.tests) == bool(found.without)] == []
    named = [(line, *test.split("::")) for line, found in FINDINGS.items() for test in found.tests]
    assert [(line, path, name) for line, path, name in named if name not in functions(path)] == []
