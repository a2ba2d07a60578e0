"""Why a query does not become a stream table.

TrickleError
├── DefinitionError      PostgreSQL itself does not accept the query; its message and position
└── Refused              PostgreSQL would run it, but we cannot prove that Spark computes the same
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.errors import TrickleError


class Reason(Enum):
    """Closed list of refusal codes; programs match on the value, people read the message."""

    NOT_A_QUERY = "not_a_query"
    """Not one plain SELECT: several statements, FOR UPDATE, a view option."""
    CONSTRUCT = "unsupported_construct"
    """SQL that has no plan node yet."""
    UNKNOWN_TREE = "unknown_tree"
    """PostgreSQL's analysed tree holds something this program was never taught."""
    FUNCTION = "unproven_function"
    """A function, operator or aggregate that is not on the allow-list."""
    TYPE = "unproven_carrier"
    """The function is on the list, but not for values held in this form (an unbounded numeric, say)."""
    COLLATION = "collation"
    """Text order or equality that only PostgreSQL's collation knows."""
    CONSTANT = "unsupported_constant"
    """A literal whose bytes are not decoded."""
    GROUPING = "unproven_grouping"
    """A GROUP BY key whose equality Spark does not share with PostgreSQL."""
    ORDER = "undecided_order"
    """Which rows come first is left open, or decided by an order that Spark does not share."""
    FRAME = "unsupported_frame"
    """A window frame that Spark cannot be made to compute exactly."""
    VOLATILE = "volatile_function"
    """Two evaluations may differ, so there is no one right content."""
    CURRENT_TIME = "current_time"
    """The result would change without any row changing."""
    SESSION = "session_dependent"
    """The result depends on settings of whoever asks."""
    SOURCE = "unsupported_source"
    """A relation whose changes cannot be captured."""
    COLUMN = "unsupported_column"
    """A column that does not travel: a system or generated column, a whole row."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the query text: characters from the start, and as an editor counts (both from 1)."""

    offset: int
    line: int
    column: int

    @classmethod
    def at(cls, query: str, offset: int) -> Place:
        """The place of a character offset; an offset beyond the end is the end."""
        before = query[: max(0, offset)]
        return cls(len(before), before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)

    @classmethod
    def start(cls) -> Place:
        """Of what the query is as a whole."""
        return cls(0, 1, 1)

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class DefinitionError(TrickleError):
    """PostgreSQL does not accept the query; `problem` is its own message."""

    def __init__(self, problem: str, *, hint: str = "", sqlstate: str = "", place: Place | None = None) -> None:
        super().__init__(problem if place is None else f"{problem} ({place})", hint=hint)
        self.sqlstate = sqlstate
        self.place = place


class Refused(TrickleError):
    """The query is valid, but not (yet) one that can be kept exact.

    `token` is a byte offset into the analysed statement, None when unknown; whoever knows the text turns it into a
    place with `with_place`; what stands `in_view` has none of its own in the query. `full_in_postgres` says if FULL
    mode, run by PostgreSQL itself, can take the query.
    """

    def __init__(
        self,
        reason: Reason,
        construct: str,
        *,
        hint: str,
        token: int | None = None,
        place: Place | None = None,
        full_in_postgres: bool = True,
        in_view: bool = False,
    ) -> None:
        where = f" at {place}" if place else ""
        super().__init__(f"{construct} is not supported{where} [{reason.value}]", hint=hint)
        self.reason = reason
        self.construct = construct
        self.token = token
        self.place = place
        self.full_in_postgres = full_in_postgres
        self.in_view = in_view

    def with_place(self, place: Place | None) -> Refused:
        """The same refusal with a place."""
        return Refused(
            self.reason,
            self.construct,
            hint=self.hint,
            token=self.token,
            place=place,
            full_in_postgres=self.full_in_postgres,
            in_view=self.in_view,
        )
