"""Every workload is valid SQL and has the required size; failures are written, read and shrunk."""

from __future__ import annotations

import random
import re
from pathlib import Path

import psycopg
import pytest

from applier.sql.plan_query import plan_query
from tests.oracle import Judgement
from tests.workloads.fuzz import as_text, failed, read, shrink, write
from tests.workloads.generator import generate
from tests.workloads.workload import Workload, load, names, parse

REALISTIC = {"shop", "payments", "fraud"}


@pytest.mark.parametrize("name", names())
def test_a_workload_runs_in_postgres(name: str, database: str) -> None:
    workload = load(name)
    assert len(workload.stream_tables) >= (10 if name in REALISTIC else 4)
    chance = random.Random(1)
    with psycopg.connect(database, autocommit=True) as db:
        workload.create_tables(db)
        for table in workload.stream_tables:
            db.execute(f"CREATE VIEW {table.name} AS {table.query}".encode())
        for _ in range(30):
            db.execute(workload.transaction(chance).encode())
        for table in workload.stream_tables:
            db.execute(f"SELECT * FROM {table.name} LIMIT 1".encode())


def test_realistic_workloads_have_chains_and_diamonds() -> None:
    for name in REALISTIC:
        tables = load(name).stream_tables
        reads = {t.name: {o.name for o in tables if o.name in re.findall(r"\w+", t.query)} for t in tables}
        assert any(reads[source] for read in reads.values() for source in read), f"{name}: no chain of three"
        read_by = [sum(name in read for read in reads.values()) for name in reads]
        assert max(read_by) >= 2, f"{name}: nothing is read twice"


@pytest.mark.parametrize("seed", range(8))
def test_a_seed_gives_one_text_that_postgres_accepts(seed: int, database: str) -> None:
    workload = generate(seed)
    text = as_text(workload, "why")
    assert as_text(generate(seed), "why") == text
    read = parse("x", text)
    assert (read.stream_tables, len(read.transactions)) == (workload.stream_tables, len(workload.transactions))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(read.tables.encode())
        for table in read.stream_tables:
            db.execute(f"CREATE VIEW {table.name} AS {table.query}".encode())
        for _, transaction in read.transactions:
            try:
                db.execute(f"BEGIN; {transaction}; COMMIT".encode())
            except psycopg.errors.UniqueViolation:
                db.execute("ROLLBACK")


def test_every_random_query_is_accepted(database: str) -> None:
    """Otherwise a stream table would be suspended when the workload runs."""
    with psycopg.connect(database, autocommit=True) as db:
        for seed in range(40):
            workload = generate(seed)
            db.execute("DROP SCHEMA IF EXISTS random CASCADE; CREATE SCHEMA random; SET search_path = random")
            db.execute(workload.tables.encode())
            for table in workload.stream_tables:
                plan_query(db, table.query, "random")
                db.execute(f"CREATE TABLE {table.name} AS {table.query}".encode())


def test_a_failure_is_written_and_read_again(tmp_path: Path) -> None:
    verdict = Judgement(tables=2, suspended={"zz_q0": "it says why"})
    workload = generate(7)
    assert failed(workload, verdict) and failed(workload, Judgement(tables=2))
    assert not failed(workload, Judgement(tables=len(workload.stream_tables)))
    path = write(tmp_path / "new", workload, verdict)
    assert read(path).stream_tables == workload.stream_tables and "it says why" in path.read_text()


def test_a_failure_is_shrunk_to_what_it_needs() -> None:
    workload = generate(7)
    guilty_query, guilty_transaction = workload.stream_tables[1].name, workload.transactions[5][1]

    def fails(smaller: Workload) -> bool:
        return any(t.name == guilty_query for t in smaller.stream_tables) and any(
            text == guilty_transaction for _, text in smaller.transactions
        )

    small = shrink(workload, fails)
    assert guilty_query in [t.name for t in small.stream_tables] and len(small.stream_tables) <= 2
    assert [text for _, text in small.transactions] == [guilty_transaction]
