"""The text of an analysed query -> its typed tree. Pure and strict: a query that is not fully known is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from applier.sql.pg_tree import query_tree, tree
from applier.sql.pg_tree.fields import Fields, unknown
from applier.sql.pg_tree.grouping_sets import grouping_sets
from applier.sql.pg_tree.layout import NEWEST_MAJOR, OLDEST_MAJOR, RANGE_KINDS
from applier.sql.pg_tree.node_text import MalformedTree, TextNode, Token, parse_node_text
from applier.sql.pg_tree.read_expr import read_expression
from applier.sql.pg_tree.read_json_table import read_json_table
from applier.sql.pg_tree.read_search_cycle import read_search_cycle
from applier.sql.pg_tree.read_table_function import read_table_function
from applier.sql.refusal import Reason, Refused

_SELECT = 1
_EXISTS, _ANY = 0, 2
_RELATION, _SUBQUERY, _JOIN, _FUNCTION, _TABLE_FUNCTION, _VALUES, _WITH, _GROUP = 0, 1, 2, 3, 4, 5, 6, 9
_LIMIT_COUNT, _LIMIT_TIES = 0, 1
_GROUP_ENTRY_SINCE = 18
_PERMISSIONS_APART_SINCE = 16


def read_query(text: str, major: int) -> query_tree.Query:
    """Read the single query in the action of a rewrite rule (pg_rewrite.ev_action)."""
    if not OLDEST_MAJOR <= major <= NEWEST_MAJOR:
        raise Refused(
            Reason.UNKNOWN_TREE,
            f"PostgreSQL {major}",
            hint=f"use PostgreSQL {OLDEST_MAJOR} to {NEWEST_MAJOR}",
            full_in_postgres=False,
        )
    try:
        action = parse_node_text(text)
    except MalformedTree as error:
        raise unknown("the text of this analysed query") from error
    if not isinstance(action, tuple) or len(action) != 1 or not isinstance(action[0], TextNode):
        raise unknown("a rule with several actions")
    return _query(action[0], major)


def read_subquery(node: TextNode, major: int) -> query_tree.Query:
    """Read a query inside an expression."""
    return _query(node, major)


def _query(node: TextNode, major: int, *, recursive: bool = False) -> query_tree.Query:
    if node.kind != "QUERY":
        raise unknown(f"a {node.kind} node instead of a query")
    fields = Fields(node, major)
    if fields.integer("commandType") != _SELECT:
        raise Refused(Reason.NOT_A_QUERY, "a statement other than SELECT", hint="write a single SELECT")
    operations = fields.optional("setOperations")
    # In a recursive query the nesting of the branches says which of them reads the query itself.
    union = None if operations is None else _set_operation(operations, major, flatten=not recursive)
    if major >= _PERMISSIONS_APART_SINCE:
        _skip(fields.nodes("rteperminfos"), "RTEPERMISSIONINFO", major)
    ctes = [_cte(n, major) for n in fields.nodes("cteList")]
    items, where, match_conditions = _from(fields.node("jointree"), major)
    having = fields.optional("havingQual")
    query = query_tree.Query(
        entries=tuple(_entry(n, major) for n in fields.nodes("rtable")),
        items=items,
        where=where,
        targets=tuple(_target(n, major) for n in fields.nodes("targetList")),
        groups=tuple(_group(n, major) for n in fields.nodes("groupClause")),
        grouping_sets=grouping_sets(fields.nodes("groupingSets"), major, distinct=fields.flag("groupDistinct")),
        having=None if having is None else read_expression(having, major),
        distinct=tuple(_group(n, major) for n in fields.nodes("distinctClause")),
        ctes={name: cte for name, cte, _, _ in ctes},
        recursive=frozenset(name for name, _, recursive, _ in ctes if recursive),
        search_cycles={name: clauses for name, _, _, clauses in ctes if clauses is not None},
        has_aggregates=fields.flag("hasAggs"),
        union=union,
        match_conditions=match_conditions,
        distinct_on=fields.flag("hasDistinctOn"),
        order=tuple(_sort(n, major) for n in fields.nodes("sortClause")),
        limit=_limit(fields, major),
        windows=tuple(_window(n, major) for n in fields.nodes("windowClause")),
    )
    # Last, so that a construct is reported at its position and not by the flag that announces it.
    fields.finish()
    return query


def _set_operation(node: TextNode, major: int, *, flatten: bool = True) -> query_tree.SetOperation:
    fields = Fields(node, major)
    code, keeps_duplicates = fields.integer("op"), fields.flag("all")
    if code not in {kind.value for kind in query_tree.SetOperationType}:
        raise unknown(f"the set operation {code}")
    kind = query_tree.SetOperationType(code)
    equalities = [_group(n, major).equality for n in fields.nodes("groupClauses")]
    parts = [fields.integers(name) for name in ("colTypes", "colTypmods", "colCollations")]
    has_equality = kind is not query_tree.SetOperationType.UNION or not keeps_duplicates
    if len({len(part) for part in parts}) != 1 or len(equalities) != (len(parts[0]) if has_equality else 0):
        raise unknown("a set operation whose types do not match its columns")
    columns = tuple(
        query_tree.SetColumn(*column) for column in zip(*parts, equalities or [0] * len(parts[0]), strict=True)
    )
    branches = [_branch(fields.node(name), major) for name in ("larg", "rarg")]
    fields.finish()
    return query_tree.SetOperation(
        kind,
        keeps_duplicates,
        # Nested UNION ALL become one: the branches are cast to the types of the outermost one.
        tuple(n for branch in branches for n in (_flatten(branch) if flatten and not has_equality else (branch,))),
        columns,
    )


def _flatten(branch: int | query_tree.SetOperation) -> tuple[int | query_tree.SetOperation, ...]:
    if isinstance(branch, int) or branch.kind is not query_tree.SetOperationType.UNION or not branch.keeps_duplicates:
        return (branch,)
    return branch.branches


def _branch(node: TextNode, major: int) -> int | query_tree.SetOperation:
    if node.kind == "SETOPERATIONSTMT":
        return _set_operation(node, major)
    item = _item(node, major)
    if not isinstance(item, query_tree.RangeTblRef):
        raise unknown(f"a {node.kind} node as a branch of a set operation")
    return item.entry


def _cte(node: TextNode, major: int) -> tuple[str, query_tree.Query, bool, query_tree.SearchCycle | None]:
    if node.kind != "COMMONTABLEEXPR":
        raise unknown(f"a {node.kind} node in WITH")
    fields = Fields(node, major)
    recursive = fields.flag("cterecursive")
    name, query = fields.text("ctename") or "", _query(fields.node("ctequery"), major, recursive=recursive)
    clauses = read_search_cycle(fields, major, lambda n: read_expression(n, major))
    fields.finish()
    return name, query, recursive, clauses


def _from(
    node: TextNode, major: int
) -> tuple[tuple[query_tree.FromItem, ...], tree.Expression | None, tuple[query_tree.MatchCondition, ...]]:
    if node.kind != "FROMEXPR":
        raise unknown(f"a {node.kind} node instead of FROM")
    fields = Fields(node, major)
    items = tuple(_item(n, major) for n in fields.nodes("fromlist"))
    quals = fields.optional("quals")
    fields.finish()
    conditions = [] if quals is None else list(_conditions(quals, major))
    where = tuple(c for c in conditions if not isinstance(c, query_tree.MatchCondition))
    match_conditions = tuple(c for c in conditions if isinstance(c, query_tree.MatchCondition))
    return items, _all_of(where), match_conditions


def _all_of(parts: tuple[tree.Expression, ...]) -> tree.Expression | None:
    if len(parts) > 1:
        return tree.BoolExpr(tree.BoolOperator.AND, parts)
    return parts[0] if parts else None


def _conditions(node: TextNode, major: int) -> Iterator[tree.Expression | query_tree.MatchCondition]:
    """Split WHERE at AND; yield EXISTS and IN conditions as MatchCondition, all others as expressions."""
    if _is_match_condition(node):
        yield _match_condition(node, major, negated=False)
    elif node.kind == "BOOLEXPR" and node.fields.get("boolop") in (Token("and"), Token("not")):
        fields = Fields(node, major)
        connective, args = fields.text("boolop"), fields.nodes("args")
        fields.location()
        fields.finish()
        if connective == "and":
            for arg in args:
                yield from _conditions(arg, major)
        elif len(args) == 1 and _is_match_condition(args[0]):
            yield _match_condition(args[0], major, negated=True)
        else:
            yield read_expression(node, major)
    else:
        yield read_expression(node, major)


def _is_match_condition(node: TextNode) -> bool:
    kinds = (Token(str(_EXISTS)), Token(str(_ANY)))
    return node.kind == "SUBLINK" and node.fields.get("subLinkType") in kinds


def _match_condition(node: TextNode, major: int, *, negated: bool) -> query_tree.MatchCondition:
    fields = Fields(node, major)
    kind, test, at = fields.integer("subLinkType"), fields.optional("testexpr"), fields.location()
    if (test is None) != (kind == _EXISTS):
        raise unknown("a subquery whose test does not match its kind")
    condition = query_tree.MatchCondition(
        query=_query(fields.node("subselect"), major),
        test=None if test is None else read_expression(test, major),
        negated=negated,
        at=at,
    )
    fields.finish()
    return condition


def _item(node: TextNode, major: int) -> query_tree.FromItem:
    fields = Fields(node, major)
    if node.kind == "RANGETBLREF":
        reference = query_tree.RangeTblRef(fields.integer("rtindex"))
        fields.finish()
        return reference
    if node.kind != "JOINEXPR":
        raise unknown(f"a {node.kind} node in FROM")
    kind = _join_kind(fields.integer("jointype"))
    fields.integer("rtindex")
    _skip_aliases(fields, ("alias", "join_using_alias"), major)
    quals = fields.optional("quals")
    left, right = _item(fields.node("larg"), major), _item(fields.node("rarg"), major)
    condition = None if quals is None else read_expression(quals, major)
    fields.finish()
    if kind is None:
        return query_tree.InnerJoinExpr(left, right, condition)
    return query_tree.OuterJoinExpr(kind, left, right, condition)


def _join_kind(code: int) -> query_tree.OuterJoinType | None:
    """Return the type of an outer join; None for the inner join."""
    if code == 0:
        return None
    if code not in {kind.value for kind in query_tree.OuterJoinType}:
        raise unknown(f"the join type {code}")
    return query_tree.OuterJoinType(code)


def _entry(node: TextNode, major: int) -> query_tree.RangeTblEntry:
    if node.kind != "RANGETBLENTRY":
        raise unknown(f"a {node.kind} node in the range table")
    fields = Fields(node, major)
    kind = fields.integer("rtekind")
    if kind in RANGE_KINDS:
        construct, hint = RANGE_KINDS[kind]
        raise Refused(Reason.CONSTRUCT, construct, hint=hint)
    reference = _alias(fields.node("eref"), major)
    alias = fields.optional("alias")
    renamed = alias is not None and bool(_alias(alias, major)[1])
    _skip_aliases(fields, ("join_using_alias",) if kind == _JOIN else (), major)
    entry = _entry_of_kind(kind, reference, fields, major, renamed=renamed)
    fields.finish()
    return replace(entry, alias=reference)


def _entry_of_kind(
    kind: int, reference: tuple[str, tuple[str, ...]], fields: Fields, major: int, *, renamed: bool
) -> query_tree.RangeTblEntry:
    name, columns = reference
    if kind == _RELATION:
        fields.text("relkind")
        # The JSON names of the fields of a row with renamed columns differ between the releases.
        named = () if renamed else columns
        return query_tree.TableEntry(name, fields.integer("relid"), fields.flag("inh"), named)
    if kind == _SUBQUERY:
        return query_tree.SubqueryEntry(name, _query(fields.node("subquery"), major), columns)
    if kind == _WITH:
        return query_tree.CteEntry(fields.text("ctename") or "", fields.integer("ctelevelsup"), columns)
    if kind == _VALUES:
        return _values(fields, major)
    if kind == _TABLE_FUNCTION:
        query = read_json_table(fields.node("tablefunc"), major, lambda n: read_expression(n, major))
        return query_tree.SubqueryEntry(name, query, columns)
    if kind == _FUNCTION:
        return read_table_function(fields, major, lambda n: read_expression(n, major))
    if kind == _JOIN:
        _join_kind(fields.integer("jointype"))
        return query_tree.JoinEntry(tuple(read_expression(n, major) for n in fields.nodes("joinaliasvars")))
    if kind == _GROUP and major >= _GROUP_ENTRY_SINCE:
        return query_tree.GroupEntry(tuple(read_expression(n, major) for n in fields.nodes("groupexprs")))
    raise unknown(f"a range-table entry of kind {kind}")


def _values(fields: Fields, major: int) -> query_tree.ValuesEntry:
    rows = fields.tree("values_lists")
    types, modifiers = fields.integers("coltypes"), fields.integers("coltypmods")
    if not isinstance(rows, tuple) or len(types) != len(modifiers):
        raise unknown("the form of VALUES")
    read = []
    for row in rows:
        if not isinstance(row, tuple) or len(row) != len(types):
            raise unknown("a row of VALUES")
        read.append(tuple(read_expression(n, major) for n in row if isinstance(n, TextNode)))
    return query_tree.ValuesEntry(tuple(read), tuple(zip(types, modifiers, strict=True)))


def _skip(nodes: tuple[TextNode, ...], kind: str, major: int) -> None:
    """Skip nodes that do not affect the result, but check that they are known."""
    for node in nodes:
        if node.kind != kind:
            raise unknown(f"a {node.kind} node in place of {kind}")
        fields = Fields(node, major)
        if kind == "ALIAS":
            fields.text("aliasname")
        fields.finish()


def _skip_aliases(fields: Fields, names: tuple[str, ...], major: int) -> None:
    for name in names:
        alias = fields.optional(name)
        _skip(() if alias is None else (alias,), "ALIAS", major)


def _alias(node: TextNode, major: int) -> tuple[str, tuple[str, ...]]:
    """Return the name of a FROM item and those of its columns."""
    if node.kind != "ALIAS":
        raise unknown(f"a {node.kind} node in place of ALIAS")
    fields = Fields(node, major)
    name, columns = fields.text("aliasname"), fields.texts("colnames")
    fields.finish()
    return name or "", columns


def _target(node: TextNode, major: int) -> query_tree.TargetEntry:
    if node.kind != "TARGETENTRY":
        raise unknown(f"a {node.kind} node in the select list")
    fields = Fields(node, major)
    fields.integer("resno")
    target = query_tree.TargetEntry(
        expression=read_expression(fields.node("expr"), major),
        name=fields.text("resname"),
        group_reference=fields.integer("ressortgroupref"),
        hidden=fields.flag("resjunk"),
    )
    fields.finish()
    return target


def _sort(node: TextNode, major: int) -> query_tree.SortItem:
    if node.kind != "SORTGROUPCLAUSE":
        raise unknown(f"a {node.kind} node in ORDER BY")
    fields = Fields(node, major)
    item = query_tree.SortItem(fields.integer("tleSortGroupRef"), fields.integer("sortop"), fields.flag("nulls_first"))
    fields.finish()
    return item


def _window(node: TextNode, major: int) -> query_tree.WindowClause:
    if node.kind != "WINDOWCLAUSE":
        raise unknown(f"a {node.kind} node in WINDOW")
    fields = Fields(node, major)
    start, end = fields.optional("startOffset"), fields.optional("endOffset")
    clause = query_tree.WindowClause(
        number=fields.integer("winref"),
        partition=tuple(_group(n, major) for n in fields.nodes("partitionClause")),
        order=tuple(_sort(n, major) for n in fields.nodes("orderClause")),
        options=fields.integer("frameOptions"),
        start=None if start is None else read_expression(start, major),
        end=None if end is None else read_expression(end, major),
    )
    fields.finish()
    return clause


def _limit(fields: Fields, major: int) -> query_tree.Limit | None:
    count, offset, option = fields.optional("limitCount"), fields.optional("limitOffset"), fields.integer("limitOption")
    if option not in (_LIMIT_COUNT, _LIMIT_TIES):
        raise unknown(f"the limit option {option}")
    if count is None and offset is None:
        return None
    return query_tree.Limit(
        count=None if count is None else read_expression(count, major),
        offset=None if offset is None else read_expression(offset, major),
        ties=option == _LIMIT_TIES,
    )


def _group(node: TextNode, major: int) -> query_tree.GroupItem:
    if node.kind != "SORTGROUPCLAUSE":
        raise unknown(f"a {node.kind} node in GROUP BY")
    fields = Fields(node, major)
    item = query_tree.GroupItem(fields.integer("tleSortGroupRef"), fields.integer("eqop"))
    fields.finish()
    return item
