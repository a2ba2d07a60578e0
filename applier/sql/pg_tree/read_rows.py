"""Nodes of arrays and of row comparisons -> typed expressions, strictly."""

from __future__ import annotations

from applier.sql.pg_tree import tree, walk
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.layout import FIRST_WITH_CMPTYPE
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.pg_tree.read_calls import Read
from applier.sql.refusal import Reason, Refused

_BOOL = 16
_ROW_ORDERS = {1: True, 2: False, 4: False, 5: True}
"""The comparisons <, <=, >= and > by number: whether equal rows fail."""


def read_subscript(fields: Fields, read: Read) -> tree.SubscriptingRef:
    """Read an element of an array, or a slice."""
    # An omitted bound, as in [2:], is a NULL in the list.
    upper, lower = fields.tree("refupperindexpr"), fields.tree("reflowerindexpr")
    for bounds in (upper, lower or ()):
        if not isinstance(bounds, tuple) or len(bounds) > 1 or not all(isinstance(b, TextNode) for b in bounds):
            construct = "an array subscript with several dimensions or an omitted bound"
            raise Refused(Reason.CONSTRUCT, construct, hint="write one subscript, with both bounds of a slice")
    (index,), first = fields.nodes("refupperindexpr"), fields.nodes("reflowerindexpr")
    return tree.SubscriptingRef(
        array=read(fields.node("refexpr")),
        lower=read(first[0]) if first else None,
        index=read(index),
        type=fields.integer("refrestype"),
        collation=fields.integer("refcollid"),
    )


def read_row_compare(fields: Fields, major: int, read: Read) -> tree.RowCompareExpr:
    """Read a comparison of rows by order."""
    kind = fields.integer("rctype" if major < FIRST_WITH_CMPTYPE else "cmptype")
    if kind not in _ROW_ORDERS:
        raise unknown("a comparison of rows of an unknown kind")
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
    """Read ANY or ALL of an array."""
    at = fields.location()
    args = fields.nodes("args")
    if len(args) != 2:
        raise unknown("ANY or ALL without exactly two arguments")
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
    """Read a cast of every element of an array; in ARRAY[...] each element gets its own cast."""
    at, array, cast = fields.location(), read(fields.node("arg")), read(fields.node("elemexpr"))
    type_, typmod, collation = (fields.integer(name) for name in ("resulttype", "resulttypmod", "resultcollid"))
    if isinstance(array, tree.ArrayExpr):
        return tree.ArrayExpr(tuple(_cast_element(cast, element) for element in array.elements), type_, at)
    return tree.ArrayCoerceExpr(array, type_, typmod, collation, at)


def _cast_element(cast: tree.Expression, element: tree.Expression) -> tree.Expression:
    """Return the cast of one element; the cast refers to the element by a CaseTestExpr."""
    if isinstance(cast, tree.CaseTestExpr):
        return element
    return walk.rebuild(cast, lambda part: _cast_element(part, element))
