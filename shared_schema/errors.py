"""The root of every expected error: what happened, what to do about it, whether trying again can help.

TrickleError
├── SettingsError        a setting is missing or out of bounds
├── ContractError        bytes or records on a topic break the contract
├── UnsupportedColumn    a column's type cannot be carried exactly
└── (each binary adds its own below its `errors.py`)
"""

from __future__ import annotations


class TrickleError(Exception):
    """An expected failure: one sentence for the problem, one for the way out."""

    retryable: bool = False
    """Whether the same action may succeed later without anybody changing anything."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem


class SettingsError(TrickleError):
    """A setting is missing, malformed or out of its bounds."""


class ContractError(TrickleError):
    """A record on a topic does not follow the topic contract."""


class UnsupportedColumn(TrickleError):
    """A column holds values that no physical type of ours can hold exactly."""
