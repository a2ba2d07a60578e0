"""The facts of a table when its rows were copied and the present ones in; whether the rows changed behind the log, out.

A copy knows columns by name and type. Rows change without change rows when a column is rewritten, when another one has
its name, when a label of an enum is renamed, and when a composite type has other attributes. VACUUM FULL, CLUSTER and
TRUNCATE write other files and change no row that the log does not have. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from shared_schema.dependency_facts import ColumnFact, RelationFact


def outdated_rows(old: RelationFact, new: RelationFact, in_trace: Collection[str]) -> str | None:
    """Return why the rows of a trace are no longer those of the table; None where they are.

    `in_trace` are the columns that the trace has values of. A trace knows columns by name and type.
    """
    for column in new.columns:
        was = old.named(column.name)
        if was is None:
            if column.name in in_trace:
                return f"column {column.name} of {new.table} is another one than before"
        elif was.number != column.number:
            return f"column {column.name} of {new.table} is another one than before"
        elif was.kind == column.kind and is_rewritten(old, new, was, column):
            return f"column {column.name} of {new.table} was rewritten"
        elif was.kind != column.kind and may_be_rewritten(old, new) and not _differ_in_trace(was, column):
            return f"column {column.name} of {new.table} was rewritten with another type"
    labels = dict(new.enums)
    for oid, label in sorted(old.enums):
        if labels.get(oid, label) != label:
            return f"the label {label} of an enum in {new.table} is now {labels[oid]}"
    composites = dict(new.composites)
    if any(composites.get(oid, attributes) != attributes for oid, attributes in old.composites):
        return f"a composite type in {new.table} has other attributes"
    return None


_OWN_FORM = frozenset({16, 20, 21, 23, 700, 701, 1082, 1114, 1184})
"""boolean, the integers, the floats, date, timestamp and timestamptz: nothing else is stored in a trace as they are."""


def _differ_in_trace(was: ColumnFact, now: ColumnFact) -> bool:
    """Whether a trace stores both types differently: then nobody reads the values of one as those of the other."""
    return was.type != now.type and bool({was.type, now.type} & _OWN_FORM)


def is_rewritten(old: RelationFact, new: RelationFact, was: ColumnFact, now: ColumnFact) -> bool:
    """Whether the values of a column may have changed in all rows without change rows in the log."""
    if was.generated != now.generated or (now.generated is not None and _has_new_expressions(old, new)):
        return True
    if was.default is not None and was.default == now.default:
        # ALTER COLUMN … TYPE would have written the default anew. Other rewrites leave the values as they are.
        return False
    return was.written != now.written and may_be_rewritten(old, new)


def may_be_rewritten(old: RelationFact, new: RelationFact) -> bool:
    """Whether ALTER TABLE may have written the rows to other files.

    VACUUM FULL, CLUSTER and TRUNCATE write other files too, and they keep the TOAST table, where there is one.
    """
    before, after = _files(old), _files(new)
    return any(
        before[oid][0] != after[oid][0] and not (before[oid][1] and before[oid][1] == after[oid][1])
        for oid in before.keys() & after.keys()
    )


def _files(relation: RelationFact) -> dict[int, tuple[int, int]]:
    """Return storage and TOAST table of a relation and its leaves."""
    leaves = {leaf.oid: (leaf.storage, leaf.toast) for leaf in relation.leaves}
    return {0: (relation.storage, relation.toast), **leaves}


def _has_new_expressions(old: RelationFact, new: RelationFact) -> bool:
    """Whether a partition computes its generated columns by other expressions than before."""
    before = {leaf.oid: leaf.expressions for leaf in old.leaves if leaf.expressions is not None}
    return any(before.get(leaf.oid, leaf.expressions) != leaf.expressions for leaf in new.leaves)
