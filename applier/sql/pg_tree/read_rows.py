"""Arrays, and rows compared by order -> typed expressions, strictly."""

from __future__ import annotations

from applier.sql.pg_tree import tree, walk
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.layout import FIRST_WITH_CMPTYPE
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.pg_tree.read_calls import Read
from applier.sql.refusal import Reason, Refused

_BOOL = 16
_ROW_ORDERS = {1: True, 2: False, 4: False, 5: True}
"""Of <, <=, >= and > by number: whether equal rows are left out."""


def read_subscript(fields: Fields, read: Read) -> tree.SubscriptingRef:
    """An element of an array, or a slice."""
    # A bound that is left out, as in [2:], is a NULL in the list.
    upper, lower = fields.tree("refupperindexpr"), fields.tree("reflowerindexpr")
    for bounds in (upper, lower or ()):
        if not isinstance(bounds, tuple) or len(bounds) > 1 or not all(isinstance(b, TextNode) for b in bounds):
            hint = "use one subscript with both bounds"
            raise Refused(Reason.CONSTRUCT, "subscripts of several dimensions or with a bound left out", hint=hint)
    (index,), first = fields.nodes("refupperindexpr"), fields.nodes("reflowerindexpr")
    return tree.SubscriptingRef(
        array=read(fields.node("refexpr")),
        lower=read(first[0]) if first else None,
        index=read(index),
        type=fields.integer("refrestype"),
        collation=fields.integer("refcollid"),
    )


def read_row_compare(fields: Fields, major: int, read: Read) -> tree.RowCompareExpr:
    """A comparison of rows by order."""
    kind = fields.integer("rctype" if major < FIRST_WITH_CMPTYPE else "cmptype")
    if kind not in _ROW_ORDERS:
        raise unknown("a comparison of rows")
    operators, collations = fields.integers("opnos"), fields.integers("inputcollids")
    lefts, rights = (tuple(map(read, fields.nodes(name))) for name in ("largs", "rargs"))
    pairs = zip(operators, collations, lefts, rights, strict=True)
    return tree.RowCompareExpr(
        pairs=tuple(
            tree.FuncExpr(0, operator, _BOOL, 0, collation, (a, b), None) for operator, collation, a, b in pairs
        ),
        strict=_ROW_ORDERS[kind],
    )


def read_scalar_array_op(fields: Fields, major: int, read: Read) -> tree.AnyOfList | tree.ScalarArrayOpExpr:
    """ANY or ALL of an array."""
    at = fields.location()
    args = fields.nodes("args")
    if len(args) != 2:
        raise unknown("ANY or ALL of other than an array")
    if args[1].kind != "ARRAYEXPR":
        return tree.ScalarArrayOpExpr(
            function=fields.integer("opfuncid"),
            operator=fields.integer("opno"),
            every=not fields.flag("useOr"),
            input_collation=fields.integer("inputcollid"),
            subject=read(args[0]),
            array=read(args[1]),
            at=at,
        )
    array = Fields(args[1], major)
    elements = tuple(map(read, array.nodes("elements")))
    array.finish()
    return tree.AnyOfList(
        function=fields.integer("opfuncid"),
        operator=fields.integer("opno"),
        every=not fields.flag("useOr"),
        input_collation=fields.integer("inputcollid"),
        subject=read(args[0]),
        elements=elements,
        at=at,
    )


def read_array_cast(fields: Fields, read: Read) -> tree.ArrayCoerceExpr | tree.ArrayExpr:
    """A cast of every element; of an array that is written out the elements are cast where they stand."""
    at, array, cast = fields.location(), read(fields.node("arg")), read(fields.node("elemexpr"))
    type_, typmod, collation = (fields.integer(name) for name in ("resulttype", "resulttypmod", "resultcollid"))
    if isinstance(array, tree.ArrayExpr):
        return tree.ArrayExpr(tuple(_in_place(cast, element) for element in array.elements), type_, at)
    return tree.ArrayCoerceExpr(array, type_, typmod, collation, at)


def _in_place(cast: tree.Expression, element: tree.Expression) -> tree.Expression:
    """The cast of one element, which it calls the subject of a CASE."""
    if isinstance(cast, tree.CaseTestExpr):
        return element
    return walk.rebuild(cast, lambda part: _in_place(part, element))
