"""Nodes of SQL/JSON -> typed expressions, strictly: JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_ARRAY, IS JSON."""

from __future__ import annotations

from collections.abc import Callable

from applier.sql.pg_tree import tree
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.refusal import Reason, Refused

Read = Callable[[TextNode], tree.Expression]
_OBJECT, _ARRAY, _OBJECTAGG, _ARRAYAGG = 1, 2, 3, 4
"""The kinds of JSON constructors."""
_RAISES = 1
"""JSON_BEHAVIOR_ERROR."""


def read_json_constructor(fields: Fields, major: int, read: Read) -> tree.Expression:
    """Read JSON_ARRAY or JSON_OBJECT; or JSON_ARRAYAGG or JSON_OBJECTAGG, as the aggregate that computes it."""
    at, code, call = fields.location(), fields.integer("type"), fields.optional("func")
    args = tuple(map(read, fields.nodes("args")))
    if fields.optional("coercion") is not None:
        hint = "remove RETURNING, or write RETURNING jsonb; then cast the result"
        raise Refused(Reason.CONSTRUCT, "this RETURNING type of a JSON constructor", hint=hint, token=at)
    if code in (_OBJECTAGG, _ARRAYAGG) and call is not None and not args:
        return read(call)
    if code not in (_OBJECT, _ARRAY) or call is not None:
        construct, hint = "JSON(), JSON_SCALAR and JSON_SERIALIZE", "cast to jsonb, or use to_jsonb"
        raise Refused(Reason.CONSTRUCT, construct, hint=hint, token=at)
    if fields.flag("unique"):
        raise Refused(Reason.CONSTRUCT, "WITH UNIQUE KEYS in a JSON constructor", hint="remove it", token=at)
    type_, _ = _returning(fields.node("returning"), major)
    return tree.JsonConstructorExpr(code == _OBJECT, args, fields.flag("absent_on_null"), type_, at)


def read_json_path(fields: Fields, major: int, read: Read) -> tree.JsonExpr:
    """Read JSON_EXISTS, JSON_QUERY or JSON_VALUE."""
    at, code = fields.location(), fields.integer("op")
    if code not in {op.value for op in tree.JsonExprOp}:
        raise unknown("a JSON function of an unknown kind")
    wrapper = fields.integer("wrapper")
    if wrapper not in {known.value for known in tree.JsonWrapper}:
        raise unknown("a wrapper of JSON_QUERY")
    type_, typmod = _returning(fields.node("returning"), major)
    return tree.JsonExpr(
        op=tree.JsonExprOp(code),
        json=read(fields.node("formatted_expr")),
        path=read(fields.node("path_spec")),
        names=fields.texts("passing_names"),
        passing=tuple(map(read, fields.nodes("passing_values"))),
        on_empty=_behaviour(fields.optional("on_empty"), major, read, type_),
        on_error=_behaviour(fields.optional("on_error"), major, read, type_),
        wrapper=tree.JsonWrapper(wrapper),
        omits_quotes=fields.flag("omit_quotes"),
        type=type_,
        typmod=typmod,
        collation=fields.integer("collation"),
        at=at,
    )


def read_is_json(fields: Fields, major: int, read: Read) -> tree.JsonIsPredicate:
    """Read IS JSON."""
    at, shape = fields.location(), fields.integer("item_type")
    if shape not in {known.value for known in tree.JsonShape}:
        raise unknown("IS JSON with an unknown kind of value")
    _skip_format(fields, major)
    return tree.JsonIsPredicate(read(fields.node("expr")), tree.JsonShape(shape), fields.flag("unique_keys"), at)


def _skip_format(fields: Fields, major: int) -> None:
    found = fields.optional("format")
    if found is not None:
        Fields(found, major).finish()


def _returning(node: TextNode, major: int) -> tuple[int, int]:
    fields = Fields(node, major)
    _skip_format(fields, major)
    found = fields.integer("typid"), fields.integer("typmod")
    fields.finish()
    return found


def _behaviour(node: TextNode | None, major: int, read: Read, type_: int) -> tree.Expression | None:
    """Return the value of ON EMPTY or ON ERROR; None where it raises an error."""
    if node is None:
        return None
    fields = Fields(node, major)
    code, expression, cast, at = (
        fields.integer("btype"),
        fields.optional("expr"),
        fields.flag("coerce"),
        fields.location(),
    )
    fields.finish()
    if code == _RAISES:
        return None
    if expression is None:
        raise unknown("the ON EMPTY or ON ERROR value of a JSON function")
    value = read(expression)
    if not cast:
        return value
    if isinstance(value, tree.Constant) and value.datum is None:
        return tree.Constant(type_, -1, 0, -1, False, None, None)
    hint = "cast the default to the result type of the function"
    raise Refused(
        Reason.CONSTRUCT, "a default of a JSON function whose type is not the result type", hint=hint, token=at
    )
