"""An input of an operator over one window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Changing:
    """What changes, and its two ends, asked for only when needed."""

    delta: str | None
    before: Callable[[], str]
    after: Callable[[], str]
