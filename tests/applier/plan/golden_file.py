"""Golden files: texts reviewed as diffs. `GOLDEN=rewrite pytest tests/applier` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """The text equals the file of that name, or becomes it when GOLDEN=rewrite."""
    check_text(FOLDER / f"{name}.txt", text)


def check_text(path: Path, text: str) -> None:
    """The text equals the file, or becomes it when GOLDEN=rewrite."""
    if os.environ.get("GOLDEN") == "rewrite":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden file {path.name}; GOLDEN=rewrite makes it"
    assert text == path.read_text(), f"{path.name} differs; look at the diff, then GOLDEN=rewrite"
