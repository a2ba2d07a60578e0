"""Builds the TPC-H workload at any scale: eight generated tables, 22 queries, and refresh functions from tpch.sql."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from tests.corpus.queries import FOLDER, TPCH
from tests.workloads.workload import HERE, StreamTableQuery, Workload, parse

TABLES = ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem")

SCALE = float(os.environ.get("TPCH_SCALE", "0.01"))
"""Scale 1 has 6 million items. Far below 0.01 the generator repeats keys."""

_PICK = """
CREATE OR REPLACE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
    'SELECT low + floor(random() * (high - low + 1))::int';
"""


def tpch(scale: float = SCALE) -> Workload:
    """Return the workload; stream tables are named as in the benchmark."""
    schema = (FOLDER / "schema.sql").read_text().split("CREATE TYPE mood")[0]
    transactions = parse("tpch", (HERE / "tpch.sql").read_text()).transactions
    queries = tuple(StreamTableQuery(name, query, "AUTO") for name, query in TPCH.items())
    return Workload("tpch", schema + _PICK, queries, transactions, lambda connection: fill(connection, scale))


def fill(connection: psycopg.Connection[Any], scale: float) -> None:
    """Generate the rows and load them."""
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run([tool, "csv", "-s", str(scale), "--output-dir", folder], check=True, capture_output=True)
        for table in TABLES:
            text = f"COPY {table} FROM STDIN (FORMAT csv, HEADER)".encode()
            with (
                connection.cursor() as cursor,
                Path(folder, f"{table}.csv").open("rb") as file,
                cursor.copy(text) as copy,
            ):
                while block := file.read(1 << 20):
                    copy.write(block)
