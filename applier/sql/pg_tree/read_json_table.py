"""JSON_TABLE -> the query it stands for, strictly.

    SELECT JSON_VALUE(row, path), … FROM jsonb_array_elements(rows of the document) WITH ORDINALITY AS t(row, number)

A nested path is a LEFT JOIN LATERAL of the rows inside each row; of nested paths beside each other, a UNION ALL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.pg_tree.rewriting import OuterColumnRewriter
from applier.sql.refusal import Reason, Refused

Read = Callable[[TextNode], tree.Expression]
_JSON_TABLE_SINCE, _JSON_TABLE = 17, 1
_JSONB, _INT4, _INT8 = 3802, 23, 20
_ELEMENTS, _TO_INT4 = 3219, 480
"""jsonb_array_elements(jsonb) and int4(int8)."""
_ROW, _NUMBER = 1, 2


@dataclass(frozen=True, slots=True)
class _Rows:
    """A path of rows, the places of its own columns, and the paths inside each of its rows."""

    path: tree.Expression
    raises: bool
    places: range
    inside: tuple[_Rows, ...]

    def all_places(self) -> Iterator[int]:
        """Of its own columns, and of those inside."""
        yield from self.places
        for rows in self.inside:
            yield from rows.all_places()


def read_json_table(node: TextNode, major: int, read: Read) -> query_tree.Query:
    """The query of a range-table entry's table function."""
    fields = Fields(node, major)
    if major < _JSON_TABLE_SINCE or fields.integer("functype") != _JSON_TABLE:
        raise Refused(Reason.CONSTRUCT, "XMLTABLE", hint="store its rows in a table", token=fields.location())
    fields.integer("ordinalitycol")
    document, columns = read(fields.node("docexpr")), fields.tree("colvalexprs")
    shapes = [fields.integers(name) for name in ("coltypes", "coltypmods", "colcollations")]
    (rows,) = _plan(fields.node("plan"), major, read)
    fields.finish()
    if not isinstance(document, tree.JsonExpr) or not isinstance(columns, tuple) or len(columns) != len(shapes[0]):
        raise unknown("the form of a JSON_TABLE")
    found = tuple(read(column) if isinstance(column, TextNode) else None for column in columns)
    columns_of = zip(*shapes, strict=True)
    types = tuple(query_tree.SetColumn(type_, modifier, collation, 0) for type_, modifier, collation in columns_of)
    table = _Table(document, found, types)
    query, places = table.query(rows, document.json, 1)
    order = [places.index(place) for place in range(len(found))]
    return replace(query, targets=tuple(query.targets[i] for i in order))


def _plan(node: TextNode, major: int, read: Read) -> tuple[_Rows, ...]:
    """The paths that stand beside each other."""
    fields = Fields(node, major)
    if node.kind == "JSONTABLESIBLINGJOIN":
        both = (*_plan(fields.node("lplan"), major, read), *_plan(fields.node("rplan"), major, read))
        fields.finish()
        return both
    if node.kind != "JSONTABLEPATHSCAN":
        raise unknown(f"a {node.kind} node in a JSON_TABLE")
    path, inner = Fields(fields.node("path"), major), fields.optional("child")
    first, last = fields.integer("colMin"), fields.integer("colMax")
    rows = _Rows(
        read(path.node("value")),
        fields.flag("errorOnError"),
        range(first, last + 1) if first >= 0 else range(0),
        () if inner is None else _plan(inner, major, read),
    )
    path.finish()
    fields.finish()
    return (rows,)


@dataclass(frozen=True, slots=True)
class _Table:
    """What all paths have in common: the document with what is passed to it, the columns and their types."""

    document: tree.JsonExpr
    columns: tuple[tree.Expression | None, ...]
    types: tuple[query_tree.SetColumn, ...]

    def query(self, rows: _Rows, json: tree.Expression, depth: int) -> tuple[query_tree.Query, list[int]]:
        """All columns of these rows of a document, `depth` queries inside the query of the table; and their places."""
        entries: list[query_tree.RangeTblEntry] = [self._entry(rows, json, depth)]
        item: query_tree.FromItem = query_tree.RangeTblRef(1)
        found = {place: self._column(place, 1, depth) for place in rows.places}
        row = tree.Var(1, _ROW, _JSONB, -1, 0, 0, None)
        if len(rows.inside) == 1 and not rows.inside[0].inside:
            # One path inside needs no query of its own.
            (inner,) = rows.inside
            entries.append(self._entry(inner, row, 0, passed=depth))
            found |= {place: self._column(place, 2, depth) for place in inner.places}
        elif rows.inside:
            if len(rows.inside) == 1:
                beside, places = self.query(rows.inside[0], replace(row, levels_up=1), depth + 1)
            else:
                beside, places = self._beside(rows.inside, replace(row, levels_up=2), depth + 2)
            entries.append(query_tree.SubqueryEntry("", beside))
            found |= {place: self._value(2, i, place) for i, place in enumerate(places, 1)}
        if len(entries) > 1:
            item = query_tree.OuterJoinExpr(query_tree.OuterJoinType.LEFT, item, query_tree.RangeTblRef(2), None)
        return _query(tuple(found.values()), tuple(entries), (item,)), list(found)

    def _beside(
        self, several: Sequence[_Rows], json: tree.Expression, depth: int
    ) -> tuple[query_tree.Query, list[int]]:
        """The rows of one path after those of the other, with NULL in the columns of the others."""
        places = [place for rows in several for place in rows.all_places()]
        branches = []
        for rows in several:
            query, own = self.query(rows, json, depth)
            by_place = {place: target.expression for place, target in zip(own, query.targets, strict=True)}
            shown = (by_place.get(place) or self._null(place) for place in places)
            branches.append(query_tree.SubqueryEntry("", replace(query, targets=_targets(tuple(shown)))))
        union = query_tree.SetOperation(
            query_tree.SetOperationType.UNION,
            True,
            tuple(range(1, 1 + len(branches))),
            tuple(self.types[place] for place in places),
        )
        values = tuple(self._value(1, i, place) for i, place in enumerate(places, 1))
        return replace(_query(values, tuple(branches), ()), union=union), places

    def _entry(
        self, rows: _Rows, json: tree.Expression, depth: int, passed: int | None = None
    ) -> query_tree.FunctionEntry:
        outside = _further_out(depth if passed is None else passed)
        listed = replace(
            self.document,
            op=tree.JsonExprOp.ROWS,
            json=outside(json) if json is self.document.json else json,
            path=rows.path,
            passing=tuple(map(outside, self.document.passing)),
            on_empty=None,
            on_error=None if rows.raises else tree.Constant(_JSONB, -1, 0, -1, False, None, None),
        )
        call = tree.SetReturningExpr(_ELEMENTS, _JSONB, 0, 0, (listed,), self.document.at)
        return query_tree.FunctionEntry((call,), (1,), True)

    def _column(self, place: int, number: int, depth: int) -> tree.Expression:
        column = self.columns[place]
        if column is None:
            counted = tree.Var(number, _NUMBER, _INT8, -1, 0, 0, None)
            return tree.FuncExpr(_TO_INT4, 0, _INT4, 0, 0, (counted,), None)
        if not isinstance(column, tree.JsonExpr):
            raise unknown("a column of JSON_TABLE")
        row = tree.Var(number, _ROW, _JSONB, -1, 0, 0, None)
        return _of_row(_further_out(depth)(replace(column, of_row=True)), row)

    def _value(self, number: int, column: int, place: int) -> tree.Var:
        shape = self.types[place]
        return tree.Var(number, column, shape.type, shape.typmod, shape.collation, 0, None)

    def _null(self, place: int) -> tree.Constant:
        shape = self.types[place]
        return tree.Constant(shape.type, shape.typmod, shape.collation, -1, False, None, None)


def _further_out(depth: int) -> Callable[[tree.Expression], tree.Expression]:
    return OuterColumnRewriter(lambda var, _: replace(var, levels_up=var.levels_up + depth)).expression


def _targets(expressions: tuple[tree.Expression, ...]) -> tuple[query_tree.TargetEntry, ...]:
    return tuple(query_tree.TargetEntry(expression, None, 0, False) for expression in expressions)


def _query(
    expressions: tuple[tree.Expression, ...],
    entries: tuple[query_tree.RangeTblEntry, ...],
    items: tuple[query_tree.FromItem, ...],
) -> query_tree.Query:
    return query_tree.select_from(_targets(expressions), entries, items)


def _of_row(expression: tree.Expression, row: tree.Var) -> tree.Expression:
    """With the row in the place of what stands for it."""
    if isinstance(expression, tree.CaseTestExpr):
        return row
    return walk.rebuild(expression, lambda inner: _of_row(inner, row))
