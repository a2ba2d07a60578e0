"""Entries for composite values, which are stored as PostgreSQL's text: row constructors and whole rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

from applier.functions.entry import Entry, Fixed, io_cast, literal_text, template
from applier.functions.output_text import output_text_sql
from applier.plan.expr import Call, Expr

ROW_OF = "row_of(any)"
"""Not a PostgreSQL function: a literal with the field names, then the fields."""
ROW_IN = "row_in(record,_record)"
"""Whether an array of rows contains a row, compared by their texts."""


def fields_of(row: Call) -> tuple[list[str], tuple[Expr, ...]]:
    """Return the names and values of the fields."""
    names, *values = row.args
    return literal_text(names).split("\x00") if values else [], tuple(values)


def _physical_type(args: tuple[Expr, ...]) -> str:
    for arg in args[1:]:
        output_text_sql(arg, "")
    return "string"


def _write_row(call: Call, args: Sequence[str]) -> str:
    fields = ", ".join(output_text_sql(arg, sql) for arg, sql in zip(call.args[1:], args[1:], strict=True))
    return f"pg_rows_of(CAST(array({fields}) AS array<string>))"


ENTRIES: tuple[Entry, ...] = (
    Entry(
        ROW_IN, lambda args: "boolean", template("pg_nullaware_compare_all('text', '=', {0}, {1}, FALSE)"), (),
        internal=True,
    ),
    Entry(ROW_OF, _physical_type, _write_row, (), strict=False, internal=True),
    Entry(
        io_cast("record", "text"), lambda args: "string", template("{0}"),
        (("text", "int4", "bool"), ("numeric", "char(6)", Fixed("NULL")), ("text[]", "jsonb", "timestamp"),
         ("float8", "text")),
        variadic=True, spelling="ROW({all})::text",
    ),
)  # fmt: skip
