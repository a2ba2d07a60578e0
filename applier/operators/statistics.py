"""What the plan of a delta depends on: questions about one LSN range, and their answers.

A plan remembers the questions that were asked while it was made. It holds for every LSN range that answers them in the
same way. So answers are as coarse as decisions are: not how many rows an input has, but which one has fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from applier.operators.estimate_rows import SizeSource, estimate_rows
from applier.operators.support.delta_plan import AggregateMode, Size, StateSummary
from applier.operators.support.inputs import Accumulators, AffectedGroups, AffectedMinMax, Inputs, StatefulNode
from applier.plan.limits import PlanBudget
from applier.plan.nodes import Join, Node, Scan

TINY_ROWS = 20_000
"""A whole input of at most so many rows is broadcast; for a larger one the intermediate result is broadcast instead."""

T = TypeVar("T")
Answer_co = TypeVar("Answer_co", covariant=True)


class Question(Protocol[Answer_co]):
    """A question about an LSN range."""

    @property
    def subject(self) -> object:
        """The node that the question is about; there is one question of a kind about each."""

    def find_answer(self, inputs: Inputs) -> Answer_co:
        """Answer it; this may read, but computes nothing that the refresh does not need anyway."""


Fact = tuple[Question[Any], object]
"""A question and its answer."""


@dataclass(frozen=True, slots=True)
class IsSmall:
    """Whether the deltas of the LSN range are few."""

    subject: None = None

    def find_answer(self, inputs: Inputs) -> bool:
        """Compare the change rows with the limit."""
        return inputs.small


@dataclass(frozen=True, slots=True, eq=False)
class HasChanged:
    """Whether the change rows of a relation do not cancel out, in the columns that are read."""

    subject: Scan

    def find_answer(self, inputs: Inputs) -> bool:
        """Add up the change rows."""
        return inputs.delta(self.subject) is not None


@dataclass(frozen=True, slots=True, eq=False)
class StateOf:
    """What there is of a node's state."""

    subject: StatefulNode

    def find_answer(self, inputs: Inputs) -> StateSummary | None:
        """Summarize the state."""
        state = inputs.state_of(self.subject)
        match state:
            case None:
                return None
            case Accumulators():
                changed = state.delta is not None or state.affected_groups is not None
                return StateSummary(True, changed, _mode_of(state.affected_groups))
            case AffectedMinMax():
                return StateSummary(False, state.affected_groups is not None, _mode_of(state.affected_groups))


def _mode_of(groups: AffectedGroups | None) -> AggregateMode | None:
    if groups is None:
        return None
    return AggregateMode.FROM_SIGNED_SUMS if groups.signed else AggregateMode.FROM_SUMS


@dataclass(frozen=True, slots=True, eq=False)
class SizesOf:
    """The sizes of the inputs of a product, compared with each other."""

    subject: Join
    sources: tuple[SizeSource, ...]

    def find_answer(self, inputs: Inputs) -> tuple[Size, ...]:
        """Estimate the rows of each input; one that is not known counts as the largest."""
        rows = [estimate_rows(source, inputs) for source in self.sources]
        order = sorted({number for number in rows if number is not None})
        return tuple(
            Size(len(order), False) if number is None else Size(order.index(number), number <= TINY_ROWS)
            for number in rows
        )


class Statistics:
    """The answers for one LSN range, each found when it is first needed.

    `empty` are nodes whose deltas turned out to be empty when they were computed. With a `budget`, planning ends when
    it takes too long.
    """

    def __init__(self, inputs: Inputs, empty: frozenset[Node] = frozenset(), budget: PlanBudget | None = None) -> None:
        self.empty = empty
        self._budget = budget
        self._inputs = inputs
        self._answers: dict[tuple[type, int], Fact] = {}

    def ask(self, question: Question[T]) -> T:
        """Return the answer."""
        key = type(question), id(question.subject)
        if key not in self._answers:
            # The question is held too: it keeps its subject alive, whose identity is the key.
            self._answers[key] = question, question.find_answer(self._inputs)
        return cast(T, self._answers[key][1])

    def check_time(self) -> None:
        """Raise QueryTooLarge when planning takes longer than it may."""
        if self._budget is not None:
            self._budget.check_time()

    def agree_with(self, facts: Sequence[Fact]) -> bool:
        """Whether all these questions have the same answers in this LSN range."""
        return all(self.ask(question) == answer for question, answer in facts)

    def with_empty(self, node: Node) -> Statistics:
        """Return the same statistics, with one more delta that is known to be empty."""
        more = Statistics(self._inputs, self.empty | {node}, self._budget)
        more._answers = self._answers
        return more
