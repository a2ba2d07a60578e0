"""The queries of the SQL tests, by name; each is in the golden file that also has its expected result."""

from __future__ import annotations

from tests.applier.plan.golden_file import FOLDER, queries

ACCEPTED_FILES = sorted((FOLDER / "accepted").glob("*.txt"))
"""One query for each construct. Each has a plan, and its Spark snapshot equals PostgreSQL's result."""

ACCEPTED = queries(*ACCEPTED_FILES)
REFUSED = queries(FOLDER / "refusals.txt")
"""Queries that PostgreSQL would run and that are refused."""
NOT_ACCEPTED_BY_POSTGRES = queries(FOLDER / "errors.txt")
