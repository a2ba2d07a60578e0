"""Generates docs/sql.md from the allow-list of functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from applier.functions.aggregates.aggregate_entry import Additive, AggregateEntry, OfList, OfSet
from applier.functions.aggregates.aggregates import AGGREGATES
from applier.functions.allow_list import ENTRIES
from applier.functions.entry import CollationNeed, Entry
from deploy.pages.places import where

HEAD = """# SQL that is maintained incrementally

PostgreSQL itself analyses every query and resolves its names, types and functions. A query is accepted if each part of
it is known to mean the same in Spark as in PostgreSQL. Otherwise it is refused, with a reason code, the position in the
query and a hint. This page is generated from the code (`make docs`).

## Constructs

| accepted | notes |
|---|---|
| `SELECT` of expressions | any column type passes through unchanged |
| `FROM` tables, views, subqueries | views and subqueries are inlined; partitioned tables are one source |
| `JOIN … ON`, `USING`, comma, `CROSS JOIN` | inner joins of any number of tables |
| `LEFT`, `RIGHT`, `FULL JOIN` | any condition that raises no error except "out of range"; equalities make it fast |
| `WHERE`, `HAVING` | three-valued, as in SQL |
| `[NOT] EXISTS`, `[NOT] IN (SELECT …)`, `op ANY`, `op ALL (SELECT …)` | anywhere in `SELECT`, `WHERE`, `ON`, `HAVING` |
| `(SELECT …)` as a value or a row, `ARRAY(SELECT …)` | more than one row is an error; an array needs `ORDER BY` |
| correlated subqueries, `LATERAL` | of any form and depth; equalities in their own `WHERE` make them fast |
| `GROUPING SETS`, `ROLLUP`, `CUBE`, `GROUPING()` | up to 64 sets; each is a separate grouping |
| `GROUP BY` columns and expressions | keys whose equality is the same in Spark and PostgreSQL |
| aggregates, with `DISTINCT`, `FILTER`, `ORDER BY`, `WITHIN GROUP` | evaluated again for affected groups |
| user-defined aggregates | of listed functions or simple SQL functions; with `ORDER BY` if the order matters |
| `string_agg`, `array_agg` | with an `ORDER BY` that leaves no ties; otherwise the result is not defined |
| `UNION`, `INTERSECT`, `EXCEPT`, with and without `ALL` | columns whose common type changes no value |
| `CASE`, `COALESCE`, `IS [NOT] NULL`, `AND`, `OR`, `NOT` | |
| window functions | every frame, with `EXCLUDE`; affected partitions are evaluated again |
| `ORDER BY … LIMIT`, `OFFSET`, `WITH TIES`; `DISTINCT ON` | the order must be unique; a tie at the limit suspends |
| `VALUES`, no `FROM`, `ROWS FROM`, `WITH ORDINALITY` | `VALUES` may be `LATERAL` |
| set-returning functions | in `FROM` and in the select list; listed below |
| `WITH`, `WITH RECURSIVE`, with `SEARCH` and `CYCLE` | a recursion is maintained from its earlier rows |
| `jsonpath`, `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS`, `JSON_TABLE` | with literal paths without dates and floats |
| `JSON_ARRAY[AGG]`, `JSON_OBJECT[AGG]`, `IS JSON` | as `json` or `jsonb` |
| stream tables in `FROM` | replaced by their queries, so that all are at one frontier |

`pg-trickle-applier explain --query "…"` shows the plan of a query and how it is maintained.

**Correlated subqueries** are evaluated once for all outer rows. If equalities in its own `WHERE` connect a subquery to
the outer query, the subquery is evaluated alone and joined. Otherwise it is evaluated over the domain: the distinct
values of the outer columns that it reads.

**Set-returning functions** are `generate_series` (of integers and timestamps), `generate_subscripts`, `unnest`,
`string_to_table`, `regexp_split_to_table`, `jsonb_array_elements[_text]`, `jsonb_each[_text]`, `jsonb_object_keys`,
`jsonb_path_query`, `jsonb_to_record[set]` and `regexp_matches`. Any other function in `FROM` returns its one value.

**Floats.** Sums and averages of `float4` and `float8` are added in the order of the values. PostgreSQL adds in the
order in which it reads the rows, so its own last digits are not fixed and ours may differ. Negative zero is shown as
zero where floats are grouped, are the `min` or `max` of a group, or are in a list of percentiles.

**Numerics with different scales.** `COALESCE`, `CASE`, `GREATEST`, `LEAST` and `UNION` may combine numerics with
different numbers of decimals. Each value keeps its own number, as in PostgreSQL: `coalesce(sum(price), 0)` is `12.50`
or `0`. Only text can hold both, so such a column is text in Delta and on the topic.
`coalesce(sum(price), 0)::numeric(14,2)` is a `DECIMAL(14,2)` everywhere.
"""


HELD = """## Physical types, and where functions run

| PostgreSQL type | physical type | computed by |
|---|---|---|
| `int2`, `int4`, `int8`, `bool` | Spark's own types | Spark; casts from text and `gcd`, `lcm` in Java |
| `float4`, `float8` | Spark's own types | comparisons in Spark; arithmetic (range errors) and texts in Java |
| `numeric(p,s)` up to 38 digits | `DECIMAL(p,s)` | `+ - * %`, rounding, comparisons: Spark while 38 digits suffice |
| other `numeric`, quotients, NaN, infinities | PostgreSQL's text | Java |
| `text`, `varchar`, `char(n)` (trimmed) | `STRING` | Spark; case, padding, regular expressions in Java |
| `date`, `timestamp`, `timestamptz` | Spark's own types, years 1 to 9999 | comparisons in Spark, all else in Java |
| `interval`, `time`, `jsonb`, arrays | PostgreSQL's text | Java; `time` is compared in Spark |
| enums, `uuid` | PostgreSQL's text | equality and the order of `uuid` in Spark, the order of enums in Java |
| every other type | PostgreSQL's text | passes through |

*Java* means the functions of `applier/jvm`. Spark calls them directly, also from the code that it generates; no row
leaves the JVM. Functions that depend on the session (`timestamptz::date`, `date::text`) are computed in UTC
and with ISO dates.
"""


WHERE = """## Aggregates and functions

Each entry is an exact signature, as in `pg_proc`, and is fuzzed against PostgreSQL in the tests.

- *Runs in* is derived from the Spark SQL that the entry generates.
- *ns* is the CPU time of a call per row, without reading its arguments, over the edge cases and random values of the
  fuzz tests, among them numbers of fifty digits (`python -m tests.benchmarks.functions`). It was measured on a busy
  machine, so it is an order of magnitude. It is empty where it was not measured.
"""

COSTS: dict[str, int] = json.loads((Path(__file__).parent / "costs.json").read_text())
"""Nanoseconds per row, by signature."""


def _collation(entry: Entry) -> str:
    match entry.collation:
        case CollationNeed.NONE:
            return ""
        case CollationNeed.EQUALITY:
            return "any deterministic collation"
        case CollationNeed.ORDER:
            return "C, POSIX or C.UTF-8 collation only"
        case CollationNeed.LETTERS:
            return "C or POSIX collation only"


def page() -> str:
    """Return the text of the page."""
    calls = {name: entry for name, entry in sorted(AGGREGATES.items()) if not entry.internal}
    functions = {name: entry for name, entry in sorted(ENTRIES.items()) if not entry.internal}
    lines = [HEAD, HELD, _totals([*functions.values(), *calls.values()]), WHERE, "## Aggregates\n"]
    lines += ["| aggregate | computed from | runs in |", "|---|---|---|"]
    for name, aggregate in calls.items():
        shown = name.replace("()", "(*)")
        lines.append(f"| `{shown}` | {_computed_from(aggregate)} | {_where(aggregate)} |")
    lines += [
        "\n## Functions and operators\n",
        "| function | runs in | ns | raises | collation |",
        "|---|---|---|---|---|",
    ]
    for name, entry in functions.items():
        raises = "as PostgreSQL does" if entry.raises else ""
        cells = [f"`{name}`", _where(entry), _cost(name), raises, _collation(entry)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _where(entry: Entry | AggregateEntry) -> str:
    found = where(entry)
    java = ", ".join(f"`{name.removeprefix('pg_')}`" for name in found if name != "Spark")
    return " or ".join([*(("Spark",) if "Spark" in found else ()), *((f"Java: {java}",) if java else ())])


def _cost(name: str) -> str:
    cost = COSTS.get(name)
    return "" if cost is None else str(cost) if cost >= 10 else "< 10"


def _computed_from(entry: AggregateEntry) -> str:
    match entry.form:
        case Additive():
            return "sums" if entry.text_form is None else "sums; all values for numerics without a precision"
        case OfSet():
            return "the distinct values"
        case OfList():
            return "all values"


def _totals(entries: Sequence[Entry | AggregateEntry]) -> str:
    places = [where(entry) for entry in entries]
    spark = sum(place == ("Spark",) for place in places)
    both = sum("Spark" in place for place in places) - spark
    return (
        f"There are {len(entries)} functions, operators, casts and aggregates. {spark} use Spark's own functions,\n"
        f"{len(entries) - spark - both} call our Java functions, {both} use one or the other, depending on the"
        " physical type. None runs in Python.\n"
    )
