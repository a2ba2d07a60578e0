"""One input of an operator over an LSN range: its delta and its rows at both ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.operators.support.inputs import Lookup, Side
from applier.operators.support.key_filter import KeyFilter
from applier.zset import ZSet


@dataclass(frozen=True, slots=True)
class OperandDelta:
    """The delta of the input, and functions that return its rows at the two ends when they are needed."""

    delta: ZSet | None
    whole: Callable[[Side, Lookup | None], ZSet]
    """The whole input at one end; of a relation with a `lookup`, at least the rows that it names."""
    affected_rows: Callable[[KeyFilter, bool, Sequence[int] | None], ZSet]
    """The rows that the key filter selects, at the lower end of the LSN range; computed once where the flag says that
    they are read again. Only these columns, where not all are needed: then equal rows are merged."""
