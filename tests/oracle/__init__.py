"""Compares a stream table in PostgreSQL, in Delta and replayed from its topic with its query, as PostgreSQL runs it."""

from tests.oracle.judge import Difference, Judgement, judge
from tests.oracle.readers import (
    HEADER,
    Bag,
    Row,
    TopicReplay,
    assert_same,
    eventually,
    in_delta,
    in_postgres,
    query_result,
)

__all__ = [
    "HEADER",
    "Bag",
    "Difference",
    "Judgement",
    "Row",
    "TopicReplay",
    "assert_same",
    "eventually",
    "in_delta",
    "in_postgres",
    "judge",
    "query_result",
]
