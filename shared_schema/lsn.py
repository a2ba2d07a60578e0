"""Positions in PostgreSQL's write-ahead log.

A *frontier* is an Lsn too. It is exclusive, like PostgreSQL's own flush position: everything whose commit record
starts **before** it is included, nothing at or after it is. An LSN range is therefore half-open: [lower, upper).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_schema.errors import ContractError

LSN_MAX = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """One position, printed as PostgreSQL prints it (`16/B374D848`)."""

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= LSN_MAX:
            raise ContractError(f"{self.value} is not an LSN")

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """`'16/B374D848'` -> Lsn; anything else is a ContractError."""
        high, slash, low = text.partition("/")
        try:
            if not slash or not 1 <= len(high) <= 8 or not 1 <= len(low) <= 8:
                raise ValueError(text)
            return cls((int(high, 16) << 32) | int(low, 16))
        except ValueError as error:
            raise ContractError(f"{text!r} is not an LSN", hint="expected the form 16/B374D848") from error

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFF_FFFF:X}"

    def __bool__(self) -> bool:
        return self.value != 0


ORIGIN = Lsn(0)
"""The frontier before everything: no change is included."""


@dataclass(frozen=True, slots=True)
class LsnRange:
    """The stamps in [lower, upper): what lies between two frontiers."""

    lower: Lsn
    upper: Lsn

    def __post_init__(self) -> None:
        if self.upper < self.lower:
            raise ContractError(f"an LSN range cannot end at {self.upper}, before its lower bound {self.lower}")

    def __contains__(self, lsn: Lsn) -> bool:
        return self.lower <= lsn < self.upper

    def __str__(self) -> str:
        return f"[{self.lower}, {self.upper})"
