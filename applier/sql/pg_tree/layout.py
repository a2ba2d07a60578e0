"""The fields of PostgreSQL's nodes that the readers do not read, by major version, and their harmless values.

Every field of every node is either read (read_query.py, read_expr.py and others) or listed here with the values under
which it does not affect the result. A field that is not listed, that is listed for other majors only, or that has
another value makes the query refused: a new feature of a server is never misread.

The lists for majors 15, 16 and 18 were compared with real servers. Those for 14 and 17 follow the released sources; a
mistake in them shows as a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass

from applier.sql.pg_tree.node_text import Tree, parse_node_text

OLDEST_MAJOR = 14
NEWEST_MAJOR = 18

FIRST_WITH_CMPTYPE = 18
"""Since this major a comparison of rows has its kind in the field `cmptype`."""

FIRST_WITH_NULLING = 16
"""Since this major a column lists the outer joins that can make it NULL."""

NO_MEMBERS = parse_node_text("(b)")
"""An empty set."""


@dataclass(frozen=True, slots=True)
class UnreadField:
    """A field that is not read: the values that it may have (None: any) and the construct that another value means."""

    values: tuple[Tree, ...] | None
    since: int = OLDEST_MAJOR
    until: int = NEWEST_MAJOR
    construct: str = ""
    hint: str = ""
    in_full: bool = True
    """Whether PostgreSQL itself may run a query with that construct."""

    def covers(self, major: int) -> bool:
        """Whether the field exists in that major."""
        return self.since <= major <= self.until


def _only(
    *texts: str,
    since: int = OLDEST_MAJOR,
    until: int = NEWEST_MAJOR,
    means: str = "",
    hint: str = "",
    in_full: bool = True,
) -> UnreadField:
    return UnreadField(tuple(parse_node_text(t) for t in texts), since, until, means, hint, in_full)


def _any(since: int = OLDEST_MAJOR, until: int = NEWEST_MAJOR) -> UnreadField:
    return UnreadField(None, since, until)


_PERMISSIONS = {
    "requiredPerms": _any(until=15),
    "checkAsUser": _any(until=15),
    "selectedCols": _any(until=15),
    "insertedCols": _only("(b)", until=15),
    "updatedCols": _only("(b)", until=15),
    "extraUpdatedCols": _only("(b)", until=15),
    "perminfoindex": _any(since=16),
}

_NO_POLICIES = "the rows depend on the role that reads; use a table without policies"
_OPERATOR = {
    "opretset": _only("false", means="an operator that returns a set", hint="use a function that returns one value")
}

UNREAD_FIELDS: dict[str, dict[str, UnreadField]] = {
    "QUERY": {
        "querySource": _only("0"),
        "canSetTag": _any(),
        "utilityStmt": _only("<>"),
        "resultRelation": _only("0"),
        "hasWindowFuncs": _any(),
        # The reader finds each of them at its position.
        "hasTargetSRFs": _any(),
        # The reader finds each of them at its position, and refuses what is not supported there.
        "hasSubLinks": _any(),
        "hasRecursive": _any(),
        "hasModifyingCTE": _only("false", means="a data-modifying WITH", hint="write only SELECT in WITH"),
        "hasForUpdate": _only(
            "false",
            means="FOR UPDATE or FOR SHARE",
            hint="a stream table locks no rows; remove the clause",
            in_full=False,
        ),
        "hasRowSecurity": _only("false", means="row-level security", hint=_NO_POLICIES),
        "hasGroupRTE": _any(since=18),
        "isReturn": _only("false"),
        "mergeActionList": _only("<>", since=15),
        "mergeUseOuterJoin": _only("false", since=15, until=16),
        "mergeTargetRelation": _only("0", since=17),
        "mergeJoinCondition": _only("<>", since=17),
        "override": _only("0"),
        "onConflict": _only("<>"),
        "returningOldAlias": _only("<>", since=18),
        "returningNewAlias": _only("<>", since=18),
        "returningList": _only("<>"),
        "rowMarks": _only(
            "<>", means="FOR UPDATE or FOR SHARE", hint="a stream table locks no rows; remove the clause", in_full=False
        ),
        "constraintDeps": _any(),
        "withCheckOptions": _only("<>"),
        "stmt_location": _any(),
        "stmt_len": _any(),
    },
    "RANGETBLENTRY": {
        "rellockmode": _any(),
        "tablesample": _only("<>", means="TABLESAMPLE", hint="every run gives another sample; filter by a column"),
        "lateral": _any(),
        "inFromCl": _any(),
        "security_barrier": _only(
            "false", means="a security_barrier view", hint="read the tables of the view directly"
        ),
        "securityQuals": _only("<>", means="row-level security", hint=_NO_POLICIES),
        "joinmergedcols": _any(),
        "joinleftcols": _any(),
        "joinrightcols": _any(),
        "self_reference": _any(),
        "coltypes": _any(),
        "coltypmods": _any(),
        "colcollations": _any(),
        # For entries that are not relations; PostgreSQL expands views only after it stores the tree.
        "relid": _only("0", since=16),
        "relkind": _only("<>", since=16),
        "inh": _only("false"),
        **_PERMISSIONS,
    },
    "RANGETBLFUNCTION": {
        "funccoltypes": _any(),
        "funccoltypmods": _any(),
        "funccolcollations": _any(),
        "funcparams": _any(),
    },
    "ALIAS": {"colnames": _any()},
    "COMMONTABLEEXPR": {
        "aliascolnames": _any(),
        # Whether PostgreSQL materializes it affects the speed only.
        "ctematerialized": _any(),
        "location": _any(),
        "cterefcount": _any(),
        "ctecoltypes": _any(),
        "ctecoltypmods": _any(),
        "ctecolcollations": _any(),
    },
    "CTESEARCHCLAUSE": {"search_seq_column": _any(), "location": _any()},
    "CTECYCLECLAUSE": {"cycle_mark_column": _any(), "cycle_path_column": _any(), "location": _any()},
    "SETOPERATIONSTMT": {},
    "FROMEXPR": {},
    "RANGETBLREF": {},
    "JOINEXPR": {
        "isNatural": _any(),
        "usingClause": _any(),
    },
    "TARGETENTRY": {"resorigtbl": _any(), "resorigcol": _any()},
    "RTEPERMISSIONINFO": {
        "relid": _any(),
        "inh": _any(),
        "requiredPerms": _any(),
        "checkAsUser": _any(),
        "selectedCols": _any(),
        "insertedCols": _only("(b)"),
        "updatedCols": _only("(b)"),
    },
    "SORTGROUPCLAUSE": {
        # ORDER BY and GROUP BY read different fields of it.
        "eqop": _any(),
        "sortop": _any(),
        "reverse_sort": _any(since=18),
        "nulls_first": _any(),
        "hashable": _any(),
    },
    "WINDOWCLAUSE": {
        "name": _any(),
        "refname": _any(),
        "runCondition": _only("<>", since=15, until=16),
        # Which function compares an offset follows from the types, and so does the order that it assumes.
        "startInRangeFunc": _any(),
        "endInRangeFunc": _any(),
        "inRangeColl": _any(),
        "inRangeAsc": _any(),
        "inRangeNullsFirst": _any(),
        "copiedOrder": _any(),
    },
    "WINDOWFUNC": {"runCondition": _only("<>", since=17), "winagg": _any()},
    "VAR": {
        "varreturningtype": _only("0", since=18),
        "varnosyn": _any(),
        "varattnosyn": _any(),
    },
    "CONST": {},
    "SUBLINK": {"subLinkId": _any(), "operName": _any()},
    "PARAM": {},
    "OPEXPR": _OPERATOR,
    "DISTINCTEXPR": _OPERATOR,
    "NULLIFEXPR": _OPERATOR,
    "FUNCEXPR": {
        "funcvariadic": _only("false", means="a VARIADIC call", hint="list the arguments one by one"),
        "funcformat": _any(),
    },
    "RELABELTYPE": {"relabelformat": _any()},
    "COERCEVIAIO": {"coerceformat": _any()},
    "ARRAYCOERCEEXPR": {"coerceformat": _any()},
    "JSONCONSTRUCTOREXPR": {
        # For an aggregate, the call inside it holds the same: the function and its result type.
        "returning": _any(since=16),
        "absent_on_null": _any(since=16),
        "unique": _any(since=16),
    },
    "JSONEXPR": {
        "column_name": _any(since=17),
        "format": _any(since=17),
        # How PostgreSQL casts the item follows from the type.
        "use_io_coercion": _any(since=17),
        "use_json_coercion": _any(since=17),
    },
    "JSONVALUEEXPR": {"raw_expr": _any(since=16), "format": _any(since=16)},
    "JSONISPREDICATE": {},
    "JSONRETURNING": {},
    "JSONFORMAT": {"format_type": _any(), "encoding": _any(), "location": _any()},
    "JSONBEHAVIOR": {},
    "TABLEFUNC": {
        "ns_uris": _only("<>"),
        "ns_names": _only("<>"),
        "rowexpr": _only("<>"),
        "colexprs": _only("<>"),
        "coldefexprs": _only("<>"),
        # The expression of the document holds the same values.
        "passingvalexprs": _any(since=17),
        "notnulls": _only("(b)"),
        "colnames": _any(),
        "location": _any(),
    },
    "JSONTABLEPATHSCAN": {},
    "JSONTABLESIBLINGJOIN": {},
    "JSONTABLEPATH": {"name": _any(since=17)},
    "BOOLEXPR": {},
    "NULLTEST": {},
    "BOOLEANTEST": {},
    "CASEEXPR": {},
    "CASEWHEN": {"location": _any()},
    "CASETESTEXPR": {"collation": _any()},
    "COALESCEEXPR": {},
    "MINMAXEXPR": {},
    "SUBSCRIPTINGREF": {
        "refcontainertype": _any(),
        "refelemtype": _any(),
        "reftypmod": _any(),
        "refassgnexpr": _only("<>"),
    },
    "ROWEXPR": {"row_format": _any()},
    "ROWCOMPAREEXPR": {"opfamilies": _any()},
    "COLLATEEXPR": {},
    "SCALARARRAYOPEXPR": {"hashfuncid": _only("0"), "negfuncid": _only("0")},
    "ARRAYEXPR": {
        "array_typeid": _any(),
        "array_collid": _any(),
        "element_typeid": _any(),
        "multidims": _only("false", means="an array of arrays", hint="use an array of one dimension"),
        "list_start": _any(since=18),
        "list_end": _any(since=18),
        "location": _any(),
    },
    "GROUPINGSET": {"location": _any()},
    "GROUPINGFUNC": {
        "cols": _any(),
        "agglevelsup": _only("0", means="GROUPING() of an outer query", hint="compute it in a subquery in FROM"),
    },
    "AGGREF": {
        "aggtranstype": _any(),
        "aggargtypes": _any(),
        "aggvariadic": _only("false", means="a VARIADIC aggregate", hint="list the arguments one by one"),
        # The kind follows from its arguments and from the function itself.
        "aggkind": _any(),
        "aggpresorted": _only("false", since=16),
        "agglevelsup": _only("0", means="an aggregate of an outer query", hint="compute it in a subquery in FROM"),
        "aggsplit": _only("0"),
        "aggno": _only("-1"),
        "aggtransno": _only("-1"),
    },
}

UNSUPPORTED_KINDS: dict[str, tuple[str, str]] = {
    "CONVERTROWTYPEEXPR": ("a cast of a row", "write the columns one by one"),
    "COERCETODOMAIN": ("a cast to a domain", "cast to the domain's base type"),
    "FIELDSELECT": ("a field of a composite value", "store the field in a column of its own"),
    "XMLEXPR": ("an XML expression", "store the value in a column"),
    "SQLVALUEFUNCTION": (
        "CURRENT_DATE or a similar function",
        "its value changes although no row changes; compare with a column, or filter when you read the stream table",
    ),
    "NEXTVALUEEXPR": ("nextval", "number the rows when you read the stream table"),
}
"""Node kinds that are known and not supported: their SQL name and a hint. Any other kind is an unknown tree."""

RANGE_KINDS: dict[int, tuple[str, str]] = {
    7: ("a transition table", "it exists only inside a trigger; read a table"),
    8: ("an empty FROM", "name a table in FROM"),
}
"""Range-table entries that are known and not supported, by rtekind."""
