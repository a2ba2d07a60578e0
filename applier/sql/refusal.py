"""The errors for a query that cannot become a stream table: what, where in the text, why, and what to write instead.

TrickleError
├── DefinitionError      PostgreSQL itself does not accept the query; holds its message and position
└── Refused              PostgreSQL would run the query, but Spark is not proven to compute the same result
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_schema.errors import TrickleError
from shared_schema.table_schema import TableId


class Reason(Enum):
    """The closed list of refusal codes. Programs match on the value, people read the message."""

    NOT_A_QUERY = "not_a_query"
    """Not a single plain SELECT: several statements, FOR UPDATE, a view option."""
    CONSTRUCT = "unsupported_construct"
    """An SQL construct without a plan node."""
    UNKNOWN_TREE = "unknown_tree"
    """PostgreSQL's analysed tree contains something that this program does not know."""
    FUNCTION = "unproven_function"
    """A function, operator or aggregate that is not on the allow-list."""
    TYPE = "unproven_carrier"
    """The function is on the allow-list, but not for this physical type (an unbounded numeric, for example)."""
    COLLATION = "collation"
    """Text order or equality under a collation that Spark cannot reproduce."""
    CONSTANT = "unsupported_constant"
    """A literal whose bytes cannot be decoded to a Spark value."""
    GROUPING = "unproven_grouping"
    """A GROUP BY key for which Spark and PostgreSQL disagree about equality."""
    ORDER = "undecided_order"
    """The query does not determine which rows come first, or it does so by an order that Spark does not have."""
    FRAME = "unsupported_frame"
    """A window frame that cannot be computed exactly in Spark."""
    VOLATILE = "volatile_function"
    """Two evaluations may differ, so no single result is the right one."""
    CURRENT_TIME = "current_time"
    """The result would change although no row changes."""
    SESSION = "session_dependent"
    """The result depends on the settings of the session that runs the query."""
    SOURCE = "unsupported_source"
    """A relation whose changes cannot be captured."""
    SIZE = "too_large"
    """The query is too large in form: its plan, the text of its delta, or the time to plan it."""
    COLUMN = "unsupported_column"
    """A column that is not captured: a system or generated column, a whole row."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the query text: characters from the start, and line and column as an editor counts (both from 1)."""

    offset: int
    line: int
    column: int

    @classmethod
    def at(cls, query: str, offset: int) -> Place:
        """Return the place of a character offset; an offset beyond the end gives the end."""
        before = query[: max(0, offset)]
        return cls(len(before), before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)

    @classmethod
    def start(cls) -> Place:
        """Return the start of the text: the place for a refusal of the query as a whole."""
        return cls(0, 1, 1)

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class DefinitionError(TrickleError):
    """PostgreSQL does not accept the query; `problem` is PostgreSQL's own message."""

    def __init__(self, problem: str, *, hint: str = "", sqlstate: str = "", place: Place | None = None) -> None:
        super().__init__(problem if place is None else f"{problem} ({place})", hint=hint)
        self.sqlstate = sqlstate
        self.place = place


class Refused(TrickleError):
    """The query is valid, but it cannot (yet) be maintained exactly.

    `construct` is a noun phrase for the message "... is not supported". `hint` says why, and what to write instead.
    `token` is a byte offset into the analysed statement, None when unknown; the caller that has the text turns it
    into a place and adds it with `with_place`. A construct `in_view` is inside a view, so it has no place of its own
    in the query. `full_in_postgres` says whether FULL mode, run by PostgreSQL itself, can maintain the query.
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
        """Return the same refusal with a place."""
        return Refused(
            self.reason,
            self.construct,
            hint=self.hint,
            token=self.token,
            place=place,
            full_in_postgres=self.full_in_postgres,
            in_view=self.in_view,
        )


class inside_view:
    """Adds the name of the view to refusals inside it; positions there are not positions in the user's text."""

    def __init__(self, view: TableId) -> None:
        self._view = view

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused):
            raise Refused(
                error.reason,
                f"{error.construct} (in view {self._view})",
                hint=error.hint,
                full_in_postgres=error.full_in_postgres,
                in_view=True,
            ) from error
