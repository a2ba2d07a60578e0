"""Calls of set-returning functions -> TableFunctions that an Unnest node evaluates.

Most of them list the elements of an array that another function returns: what is proven for that function is proven for
its elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from applier.functions.allow_list import ENTRIES
from applier.functions.entry import UnsuitableArguments
from applier.functions.json.json_members import FIELD, FIELD_TYPES, MEMBERS_FUNCTION, listing
from applier.functions.json.jsonpath import ARRAY_OF_ITEMS, SET_OF_ITEMS
from applier.functions.output_text import input_physical_type
from applier.functions.text.java_text import MATCHES, MATCHES_BY_FLAGS
from applier.plan.expr import INT8, TEXT, Call, Const, Expr, ValueType
from applier.plan.nodes import SetReturningFunction, TableFunction
from applier.sql.bind.expressions import ExpressionBinder
from applier.sql.catalog_snapshot import CatalogSnapshot
from applier.sql.pg_tree import query_tree, tree, walk
from applier.sql.refusal import Reason, Refused
from applier.sql.typing.interval_literals import literal_micros
from applier.sql.typing.lookup import check_collation
from applier.sql.typing.unify import unify
from shared_schema.pg_types import PgType

_SERIES = frozenset(f"generate_series({','.join([name] * n)})" for name in ("int4", "int8") for n in (2, 3))
_TIME_SERIES = frozenset(f"generate_series({name},{name},interval)" for name in ("timestamp", "timestamptz"))
_NUMBERS = re.compile(r"[+-]?\d[\d:.]*")
_ARRAYS = {
    "text": PgType(1009, -1, "_text", "text[]"),
    "jsonb": PgType(3807, -1, "_jsonb", "jsonb[]"),
}
_HINT = "store its rows in a table; generate_series, unnest and functions that list an array or a jsonb are supported"

_LISTED_JSON: dict[str, tuple[tuple[str, PgType | None], ...]] = {
    "jsonb_object_keys(jsonb)": (("keys", TEXT.pg),),
    "jsonb_each(jsonb)": (("keys", TEXT.pg), ("values", None)),
    "jsonb_each_text(jsonb)": (("keys", TEXT.pg), ("value_texts", TEXT.pg)),
    "jsonb_array_elements_text(jsonb)": (("element_texts", TEXT.pg),),
}
"""By function, for each of its columns: what is listed, and the column's type; None is the type of the argument."""

_SPLIT = {
    "regexp_split_to_table(text,text)": "regexp_split_to_array(text,text)",
    "regexp_split_to_table(text,text,text)": "regexp_split_to_array(text,text,text)",
    "string_to_table(text,text)": "string_to_array(text,text)",
    "string_to_table(text,text,text)": "string_to_array(text,text,text)",
}
"""By function, the function that returns the same texts as an array."""
_MATCHES = {"regexp_matches(text,text)": MATCHES, "regexp_matches(text,text,text)": MATCHES_BY_FLAGS}


class TableFunctions:
    """Binds calls of set-returning functions; `expressions` binds their arguments."""

    def __init__(self, catalog: CatalogSnapshot, expressions: ExpressionBinder) -> None:
        self._catalog = catalog
        self._expressions = expressions

    def bind_entry(self, entry: query_tree.FunctionEntry) -> tuple[TableFunction, ...]:
        """Bind the functions of a FROM item: one TableFunction per column."""
        found: list[TableFunction] = []
        for place, (call, width) in enumerate(zip(entry.calls, entry.widths, strict=True)):
            columns = entry.records[place] if entry.records else ()
            functions = self._bind_record_columns(call, columns) if columns else self.bind_call(call)
            if len(functions) != width:
                raise Refused(
                    Reason.CONSTRUCT, "a function with several columns in FROM", hint=_HINT, token=walk.place_of(call)
                )
            found += functions
        return tuple(found)

    def bind_call(self, call: tree.Expression) -> tuple[TableFunction, ...]:
        """Bind one call: a TableFunction per column; a plain value is a set of one row."""
        if not isinstance(call, tree.SetReturningExpr):
            value = self._expressions.bind(call)
            return (TableFunction(SetReturningFunction.LISTED, (value,), value.type),)
        signature = self._catalog.function(call.function).signature
        pg = self._catalog.pg_type(call.type, -1)
        if signature in _LISTED_JSON:
            (json,) = (self._expressions.bind(arg) for arg in call.args)
            return tuple(_list_json(what, json, pg or json.type.pg) for what, pg in _LISTED_JSON[signature])
        if signature in _SPLIT:
            array = tree.FuncExpr(
                self._catalog.built_in(_SPLIT[signature]),
                0,
                _ARRAYS["text"].oid,
                0,
                call.input_collation,
                call.args,
                call.at,
            )
            return (_list_elements(self._expressions.bind(array), pg),)
        if signature in _MATCHES:
            return (self._bind_matches(call, _MATCHES[signature], pg),)
        if signature == SET_OF_ITEMS:
            function = self._catalog.built_in(ARRAY_OF_ITEMS)
            array = tree.FuncExpr(function, 0, call.type, 0, 0, call.args, call.at)
            return (
                TableFunction(SetReturningFunction.MEMBERS, (self._expressions.bind(array),), ValueType.of_column(pg)),
            )
        if signature == "generate_subscripts(anyarray,int4)":
            bounds = (self._compile_bound(name, call) for name in ("array_lower", "array_upper"))
            return (TableFunction(SetReturningFunction.SERIES, tuple(bounds), ValueType.of_column(pg)),)
        return (self._bind_plain(call, signature, pg, [self._expressions.bind(arg) for arg in call.args]),)

    def _bind_record_columns(
        self, call: tree.Expression, columns: Sequence[tuple[str, int, int]]
    ) -> tuple[TableFunction, ...]:
        """Bind a function with a column definition list: each column is the elements of an array."""
        rows = isinstance(call, tree.SetReturningExpr)
        known = (
            self._catalog.function(call.function).signature
            if isinstance(call, tree.SetReturningExpr | tree.FuncExpr)
            else ""
        )
        if known != ("jsonb_to_recordset(jsonb)" if rows else "jsonb_to_record(jsonb)"):
            hint = "use jsonb_to_recordset or jsonb_to_record, or read the fields with ->"
            raise Refused(
                Reason.FUNCTION, "this function with a column definition list", hint=hint, token=walk.place_of(call)
            )
        (json,) = (self._expressions.bind(arg) for arg in walk.arguments(call))
        return tuple(self._bind_record_column(json, column, walk.place_of(call), rows=rows) for column in columns)

    def _bind_record_column(
        self, json: Expr, column: tuple[str, int, int], at: int | None, *, rows: bool
    ) -> TableFunction:
        name, type_, typmod = column
        pg = self._catalog.pg_type(type_, typmod)
        sized = pg.precision_scale if pg.name == "numeric" else None
        args = (json, Const(name, TEXT), Const(":".join(map(str, (pg.name, *(sized or ())))), TEXT))
        if pg.name not in FIELD_TYPES or (typmod >= 0 and sized is None) or self._catalog.type(type_).base != type_:
            hint = "declare the column as text, integer, numeric, bool or jsonb, and cast it"
            raise Refused(Reason.TYPE, f"a column definition list with {pg.display}", hint=hint, token=at)
        signature = MEMBERS_FUNCTION if rows else FIELD
        array = Call(signature, args, ValueType(PgType(0, -1, f"_{pg.name}", f"{pg.display}[]"), "string"))
        return TableFunction(
            SetReturningFunction.ELEMENTS,
            (array,),
            ValueType(pg, pg.spark_ddl if sized else input_physical_type(pg.name)),
        )

    def _bind_matches(self, call: tree.SetReturningExpr, signature: str, pg: PgType) -> TableFunction:
        """Bind regexp_matches: each match is an array of its groups, one element of an array of texts."""
        entry, args = ENTRIES[signature], tuple(self._expressions.bind(arg) for arg in call.args)
        check_collation(entry, call, self._catalog)
        try:
            physical_type = entry.physical_type(args)
        except UnsuitableArguments as error:
            construct = f"regexp_matches over {error.problem}"
            raise Refused(Reason.TYPE, construct, hint=error.hint, token=call.at) from error
        return _list_elements(Call(signature, args, ValueType(_ARRAYS["text"], physical_type)), pg)

    def _compile_bound(self, name: str, call: tree.SetReturningExpr) -> Expr:
        function = self._catalog.built_in(f"{name}(anyarray,int4)")
        return self._expressions.bind(tree.FuncExpr(function, 0, call.type, 0, 0, call.args, call.at))

    def _bind_plain(
        self, call: tree.SetReturningExpr, signature: str, pg: PgType, args: Sequence[Expr]
    ) -> TableFunction:
        if signature in _SERIES:
            return TableFunction(SetReturningFunction.SERIES, tuple(args), ValueType.of_column(pg))
        if signature in _TIME_SERIES:
            # With a time zone a day has 24 hours too, because every query is analysed in UTC.
            function, step = _step(args[2], call)
            return TableFunction(function, (*args[:2], step), ValueType.of_column(pg))
        if signature == "jsonb_array_elements(jsonb)":
            return TableFunction(SetReturningFunction.MEMBERS, tuple(args), ValueType.of_column(pg))
        if signature == "unnest(anyarray)" and len(args) == 1 and args[0].type.pg.name == f"_{pg.name}":
            return _list_elements(args[0], pg)
        if signature == "unnest(anyarray)" and args and pg.name == args[0].type.pg.name:
            try:
                listed = unify(args)
            except UnsuitableArguments as error:
                raise Refused(Reason.TYPE, f"unnest of {error.problem}", hint=_HINT, token=call.at) from error
            return TableFunction(SetReturningFunction.LISTED, listed, ValueType(pg, listed[0].type.spark))
        raise Refused(Reason.FUNCTION, f"the set-returning function {signature}", hint=_HINT, token=call.at)


def _list_elements(array: Expr, pg: PgType) -> TableFunction:
    return TableFunction(SetReturningFunction.ELEMENTS, (array,), ValueType(pg, input_physical_type(pg.name)))


def _list_json(what: str, json: Expr, element: PgType) -> TableFunction:
    signature = listing(what)
    array = Call(signature, (json,), ValueType(_ARRAYS[element.name], ENTRIES[signature].physical_type((json,))))
    return _list_elements(array, element)


def _step(step: Expr, call: tree.SetReturningExpr) -> tuple[SetReturningFunction, Const]:
    micros = literal_micros(step)
    if micros is not None:
        return SetReturningFunction.MOMENTS, Const(micros, INT8)
    if isinstance(step, Const) and len({number.startswith("-") for number in _NUMBERS.findall(str(step.value))}) == 1:
        return SetReturningFunction.CALENDAR, step
    hint = "write the step as a literal whose parts all have the same sign"
    raise Refused(
        Reason.CONSTRUCT, "generate_series by a step that is computed or has mixed signs", hint=hint, token=call.at
    )
