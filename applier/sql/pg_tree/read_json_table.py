"""JSON_TABLE -> an equivalent query over jsonb_array_elements, strictly.

    SELECT JSON_VALUE(row, path), … FROM jsonb_array_elements(rows of the document) WITH ORDINALITY AS t(row, number)

A nested path is a LEFT JOIN LATERAL of the rows inside each row. Sibling paths are a UNION ALL.
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
    """A row path, the positions of its own columns, and the paths nested in each of its rows."""

    path: tree.Expression
    raises: bool
    places: range
    nested: tuple[_Rows, ...]

    def all_places(self) -> Iterator[int]:
        """Yield the positions of its own columns, then those of nested paths."""
        yield from self.places
        for rows in self.nested:
            yield from rows.all_places()


def read_json_table(node: TextNode, major: int, read: Read) -> query_tree.Query:
    """Return the query of a table function in FROM."""
    fields = Fields(node, major)
    if major < _JSON_TABLE_SINCE or fields.integer("functype") != _JSON_TABLE:
        raise Refused(Reason.CONSTRUCT, "XMLTABLE", hint="store the rows in a table", token=fields.location())
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
    """Read the sibling paths."""
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
    """What all paths share: the document with its PASSING values, the columns and their types."""

    document: tree.JsonExpr
    columns: tuple[tree.Expression | None, ...]
    types: tuple[query_tree.SetColumn, ...]

    def query(self, rows: _Rows, json: tree.Expression, depth: int) -> tuple[query_tree.Query, list[int]]:
        """Return a query for all columns of these rows, `depth` queries below the outer query; and their positions."""
        entries: list[query_tree.RangeTblEntry] = [self._entry(rows, json, depth)]
        item: query_tree.FromItem = query_tree.RangeTblRef(1)
        found = {place: self._column(place, 1, depth) for place in rows.places}
        row = tree.Var(1, _ROW, _JSONB, -1, 0, 0, None)
        if len(rows.nested) == 1 and not rows.nested[0].nested:
            # A single nested path needs no query of its own.
            (inner,) = rows.nested
            entries.append(self._entry(inner, row, 0, passed=depth))
            found |= {place: self._column(place, 2, depth) for place in inner.places}
        elif rows.nested:
            if len(rows.nested) == 1:
                nested, places = self.query(rows.nested[0], replace(row, levels_up=1), depth + 1)
            else:
                nested, places = self._union_siblings(rows.nested, replace(row, levels_up=2), depth + 2)
            entries.append(query_tree.SubqueryEntry("", nested))
            found |= {place: self._value(2, i, place) for i, place in enumerate(places, 1)}
        if len(entries) > 1:
            item = query_tree.OuterJoinExpr(query_tree.OuterJoinType.LEFT, item, query_tree.RangeTblRef(2), None)
        return _query(tuple(found.values()), tuple(entries), (item,)), list(found)

    def _union_siblings(
        self, siblings: Sequence[_Rows], json: tree.Expression, depth: int
    ) -> tuple[query_tree.Query, list[int]]:
        """Return the union of the rows of sibling paths; each has NULL in the columns of the others."""
        places = [place for rows in siblings for place in rows.all_places()]
        branches = []
        for rows in siblings:
            query, own = self.query(rows, json, depth)
            by_place = {place: target.expression for place, target in zip(own, query.targets, strict=True)}
            columns = (by_place.get(place) or self._null(place) for place in places)
            branches.append(query_tree.SubqueryEntry("", replace(query, targets=_targets(tuple(columns)))))
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
        raise_levels = _raise_levels(depth if passed is None else passed)
        listed = replace(
            self.document,
            op=tree.JsonExprOp.ROWS,
            json=raise_levels(json) if json is self.document.json else json,
            path=rows.path,
            passing=tuple(map(raise_levels, self.document.passing)),
            on_empty=None,
            on_error=None if rows.raises else tree.Constant(_JSONB, -1, 0, -1, False, None, None),
        )
        call = tree.SetReturningExpr(_ELEMENTS, _JSONB, 0, 0, (listed,), self.document.at)
        return query_tree.FunctionEntry((call,), (1,), True)

    def _column(self, place: int, number: int, depth: int) -> tree.Expression:
        column = self.columns[place]
        if column is None:
            row_number = tree.Var(number, _NUMBER, _INT8, -1, 0, 0, None)
            return tree.FuncExpr(_TO_INT4, 0, _INT4, 0, 0, (row_number,), None)
        if not isinstance(column, tree.JsonExpr):
            raise unknown("a column of JSON_TABLE")
        row = tree.Var(number, _ROW, _JSONB, -1, 0, 0, None)
        return _put_row(_raise_levels(depth)(replace(column, of_row=True)), row)

    def _value(self, number: int, column: int, place: int) -> tree.Var:
        shape = self.types[place]
        return tree.Var(number, column, shape.type, shape.typmod, shape.collation, 0, None)

    def _null(self, place: int) -> tree.Constant:
        shape = self.types[place]
        return tree.Constant(shape.type, shape.typmod, shape.collation, -1, False, None, None)


def _raise_levels(depth: int) -> Callable[[tree.Expression], tree.Expression]:
    return OuterColumnRewriter(lambda var, _: replace(var, levels_up=var.levels_up + depth)).expression


def _targets(expressions: tuple[tree.Expression, ...]) -> tuple[query_tree.TargetEntry, ...]:
    return tuple(query_tree.TargetEntry(expression, None, 0, False) for expression in expressions)


def _query(
    expressions: tuple[tree.Expression, ...],
    entries: tuple[query_tree.RangeTblEntry, ...],
    items: tuple[query_tree.FromItem, ...],
) -> query_tree.Query:
    return query_tree.select_from(_targets(expressions), entries, items)


def _put_row(expression: tree.Expression, row: tree.Var) -> tree.Expression:
    """Replace the placeholder of the row (CaseTestExpr) by the row itself."""
    if isinstance(expression, tree.CaseTestExpr):
        return row
    return walk.rebuild(expression, lambda inner: _put_row(inner, row))
