"""An expression -> the same expression over columns of tables and subqueries alone. Pure."""

from __future__ import annotations

from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused


class Flattener:
    """Replaces columns of joins and of GROUP BY by their expressions, and whole rows by their columns."""

    def __init__(self, entries: tuple[query_tree.RangeTblEntry, ...]) -> None:
        self._entries = entries

    def __call__(self, expression: tree.Expression) -> tree.Expression:
        """Return the expression over columns of tables and subqueries alone."""
        if isinstance(expression, tree.Var) and expression.levels_up == 0:
            if not 1 <= expression.entry <= len(self._entries):
                raise unknown("a column without a range-table entry")
            entry = self._entries[expression.entry - 1]
            if isinstance(entry, query_tree.JoinEntry | query_tree.GroupEntry):
                if not 1 <= expression.number <= len(entry.columns):
                    raise whole_row_refusal(expression)
                return self(entry.columns[expression.number - 1])
            return expression if expression.number else _expand_row(expression, entry)
        return walk.rebuild(expression, self)


def _expand_row(var: tree.Var, entry: query_tree.RangeTblEntry) -> tree.Expression:
    """Return the whole row of an entry as its columns."""
    match entry:
        case query_tree.TableEntry(columns=columns) | query_tree.SubqueryEntry(columns=columns) if columns:
            names = columns
        case query_tree.CteEntry(columns=columns) if columns:
            names = columns
        case _:
            raise whole_row_refusal(var)
    present = [(i, name) for i, name in enumerate(names, 1) if name]
    # Types and collations come from the columns themselves; those of a field of a row are not read.
    fields = tuple(tree.Var(var.entry, i, 0, -1, 0, 0, var.at) for i, _ in present)
    return tree.RowExpr(fields, tuple(name for _, name in present), var.type, not var.never_nulled, var.at)


def whole_row_refusal(var: tree.Var) -> Refused:
    """Return the refusal of a whole row of a join or of a renamed table."""
    return Refused(Reason.COLUMN, "a whole row as one value", hint="write the columns one by one", token=var.at)
