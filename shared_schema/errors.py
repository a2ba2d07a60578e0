"""The base class of every expected error: what happened, what to do about it, and whether a retry can help.

TrickleError
├── SettingsError        a setting is missing or out of bounds
├── ContractError        bytes or records on a topic break the contract
├── UnsupportedColumn    a column's values cannot be represented exactly
└── (each binary adds its own in its `errors.py`)
"""

from __future__ import annotations


class TrickleError(Exception):
    """An expected error: one sentence for the problem, one for the solution."""

    retryable: bool = False
    """Whether the same action may succeed later without a change by the operator."""

    def __init__(self, problem: str, *, hint: str = "", log_text: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.log_text = log_text or problem
        """The problem without values of rows: whoever reads logs need not have a right on the rows."""

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem


class SettingsError(TrickleError):
    """A setting is missing, malformed or out of bounds."""


class ContractError(TrickleError):
    """A record on a topic does not follow the topic contract."""


class UnsupportedColumn(TrickleError):
    """A column has values that no physical type can represent exactly."""
