"""FROM items (relations, subqueries, VALUES, functions and WITH queries) -> bound items and their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from applier.plan.expr import INT8, Expr, ValueType, nullable
from applier.plan.nodes import Field, Scan, SetReturningFunction, TableFunction, Values
from applier.sql.bind.correlation import correlation_of
from applier.sql.bind.expressions import ExpressionBinder, Resolve
from applier.sql.bind.levels import Binder, Levels
from applier.sql.bind.recursion import bind_recursion
from applier.sql.bind.table_functions import TableFunctions
from applier.sql.bind.unify_columns import unify_columns
from applier.sql.bind.values import wrap_in_subquery
from applier.sql.bound.nodes import (
    Alias,
    Correlation,
    FunctionItem,
    NodeItem,
    QueryItem,
    RecursionItem,
    SelectItem,
    ValuesItem,
    WorkTableItem,
    result_columns,
)
from applier.sql.catalog_snapshot import RelationInfo
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import unknown
from applier.sql.refusal import Reason, Refused, inside_view
from applier.sql.sources import check_source
from shared_schema.table_schema import TableId


@dataclass(frozen=True, slots=True)
class BoundItem:
    """A FROM item, and the type of each of its columns that is read, by number."""

    item: SelectItem
    columns: Mapping[int, Field]


class SelectScope(Protocol):
    """The query whose FROM is bound: the items before an item, and outer queries."""

    @property
    def resolve(self) -> Resolve:
        """Resolve a column."""
        ...


class FromItems:
    """Binds the FROM items of one query, in the order of the text."""

    def __init__(
        self,
        binder: Binder,
        select: SelectScope,
        levels: Levels,
        flatten: Callable[[tree.Expression], tree.Expression],
    ) -> None:
        self._binder = binder
        self._select = select
        self._levels = levels
        self._flatten = flatten

    def bind(self, number: int, reads: tuple[int, ...], has_condition: bool | None) -> BoundItem:
        """Bind an item with the columns that are read.

        `has_condition` says for the right side of an outer join whether it has a condition; None for other items.
        """
        entry = self._levels[-1].query.entries[number - 1]
        match entry:
            case query_tree.TableEntry():
                return self._bind_relation(entry, reads)
            case query_tree.SubqueryEntry(query=query):
                return self._bind_query(query, reads, self._levels, _alias(entry), is_joined_on=bool(has_condition))
            case query_tree.ValuesEntry():
                return self._bind_values(entry, reads, as_query=has_condition is not None)
            case query_tree.FunctionEntry():
                return self._bind_functions(entry, reads, as_query=bool(has_condition))
            case query_tree.CteEntry(name=name, levels_up=up):
                holders = self._levels[: len(self._levels) - up]
                if not holders or name not in holders[-1].query.ctes:
                    raise unknown("a reference to a WITH query that does not exist")
                if name in holders[-1].query.recursive:
                    return self._bind_recursion(name, holders, reads, _alias(entry))
                return self._bind_query(holders[-1].query.ctes[name], reads, holders, _alias(entry))
            case _:
                raise unknown("a FROM item that is neither a relation nor a subquery")

    def _bind_relation(self, entry: query_tree.TableEntry, reads: Sequence[int]) -> BoundItem:
        relation = self._binder.sources.relations.get(entry.relation)
        if relation is None:
            raise Refused(Reason.SOURCE, f"the relation {entry.name}", hint="it was dropped in the meantime")
        check_source(relation, entry.with_children)
        if relation.kind != "v":
            return _scan(relation, reads, _alias(entry))
        with inside_view(relation.table):
            query = self._binder.sources.views[relation.oid]
            return self._bind_query(query, reads, (), _alias(entry), relation.table)

    def _bind_query(
        self,
        query: query_tree.Query,
        reads: Sequence[int],
        outer: Levels,
        alias: Alias,
        view: TableId | None = None,
        *,
        is_joined_on: bool = False,
    ) -> BoundItem:
        correlation = correlation_of(query, outer)
        also_read = () if is_joined_on else _columns_of_lateral(query, correlation)
        bound = self._binder.bind_query(query, [r - 1 for r in reads], outer, also_read)
        item = QueryItem(bound, tuple(reads), correlation, alias, view)
        return BoundItem(item, _numbered(reads, result_columns(bound)))

    def _bind_recursion(self, name: str, holders: Levels, reads: tuple[int, ...], alias: Alias) -> BoundItem:
        work_table = self._binder.work_tables.get((id(holders[-1].query), name))
        item: RecursionItem | WorkTableItem
        if work_table is not None:
            item, output = WorkTableItem(work_table.recursion, work_table.fields, reads, alias), work_table.fields
        else:
            item, output = bind_recursion(self._binder, name, holders, reads, alias)
        return BoundItem(item, {r: output[r - 1] for r in reads})

    def _bind_functions(self, entry: query_tree.FunctionEntry, reads: tuple[int, ...], *, as_query: bool) -> BoundItem:
        expressions = ExpressionBinder(self._binder.catalog, self._select.resolve)
        calls = replace(entry, calls=tuple(map(self._flatten, entry.calls)))
        functions = TableFunctions(self._binder.catalog, expressions).bind_entry(calls)
        wrapped = self._wrap(entry, reads) if as_query and _reads_columns(entry.calls) else None
        item = FunctionItem(functions, entry.ordinality, _alias(entry), wrapped)
        output = [Field(f.type, len(functions) > 1 or _has_null_members(f)) for f in functions]
        if entry.ordinality:
            output.append(Field(INT8, False))
        return BoundItem(item, dict(enumerate(output, 1)))

    def _bind_values(self, entry: query_tree.ValuesEntry, reads: tuple[int, ...], *, as_query: bool) -> BoundItem:
        expressions, catalog = ExpressionBinder(self._binder.catalog, self._select.resolve), self._binder.catalog
        rows = [[expressions.bind(self._flatten(row[r - 1])) for r in reads] for row in entry.rows]
        unified = unify_columns(rows, [catalog.pg_type(*entry.types[r - 1]) for r in reads])
        columns = list(zip(*unified, strict=True)) if reads else []
        output = tuple(Field(column[0].type, any(nullable(e) for e in column)) for column in columns)
        if not any(_reads_columns(row) for row in entry.rows):
            ordinals = {r: i for i, r in enumerate(reads)}
            return BoundItem(
                NodeItem(Values(tuple(unified), output), ordinals, _alias(entry)), dict(zip(reads, output, strict=True))
            )
        wrapped = self._wrap(entry, reads) if as_query else None
        item = ValuesItem(tuple(unified), reads, output, _alias(entry), wrapped)
        return BoundItem(item, dict(zip(reads, output, strict=True)))

    def _wrap(self, entry: query_tree.FunctionEntry | query_tree.ValuesEntry, reads: Sequence[int]) -> QueryItem:
        query = wrap_in_subquery(entry, max(reads, default=1))
        bound = self._bind_query(query, reads, self._levels, _alias(entry)).item
        if not isinstance(bound, QueryItem):
            raise AssertionError("a query is a query item")
        return bound


def _columns_of_lateral(query: query_tree.Query, correlation: Correlation) -> Sequence[int]:
    """Return the targets of a LATERAL query whose columns its join with the items before it carries along."""
    groups_otherwise = query.grouping_sets or (query.distinct and not query.distinct_on)
    computes = query.union is not None or query.windows or query.has_set_functions or groups_otherwise
    if computes or not correlation.reads or not correlation.only_in_where_or_targets:
        return ()
    return range(len(query.targets))


def _reads_columns(expressions: Sequence[tree.Expression]) -> bool:
    return any(next(walk.variables(e), None) is not None for e in expressions)


def _numbered(reads: Sequence[int], exprs: Sequence[Expr]) -> dict[int, Field]:
    return {r: Field(e.type, nullable(e)) for r, e in zip(reads, exprs, strict=True)}


def _has_null_members(function: TableFunction) -> bool:
    listed = function.function is SetReturningFunction.LISTED and any(nullable(arg) for arg in function.args)
    return listed or function.function is SetReturningFunction.ELEMENTS


def _alias(entry: query_tree.RangeTblEntry) -> Alias:
    item, columns = entry.alias
    # PostgreSQL's own name for VALUES without an alias.
    return "values" if item == "*VALUES*" else item, columns


def _scan(relation: RelationInfo, reads: Sequence[int], alias: Alias) -> BoundItem:
    columns = [relation.column(n) for n in reads]
    found = [c for c in columns if c is not None]
    if len(found) != len(columns):
        raise Refused(Reason.COLUMN, f"a dropped column of {relation.table}", hint="create the view again")
    for column in found:
        if column.generated:
            hint = "generated columns are not captured; write its expression in the query"
            raise Refused(Reason.COLUMN, f"the generated column {relation.table}.{column.name}", hint=hint)
    ordinals = {c.number: i for i, c in enumerate(found)}
    has_key = bool(relation.key) and all(n in ordinals for n in relation.key)
    scan = Scan(
        table=relation.table,
        relid=relation.oid,
        columns=tuple(c.name for c in found),
        fields=tuple(Field(ValueType.of_column(c.type), not c.not_null) for c in found),
        key=tuple(ordinals[n] for n in relation.key) if has_key else None,
    )
    return BoundItem(NodeItem(scan, ordinals, alias), {n: scan.fields[i] for n, i in ordinals.items()})
