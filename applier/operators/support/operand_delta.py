"""An input of an operator over one window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.operators.support.inputs import Lookup, Side
from applier.operators.support.key_filter import KeyFilter


@dataclass(frozen=True, slots=True)
class OperandDelta:
    """What changes, and its two ends, asked for only when needed."""

    delta: str | None
    whole: Callable[[Side, Lookup | None], str]
    """With `lookup`, of a relation, at least the rows that it names."""
    affected_rows: Callable[[KeyFilter, bool, Sequence[int] | None], str]
    """The rows that are wanted as they were before the window; computed once where the flag says that they are read
    again. Of these columns only, where not all are needed: then equal rows are one."""
