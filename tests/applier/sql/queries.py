"""The queries of the definition tests, by name; each is in the golden file that also says what comes of it."""

from __future__ import annotations

from tests.applier.plan.golden_file import FOLDER, queries

ACCEPTED_FILES = sorted((FOLDER / "accepted").glob("*.txt"))
"""One for each construct. Each query has a plan, and its Spark snapshot equals PostgreSQL."""

ACCEPTED = queries(*ACCEPTED_FILES)
REFUSED = queries(FOLDER / "refusals.txt")
"""PostgreSQL would run them and we refuse."""
NOT_ACCEPTED_BY_POSTGRES = queries(FOLDER / "errors.txt")
