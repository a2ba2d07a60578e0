"""`pg-trickle-applier explain`: the report on a query, and on one that cannot be maintained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from applier.cli import main
from tests.applier.plan.golden_file import check_text
from tests.applier.sql.shop import SCHEMA

GOLDEN = Path(__file__).parent / "reports"

QUERIES = {
    "followed": "SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM orders o JOIN customer c"
    " ON c.id = o.customer_id WHERE o.state = 'open' GROUP BY c.region",
    "in_full": "SELECT id, name, rank() OVER (ORDER BY credit) AS r FROM customer WHERE EXISTS (SELECT 1 FROM log)"
    " ORDER BY credit DESC, id LIMIT 3",
    "partitioned": "SELECT region, id, row_number() OVER (PARTITION BY region ORDER BY born, id) AS n FROM customer",
    "refused": "SELECT id,\n  row_number() OVER (ORDER BY name) AS n\nFROM customer",
    "refused_for_good": "SELECT id, random() AS luck FROM customer",
    "wrong": "SELECT nope FROM customer",
}


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("SET search_path = shop")
        connection.execute(SCHEMA)
    yield database


def test_reports_are_as_reviewed(shop: str) -> None:
    for name, query in QUERIES.items():
        arguments = ["explain", "--query", query, "--search-path", "shop", "--database-url", shop]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == (1 if name.startswith(("refused", "wrong")) else 0), result.output
        check_text(GOLDEN / f"{name}.txt", f"{query}\n\n{result.output}")


@pytest.mark.parametrize("arguments", [[], ["--query", "SELECT 1 AS one", "--name", "x"]])
def test_one_of_query_and_name_is_needed(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["explain", *arguments])
    assert result.exit_code == 1
    assert "either --query or --name" in result.output


def test_a_stream_table_by_its_name(shop: str) -> None:
    assert CliRunner().invoke(main, ["install", "--database-url", shop]).exit_code == 0
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("SET search_path = shop")
        connection.execute("SELECT pgtrickle.create_stream_table('busy', 'SELECT id, amount FROM orders')")
    for name in ("busy", "shop.busy"):
        result = CliRunner().invoke(main, ["explain", "--name", name, "--database-url", shop])
        assert result.exit_code == 0, result.output
        assert "Scan shop.orders reads id, amount" in result.output
    missing = CliRunner().invoke(main, ["explain", "--name", "lazy", "--database-url", shop])
    assert missing.exit_code == 1
    assert "there is no stream table lazy" in missing.output
