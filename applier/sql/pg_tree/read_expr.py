"""Generic nodes -> typed expressions, strictly: `finish` checks every field that a case does not read."""

from __future__ import annotations

from functools import partial

from applier.sql.pg_tree import tree, walk
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.layout import FIRST_WITH_NULLING, NO_MEMBERS
from applier.sql.pg_tree.node_text import TextNode
from applier.sql.pg_tree.query_tree import next_subquery_number, replace_subquery
from applier.sql.pg_tree.read_calls import read_aggregate, read_window_function
from applier.sql.pg_tree.read_json import read_is_json, read_json_constructor, read_json_path
from applier.sql.pg_tree.read_rows import read_array_cast, read_row_compare, read_scalar_array_op, read_subscript
from applier.sql.pg_tree.read_table_function import read_set_function

_PARAM_ENTRIES = {0: tree.ARGUMENT, 2: tree.RESULT}


def read_expression(node: TextNode, major: int) -> tree.Expression:
    """Read one expression node with everything inside it."""
    fields = Fields(node, major)
    expression = _read(node.kind, fields, major)
    fields.finish()
    return expression


def _read(kind: str, fields: Fields, major: int) -> tree.Expression:
    read = partial(read_expression, major=major)
    match kind:
        case "VAR":
            return _variable(fields, major)
        case "CONST":
            return _constant(fields)
        case "OPEXPR":
            return _operator(fields, major)
        case "DISTINCTEXPR":
            return tree.DistinctExpr(_operator(fields, major))
        case "NULLIFEXPR":
            return tree.NullIfExpr(_operator(fields, major))
        case "FUNCEXPR" if fields.flag("funcretset"):
            return read_set_function(fields, major, read)
        case "FUNCEXPR":
            return _function(fields, major)
        case "RELABELTYPE":
            return _relabel(fields, major)
        case "COERCEVIAIO":
            return tree.CoerceViaIO(
                arg=read_expression(fields.node("arg"), major),
                type=fields.integer("resulttype"),
                collation=fields.integer("resultcollid"),
                at=fields.location(),
            )
        case "ARRAYCOERCEEXPR":
            return read_array_cast(fields, read)
        case "JSONCONSTRUCTOREXPR":
            return read_json_constructor(fields, major, read)
        case "JSONEXPR":
            return read_json_path(fields, major, read)
        case "JSONVALUEEXPR":
            return read(fields.node("formatted_expr"))
        case "JSONISPREDICATE":
            return read_is_json(fields, major, read)
        case "BOOLEXPR":
            return _bool_expr(fields, major)
        case "NULLTEST":
            fields.location()
            negated = {0: False, 1: True}.get(fields.integer("nulltesttype"))
            if negated is None:
                raise unknown("a NULL test of an unknown kind")
            return tree.NullTest(read_expression(fields.node("arg"), major), negated, fields.flag("argisrow"))
        case "BOOLEANTEST":
            return _boolean_test(fields, major)
        case "CASEEXPR":
            return _case(fields, major)
        case "CASETESTEXPR":
            return tree.CaseTestExpr(fields.integer("typeId"), fields.integer("typeMod"))
        case "COALESCEEXPR":
            return tree.CoalesceExpr(
                args=_expressions(fields, "args", major),
                type=fields.integer("coalescetype"),
                collation=fields.integer("coalescecollid"),
                at=fields.location(),
            )
        case "MINMAXEXPR":
            return _min_max(fields, major)
        case "SCALARARRAYOPEXPR":
            return read_scalar_array_op(fields, major, read)
        case "AGGREF":
            return read_aggregate(fields, major, read)
        case "WINDOWFUNC":
            return read_window_function(fields, read)
        case "PARAM":
            return _param(fields)
        case "GROUPINGFUNC":
            _expressions(fields, "args", major)
            return tree.GroupingFunc(fields.integers("refs"), fields.location())
        case "SUBLINK":
            return _subquery(fields, major)
        case "ARRAYEXPR":
            return tree.ArrayExpr(
                elements=_expressions(fields, "elements", major),
                type=fields.integer("array_typeid"),
                at=fields.location(),
            )
        case "ROWEXPR":
            return tree.RowExpr(
                fields=_expressions(fields, "args", major),
                names=fields.texts("colnames"),
                type=fields.integer("row_typeid"),
                may_be_missing=False,
                at=fields.location(),
            )
        case "SUBSCRIPTINGREF":
            return read_subscript(fields, read)
        case "ROWCOMPAREEXPR":
            return read_row_compare(fields, major, read)
        case "COLLATEEXPR":
            fields.location()
            return tree.CollateExpr(read_expression(fields.node("arg"), major), fields.integer("collOid"))
        case _:
            raise unknown(f"a {kind} node in an expression")


def _expressions(fields: Fields, name: str, major: int) -> tuple[tree.Expression, ...]:
    return tuple(read_expression(node, major) for node in fields.nodes(name))


def _subquery(fields: Fields, major: int) -> tree.SubLink:
    from applier.sql.pg_tree.read_query import read_subquery

    at, code = fields.location(), fields.integer("subLinkType")
    if code not in {kind.value for kind in tree.SubLinkType}:
        raise unknown("a subquery of an unknown kind")
    kind, test = tree.SubLinkType(code), fields.optional("testexpr")
    if (test is None) != (kind in (tree.SubLinkType.EXISTS, tree.SubLinkType.VALUE, tree.SubLinkType.ARRAY)):
        raise unknown("a subquery whose test does not match its kind")
    query = read_subquery(fields.node("subselect"), major)
    visible = [t.expression for t in query.targets if not t.hidden]
    collation = walk.collation(visible[0]) if kind in (tree.SubLinkType.VALUE, tree.SubLinkType.ARRAY) else 0
    read = None if test is None else read_expression(test, major)
    return replace_subquery(tree.SubLink(next_subquery_number(), kind, query, None, (), collation, at), query, read)


def _variable(fields: Fields, major: int) -> tree.Var:
    nulled = fields.tree("varnullingrels") if major >= FIRST_WITH_NULLING else None
    return tree.Var(
        entry=fields.integer("varno"),
        number=fields.integer("varattno"),
        type=fields.integer("vartype"),
        typmod=fields.integer("vartypmod"),
        collation=fields.integer("varcollid"),
        levels_up=fields.integer("varlevelsup"),
        at=fields.location(),
        never_nulled=nulled == NO_MEMBERS,
    )


def _param(fields: Fields) -> tree.Var:
    """Read a parameter: a column of the subquery in the test of IN, or an argument of a function body.

    Both become columns, of the entries 0 and -1 of the range table, whose own entries start at 1.
    """
    kind = fields.integer("paramkind")
    if kind not in _PARAM_ENTRIES:
        raise unknown("a parameter that is not a column of a subquery")
    return tree.Var(
        entry=_PARAM_ENTRIES[kind],
        number=fields.integer("paramid"),
        type=fields.integer("paramtype"),
        typmod=fields.integer("paramtypmod"),
        collation=fields.integer("paramcollid"),
        levels_up=0,
        at=fields.location(),
    )


def _constant(fields: Fields) -> tree.Constant:
    is_null = fields.flag("constisnull")
    datum = fields.datum("constvalue")
    if is_null != (datum is None):
        raise unknown("a constant that both is and is not NULL")
    return tree.Constant(
        type=fields.integer("consttype"),
        typmod=fields.integer("consttypmod"),
        collation=fields.integer("constcollid"),
        length=fields.integer("constlen"),
        by_value=fields.flag("constbyval"),
        datum=datum,
        at=fields.location(),
    )


def _operator(fields: Fields, major: int) -> tree.FuncExpr:
    return tree.FuncExpr(
        function=fields.integer("opfuncid"),
        operator=fields.integer("opno"),
        type=fields.integer("opresulttype"),
        collation=fields.integer("opcollid"),
        input_collation=fields.integer("inputcollid"),
        args=_expressions(fields, "args", major),
        at=fields.location(),
    )


def _function(fields: Fields, major: int) -> tree.FuncExpr:
    return tree.FuncExpr(
        function=fields.integer("funcid"),
        operator=0,
        type=fields.integer("funcresulttype"),
        collation=fields.integer("funccollid"),
        input_collation=fields.integer("inputcollid"),
        args=_expressions(fields, "args", major),
        at=fields.location(),
    )


def _relabel(fields: Fields, major: int) -> tree.RelabelType:
    return tree.RelabelType(
        arg=read_expression(fields.node("arg"), major),
        type=fields.integer("resulttype"),
        typmod=fields.integer("resulttypmod"),
        collation=fields.integer("resultcollid"),
        at=fields.location(),
    )


def _bool_expr(fields: Fields, major: int) -> tree.BoolExpr:
    fields.location()
    name = fields.text("boolop")
    if name not in {c.value for c in tree.BoolOperator}:
        raise unknown(f"the Boolean operator {name}")
    return tree.BoolExpr(tree.BoolOperator(name), _expressions(fields, "args", major))


def _boolean_test(fields: Fields, major: int) -> tree.BooleanTest:
    fields.location()
    code = fields.integer("booltesttype")
    if code not in {t.value for t in tree.BoolTestType}:
        raise unknown("a Boolean test of an unknown kind")
    return tree.BooleanTest(read_expression(fields.node("arg"), major), tree.BoolTestType(code))


def _case(fields: Fields, major: int) -> tree.CaseExpr:
    subject = fields.optional("arg")
    return tree.CaseExpr(
        subject=None if subject is None else read_expression(subject, major),
        branches=tuple(_branch(node, major) for node in fields.nodes("args")),
        default=read_expression(fields.node("defresult"), major),
        type=fields.integer("casetype"),
        collation=fields.integer("casecollid"),
        at=fields.location(),
    )


def _branch(node: TextNode, major: int) -> tuple[tree.Expression, tree.Expression]:
    if node.kind != "CASEWHEN":
        raise unknown(f"a {node.kind} node in CASE")
    fields = Fields(node, major)
    branch = read_expression(fields.node("expr"), major), read_expression(fields.node("result"), major)
    fields.finish()
    return branch


def _min_max(fields: Fields, major: int) -> tree.MinMaxExpr:
    largest = {0: True, 1: False}.get(fields.integer("op"))
    if largest is None:
        raise unknown("a MINMAXEXPR node that is neither GREATEST nor LEAST")
    return tree.MinMaxExpr(
        largest=largest,
        args=_expressions(fields, "args", major),
        type=fields.integer("minmaxtype"),
        collation=fields.integer("minmaxcollid"),
        input_collation=fields.integer("inputcollid"),
        at=fields.location(),
    )
