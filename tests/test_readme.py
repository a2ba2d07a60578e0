"""README's commands and the Makefile's documented targets are the same list."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def documented_targets(makefile: str) -> set[str]:
    """Return the targets with a `## ` line; a pattern as users write it: `bench-<name>`."""
    return {name.replace("%", "<name>") for name in re.findall(r"^([a-z%-]+):.*?## ", makefile, re.MULTILINE)}


def commands(readme: str) -> set[str]:
    """Return every `make …` in the ```sh blocks without its comment; a bare `make` is `help`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    steps = [step.split() for line in lines for step in re.split(r"&&|;", line)]
    return {step[1] if len(step) > 1 else "help" for step in steps if step[:1] == ["make"]}


def test_readme_and_makefile_agree() -> None:
    assert commands((ROOT / "README.md").read_text()) == documented_targets((ROOT / "Makefile").read_text())


def test_what_the_check_reads() -> None:
    makefile = "x:\n\ty\nup: ## start\nbench-%: a b ## one\ndemo test: ## no\n"
    assert documented_targets(makefile) == {"up", "bench-<name>"}
    readme = "make nothing\n```sh\nmake demo   # look\n  make up && make down\nmake\ncd x\n```\n```sql\nmake no\n```\n"
    assert commands(readme) == {"demo", "up", "down", "help"}
