"""The facts that a stream table was planned with and the present ones in; what the difference means for it out. Pure.

A source is followed by its identity, as in a view: relations by object id, columns by attribute number. What changes
neither a row nor a result column is followed at once. What may change rows is followed where the user allows it
(`auto_evolve`), else the stream table is suspended. A trace is by name instead: `shared_schema/outdated_rows.py` says
when its rows are no longer those of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from applier.errors import SourceChanged
from shared_schema.dependency_facts import ColumnFact, DependencyFacts, RelationFact
from shared_schema.outdated_rows import has_new_storage, is_rewritten
from shared_schema.pg_types import is_widening
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class Transparent:
    """Neither the plan nor the rows are affected."""


@dataclass(frozen=True, slots=True)
class Replan:
    """The rows are right; the plan has to be made again."""

    seen: tuple[str, ...]
    renamed: bool
    """Whether the text of the query has to name its objects anew."""
    is_noted: bool = True
    """Whether something that the query reads changed; columns that it may read in future do not count."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """The whole is computed once more, and only rows that differ are written."""

    seen: tuple[str, ...]
    renamed: bool
    changes_rows: bool
    """Whether the rows may differ; otherwise only names or types of columns that the query does not return."""
    rewritten: bool = False
    """Whether rows of a source were written anew without being in the log; otherwise an equal plan gives equal rows."""
    relabelled: bool = False
    """Whether values have another text now: PostgreSQL follows by itself, the other sinks do not."""
    only_functions: bool = False
    """Whether nothing but functions changed."""
    retyped: frozenset[int] = frozenset()
    """Tables of which a column that is read has another type: later rows have no values of the old one."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Nobody but the user can say what the stream table should be now."""

    error: SourceChanged


Verdict = Transparent | Replan | Recompute | Suspend


@dataclass(frozen=True, slots=True)
class _Seen:
    """One difference in words, and what it asks for."""

    text: str
    renamed: bool = False
    whole: bool = False
    changes_rows: bool = False
    rewritten: bool = False
    relabelled: bool = False
    retyped: int | None = None
    is_noted: bool = True


def judge(old: DependencyFacts, new: DependencyFacts, owners: Mapping[TableId, int], name: TableId) -> Verdict:
    """Return what the difference between both facts means for the stream table `name`.

    `owners` says which relation has each old name now.
    """
    try:
        others, functions = [*_relations(old, new, owners, name), *_types(old, new)], [*_functions(old, new)]
    except SourceChanged as error:
        return Suspend(error)
    seen = others + functions
    if not seen:
        return Transparent()
    texts, renamed = tuple(s.text for s in seen), any(s.renamed for s in seen)
    if any(s.whole for s in seen):
        return Recompute(
            seen=texts,
            renamed=renamed,
            changes_rows=any(s.changes_rows for s in seen),
            rewritten=any(s.rewritten or s.relabelled for s in seen),
            relabelled=any(s.relabelled for s in seen),
            only_functions=not others,
            retyped=frozenset(s.retyped for s in seen if s.retyped is not None),
        )
    return Replan(texts, renamed, any(s.is_noted for s in seen))


def is_tree_changed(old: RelationFact, new: RelationFact) -> bool:
    """Whether partitions came, went or were attached anew; their storage may change by a VACUUM FULL."""
    return [(leaf.oid, leaf.attached) for leaf in old.leaves] != [(leaf.oid, leaf.attached) for leaf in new.leaves]


def _relations(
    old: DependencyFacts, new: DependencyFacts, owners: Mapping[TableId, int], name: TableId
) -> Iterator[_Seen]:
    for relid, was in old.relations.items():
        now = new.relations.get(relid)
        if now is None:
            raise _dropped(was, owners, name)
        is_table = was.kind in ("r", "p") and (old.used is None or relid in old.used)
        if was.table != now.table:
            if owners.get(was.table, relid) != relid:
                raise SourceChanged(
                    f"{was.table} is now called {now.table}, and another relation has its name",
                    hint=f"SELECT pgtrickle.alter_stream_table('{name}', query => …) with the name that is meant: "
                    f"{now.table} (the same table as before) or {was.table} (the new one)",
                )
            yield _Seen(f"{was.table} is now called {now.table}", renamed=True, whole=is_table)
        if was.rule != now.rule:
            yield _Seen(f"view {now.table} was replaced", whole=True, changes_rows=True)
        if _admission(was) != _admission(now):
            yield _Seen(f"{now.table} was altered")
        used = None if old.used is None else old.used.get(relid, frozenset())
        yield from _columns(relid, was, now, used if is_table else None, name)


def _columns(
    relid: int, was: RelationFact, now: RelationFact, used: frozenset[int] | None, name: TableId
) -> Iterator[_Seen]:
    is_table = was.kind in ("r", "p")
    for column in was.columns:
        present = now.column(column.number)
        is_read = used is None or column.number in used
        if present is None and (used is None or not is_read):
            # The text of the query may have a name for it, in a list of column aliases.
            yield _Seen(f"column {column.name} of {now.table} was dropped", renamed=True, is_noted=is_read)
        if not is_read or (present is None and used is None):
            continue
        if present is None:
            raise _column_dropped(now, column, name)
        what = f"column {column.name} of {now.table}"
        if present.name != column.name:
            yield _Seen(f"{what} is now called {present.name}", renamed=True, whole=is_table)
        if present.kind != column.kind:
            rewritten = is_table and has_new_storage(was, now)
            changes_rows = rewritten and not is_widening(column.kind, present.kind)
            yield _Seen(
                f"{what} has another type",
                whole=is_table,
                changes_rows=changes_rows,
                rewritten=rewritten,
                retyped=relid if is_table else None,
            )
        if present.collation != column.collation:
            yield _Seen(f"{what} has another collation", whole=True, changes_rows=True)
        if is_table and present.kind == column.kind and is_rewritten(was, now, column, present):
            yield _Seen(f"{what} was rewritten", whole=True, changes_rows=True, rewritten=True)
        if column.not_null and not present.not_null:
            yield _Seen(f"{what} may be NULL")
    if {c.number for c in now.columns} - {c.number for c in was.columns}:
        yield _Seen(f"{now.table} has new columns", is_noted=False)


def _admission(relation: RelationFact) -> tuple[object, ...]:
    """Return what a source may be refused for, and what decides about the key of the result: a plan tells more."""
    return (
        relation.kind,
        relation.persistence,
        relation.row_security,
        relation.is_partition,
        relation.has_children,
        relation.keys,
        relation.options if relation.kind == "v" else "",
        any(leaf.kind == "f" or leaf.persistence != "p" for leaf in relation.leaves),
    )


def _types(old: DependencyFacts, new: DependencyFacts) -> Iterator[_Seen]:
    for oid, was in old.types.items():
        now = new.types.get(oid)
        if now is None:
            yield _Seen(f"type {was.table} was dropped")
            continue
        if was.table != now.table:
            yield _Seen(f"type {was.table} is now called {now.table}", renamed=True)
        labels = dict(now.labels)
        for label_oid, label in was.labels:
            if labels.get(label_oid) != label:
                text = f"label {label} of {now.table} is now {labels.get(label_oid, 'gone')}"
                yield _Seen(text, whole=True, relabelled=True)
        if [oid for oid, _ in was.labels] != [oid for oid, _ in now.labels]:
            yield _Seen(f"{now.table} has new labels")
        kinds, present = ([kind for _, *kind in of.columns] for of in (was, now))
        if kinds != present and was.relation not in old.relations:
            # Rows that exist have the new attributes, as NULL, and lack the dropped ones: PostgreSQL follows by itself.
            yield _Seen(f"composite type {now.table} has other attributes", whole=True, relabelled=True)
        elif (was.base, was.columns) != (now.base, now.columns):
            yield _Seen(f"type {now.table} was altered", whole=True, changes_rows=True)


def _functions(old: DependencyFacts, new: DependencyFacts) -> Iterator[_Seen]:
    for oid, was in old.functions.items():
        now = new.functions.get(oid)
        if now is None:
            yield _Seen(f"function {was.table} was dropped")
        elif was.digest != now.digest:
            yield _Seen(f"function {now.table} was replaced", whole=True, changes_rows=True)
        if now is not None and was.table != now.table:
            yield _Seen(f"function {was.table} is now called {now.table}", renamed=True)


def _dropped(was: RelationFact, owners: Mapping[TableId, int], name: TableId) -> SourceChanged:
    what = "view" if was.kind == "v" else "table"
    if was.table in owners:
        return SourceChanged(
            f"{what} {was.table} was dropped and created again",
            hint=f"SELECT pgtrickle.reinitialize_stream_table('{name}') reads the new one",
        )
    return SourceChanged(
        f"{what} {was.table} was dropped",
        hint=f"drop the stream table, or SELECT pgtrickle.alter_stream_table('{name}', query => …)",
    )


def _column_dropped(now: RelationFact, column: ColumnFact, name: TableId) -> SourceChanged:
    problem = f"column {column.name} of {now.table} was dropped"
    if now.named(column.name) is not None:
        return SourceChanged(
            f"{problem}, and another column has its name",
            hint=f"SELECT pgtrickle.reinitialize_stream_table('{name}') reads the new one",
        )
    return SourceChanged(
        problem,
        hint=f"SELECT pgtrickle.alter_stream_table('{name}', query => …) without the column, or drop the stream table",
    )
