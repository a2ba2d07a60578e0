"""Columns of joins and of GROUP BY replaced by what they stand for. Pure."""

from __future__ import annotations

from applier.definition import query_tree, tree
from applier.definition.fields import unknown
from applier.definition.refusal import Reason, Refused


class Flattener:
    """Replaces columns of joins and of GROUP BY by what they stand for."""

    def __init__(self, entries: tuple[query_tree.RangeEntry, ...]) -> None:
        self._entries = entries

    def __call__(self, expression: tree.Expression) -> tree.Expression:
        """The expression over tables and subqueries alone."""
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            if not 1 <= expression.entry <= len(self._entries):
                raise unknown("a column of no range-table entry")
            entry = self._entries[expression.entry - 1]
            if isinstance(entry, query_tree.JoinEntry | query_tree.GroupEntry):
                if not 1 <= expression.number <= len(entry.columns):
                    raise whole_row(expression)
                return self(entry.columns[expression.number - 1])
            return expression
        return tree.rebuild(expression, self)


def whole_row(var: tree.Var) -> Refused:
    """The refusal of a whole row as a value."""
    return Refused(Reason.COLUMN, "a whole row as one value", hint="list the columns", token=var.at)
