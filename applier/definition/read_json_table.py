"""JSON_TABLE -> the query it stands for, strictly.

    SELECT JSON_VALUE(row, path), … FROM jsonb_array_elements(rows of the document) WITH ORDINALITY AS t(row, number)

and for a nested path a LEFT JOIN LATERAL of the rows inside each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from applier.definition import query_tree, tree, walk
from applier.definition.fields import Fields, unknown
from applier.definition.node_text import Node
from applier.definition.refusal import Reason, Refused
from applier.definition.rewriting import Rewriting

Read = Callable[[Node], tree.Expression]
_JSON_TABLE_SINCE, _JSON_TABLE = 17, 1
_JSONB, _INT4, _INT8 = 3802, 23, 20
_ELEMENTS, _TO_INT4 = 3219, 480
"""jsonb_array_elements(jsonb) and int4(int8)."""
_ROW, _NUMBER = 1, 2


@dataclass(frozen=True, slots=True)
class _Level:
    """A path of rows: the columns up to `last` that no level before it has are its own."""

    path: tree.Expression
    raises: bool
    last: int


def read_json_table(node: Node, major: int, read: Read) -> query_tree.Query:
    """The query of a range-table entry's table function."""
    fields = Fields(node, major)
    if major < _JSON_TABLE_SINCE or fields.integer("functype") != _JSON_TABLE:
        raise Refused(Reason.CONSTRUCT, "XMLTABLE", hint="store its rows in a table", token=fields.location())
    fields.integer("ordinalitycol")
    document = read(fields.node("docexpr"))
    if not isinstance(document, tree.JsonOf):
        raise unknown("a JSON_TABLE of no document")
    columns = fields.tree("colvalexprs")
    types = fields.integers("coltypes")
    fields.integers("coltypmods")
    levels = _levels(fields.node("plan"), major, read)
    fields.done()
    if not isinstance(columns, tuple) or len(columns) != len(types):
        raise unknown("the columns of a JSON_TABLE")
    values = [
        None if column is None else read(column) for column in columns if column is None or isinstance(column, Node)
    ]
    return _query(document, values, levels)


def _levels(node: Node | None, major: int, read: Read) -> list[_Level]:
    if node is None:
        return []
    if node.kind != "JSONTABLEPATHSCAN":
        hint = "join two JSON_TABLEs, or nest the paths in each other"
        raise Refused(Reason.CONSTRUCT, "JSON_TABLE with nested paths beside each other", hint=hint)
    fields = Fields(node, major)
    path = Fields(fields.node("path"), major)
    level = _Level(read(path.node("value")), fields.flag("errorOnError"), fields.integer("colMax"))
    path.done()
    inner = _levels(fields.optional("child"), major, read)
    fields.done()
    return [level, *inner]


def _query(document: tree.JsonOf, columns: list[tree.Expression | None], levels: list[_Level]) -> query_tree.Query:
    outside = Rewriting(lambda var, _: replace(var, levels_up=var.levels_up + 1)).expression
    entries: list[query_tree.RangeEntry] = []
    items: query_tree.FromItem = query_tree.EntryRef(1)
    json: tree.Expression = outside(document.json)
    for number, level in enumerate(levels, 1):
        rows = replace(
            document,
            answer=tree.Answered.ROWS,
            json=json,
            path=level.path,
            passing=tuple(map(outside, document.passing)),
            on_empty=None,
            on_error=None if level.raises else tree.Constant(_JSONB, -1, 0, -1, False, None, None),
        )
        call = tree.SetOf(_ELEMENTS, _JSONB, 0, 0, (rows,), document.at)
        entries.append(query_tree.FunctionEntry((call,), (1,), True))
        json = tree.Var(number, _ROW, _JSONB, -1, 0, 0, None)
        if number > 1:
            items = query_tree.OuterJoin(query_tree.OuterKind.LEFT, items, query_tree.EntryRef(number), None)
    targets = []
    for place, column in enumerate(columns):
        number = next((n for n, level in enumerate(levels, 1) if place <= level.last), 0)
        if not number:
            raise unknown("a column of no path")
        targets.append(query_tree.Target(_column(column, number, outside), None, 0, False))
    return query_tree.Query(
        targets=tuple(targets),
        entries=tuple(entries),
        items=(items,),
        where=None,
        groups=(),
        having=None,
        distinct=(),
        members={},
        recursive=frozenset(),
        has_aggregates=False,
    )


def _column(
    column: tree.Expression | None, number: int, outside: Callable[[tree.Expression], tree.Expression]
) -> tree.Expression:
    if column is None:
        counted = tree.Var(number, _NUMBER, _INT8, -1, 0, 0, None)
        return tree.Apply(_TO_INT4, 0, _INT4, 0, 0, (counted,), None)
    if not isinstance(column, tree.JsonOf):
        raise unknown("a column of JSON_TABLE")
    return _of_row(outside(replace(column, of_row=True)), tree.Var(number, _ROW, _JSONB, -1, 0, 0, None))


def _of_row(expression: tree.Expression, row: tree.Var) -> tree.Expression:
    """With the row in the place of what stands for it."""
    if isinstance(expression, tree.CaseSubject):
        return row
    return walk.rebuild(expression, lambda inner: _of_row(inner, row))
