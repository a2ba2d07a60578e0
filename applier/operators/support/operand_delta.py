"""An input of an operator over one window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.operators.support.inputs import Needed, Side
from applier.operators.support.key_filter import Wanted


@dataclass(frozen=True, slots=True)
class Changing:
    """What changes, and its two ends, asked for only when needed."""

    delta: str | None
    whole: Callable[[Side, Needed | None], str]
    """With `needed`, of a relation, at least the rows that it names."""
    touched: Callable[[Wanted, bool, Sequence[int] | None], str]
    """The rows that are wanted as they were before the window; computed once where the flag says that they are read
    again. Of these columns only, where not all are needed: then equal rows are one."""
