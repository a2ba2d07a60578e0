"""The allow-list -> docs/sql.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from applier.functions.aggregates.aggregate_entry import Additive, AggregateEntry, OfList, OfSet
from applier.functions.aggregates.aggregates import AGGREGATES
from applier.functions.allow_list import ENTRIES
from applier.functions.entry import CollationNeed, Entry
from deploy.pages.places import where

HEAD = """# SQL that can be kept

PostgreSQL analyses every query; what reaches the plan is resolved by the real thing. A query is accepted when each
part of it is known to mean the same in Spark as in PostgreSQL, and refused otherwise, with a reason code, the place in
the query and a hint. This page is generated from the code (`make docs`).

## Constructs

| accepted | notes |
|---|---|
| `SELECT` of expressions | any column type passes through unchanged |
| `FROM` tables, views, subqueries | views and subqueries are inlined; partitioned tables are one source |
| `JOIN … ON`, `USING`, comma, `CROSS JOIN` | inner joins of any number of tables |
| `LEFT`, `RIGHT`, `FULL JOIN` | any condition that raises no error but "out of range"; equalities make it fast |
| `WHERE`, `HAVING` | three-valued, as in SQL |
| `[NOT] EXISTS`, `[NOT] IN (SELECT …)`, `op ANY`, `op ALL (SELECT …)` | anywhere in `SELECT`, `WHERE`, `ON`, `HAVING` |
| `(SELECT …)` as a value, a row of them, `ARRAY(SELECT …)` | more than one row is an error; an array needs an order |
| correlated subqueries, `LATERAL` | of any form and depth; equalities in their own `WHERE` make them fast |
| `GROUPING SETS`, `ROLLUP`, `CUBE`, `GROUPING()` | up to 64 sets, each a grouping of its own |
| `GROUP BY` columns and expressions | keys whose equality Spark shares with PostgreSQL |
| aggregates, with `DISTINCT`, `FILTER`, `ORDER BY`, `WITHIN GROUP` | recomputed for the groups a change touches |
| aggregates of users | of functions that are listed or simple SQL; with `ORDER BY` where the order counts |
| `string_agg`, `array_agg` | with an `ORDER BY` that leaves no ties: else there is no one right answer |
| `UNION`, `INTERSECT`, `EXCEPT`, with and without `ALL` | columns that meet in one type without a change of value |
| `CASE`, `COALESCE`, `IS [NOT] NULL`, `AND`, `OR`, `NOT` | |
| window functions | every frame, with `EXCLUDE`; partitions a change touches are computed anew |
| `ORDER BY … LIMIT`, `OFFSET`, `WITH TIES`; `DISTINCT ON` | the order must decide; a tie at the border suspends |
| `VALUES`, no `FROM`, `ROWS FROM`, `WITH ORDINALITY` | `VALUES` may be `LATERAL` |
| functions that make rows | in `FROM` and in the select list; which, see below |
| `WITH`, also `RECURSIVE`, with `SEARCH` and `CYCLE` | a recursion is followed by the rows it derived before |
| `jsonpath`, `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS`, `JSON_TABLE` | of literal paths without dates and floats |
| `JSON_ARRAY[AGG]`, `JSON_OBJECT[AGG]`, `IS JSON` | as `json` or `jsonb` |
| stream tables in `FROM` | read as their queries, so that all stand at one frontier |

`EXPLAIN` for stream tables is `pg-trickle-applier explain --query "…"`.

A correlated subquery is computed once for all rows that ask it: its rows by themselves where equalities in its own
`WHERE` connect them, else over the distinct values it is asked with. Functions that make rows are `generate_series` (of
integers and timestamps), `generate_subscripts`, `unnest`, `string_to_table`, `regexp_split_to_table`,
`jsonb_array_elements[_text]`, `jsonb_each[_text]`, `jsonb_object_keys`, `jsonb_path_query`,
`jsonb_to_record[set]` and `regexp_matches`; any other function stands in `FROM` for its one value.

Sums and averages of `float4` and `float8` are added up in the order of the values; PostgreSQL adds in the order it
meets the rows, so its own last digits are not fixed and ours may be others. Where floats are grouped, or are the `min`
or `max` of a group, or stand in a list of percentiles, negative zero is shown as zero.

Where `COALESCE`, `CASE`, `GREATEST`, `LEAST` or `UNION` bring numerics with different numbers of decimals together,
each keeps its own, as in PostgreSQL: `coalesce(sum(price), 0)` is `12.50` or `0`. Only text holds both, so such a
column is text in Delta and on the topic; `coalesce(sum(price), 0)::numeric(14,2)` is a `DECIMAL(14,2)` everywhere.
"""


HELD = """## How values are held, and where functions run

| PostgreSQL | held as | computed by |
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

Java means the functions of `applier/jvm`, called by Spark directly, also from the code it generates; no row leaves the
JVM. Functions that look at the session (`timestamptz::date`, `date::text`) are computed in UTC and with ISO dates.
"""


WHERE = """## What runs where

By exact signature, as in `pg_proc`; each is fuzzed against PostgreSQL in the tests. *Runs in* is read off the Spark SQL
that the entry writes. *ns* is the CPU time of a call per row, beyond reading its arguments, over the edge and random
values of the fuzz tests, among them numbers of fifty digits (`python -m tests.benchmarks.functions`); measured on a
busy machine, so an order of magnitude, and empty where it was not measured.
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
    """The whole page."""
    calls = {name: entry for name, entry in sorted(AGGREGATES.items()) if not entry.internal}
    functions = {name: entry for name, entry in sorted(ENTRIES.items()) if not entry.internal}
    lines = [HEAD, HELD, _totals([*functions.values(), *calls.values()]), WHERE, "## Aggregates\n"]
    lines += ["| aggregate | computed from | runs in |", "|---|---|---|"]
    for name, aggregate in calls.items():
        shown = name.replace("()", "(*)")
        lines.append(f"| `{shown}` | {_kept(aggregate)} | {_where(aggregate)} |")
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


def _kept(entry: AggregateEntry) -> str:
    match entry.form:
        case Additive():
            return "sums" if entry.text_form is None else "sums; all values where numerics have no size"
        case OfSet():
            return "the different values"
        case OfList():
            return "all values"


def _totals(entries: Sequence[Entry | AggregateEntry]) -> str:
    places = [where(entry) for entry in entries]
    spark = sum(place == ("Spark",) for place in places)
    both = sum("Spark" in place for place in places) - spark
    return (
        f"Of {len(entries)} functions, operators, casts and aggregates {spark} are written in Spark's own functions,\n"
        f"{len(entries) - spark - both} call ours in Java, {both} do one or the other depending on how the values are"
        " held. None runs in Python.\n"
    )
