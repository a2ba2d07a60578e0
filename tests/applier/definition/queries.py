"""The queries of the definition tests, by name."""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _load(name: str) -> dict[str, str]:
    _, *parts = _HEADING.split((Path(__file__).parent / name).read_text())
    return {title: body.strip().removesuffix(";") for title, body in zip(parts[::2], parts[1::2], strict=True)}


TAKEN = (
    _load("taken.sql")
    | _load("taken_subqueries.sql")
    | _load("taken_groups.sql")
    | _load("taken_dependent.sql")
    | _load("taken_sets.sql")
    | _load("taken_own.sql")
    | _load("taken_json.sql")
    | _load("taken_scales.sql")
    | {"semicolon_and_comment": "SELECT id FROM customer /* all; of them */ ; -- done"}
)
REFUSED = _load("refused.sql")
NOT_ACCEPTED_BY_POSTGRES: dict[str, str] = {
    "syntax": "SELEC id FROM customer",
    "unknown_column": "SELECT nope FROM customer",
    "unknown_table": "SELECT id FROM nope",
    "ambiguous": "SELECT id FROM customer, orders",
    "two_statements": "SELECT id FROM customer; DROP TABLE customer",
    "insert": "INSERT INTO log VALUES (1)",
    "into": "SELECT id INTO other FROM customer",
    "data_modifying": "WITH gone AS (DELETE FROM log RETURNING *) SELECT * FROM gone",
    "duplicate_name": "SELECT id, id FROM customer",
    "parameter": "SELECT $1::int AS p FROM customer",
    "row": "SELECT ROW(id, name) AS r FROM customer",
    "empty": "",
    "comment_only": "-- nothing",
}
