"""Reads the change-buffer tables independently: plain SQL, without the product's own code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.cdc_consumer.topic_reader import Content, Image, Row, float_text, position

Connection = psycopg.Connection[tuple[Any, ...]]

FLOATS = {"float4", "float8"}


def wait_for_frontier(connection: Connection, slot: str, target: int, still: Callable[[], bool]) -> None:
    query = "SELECT record ->> 'frontier' FROM pgtrickle_changes.progress WHERE key = %s"
    while True:
        row = connection.execute(query, (slot,)).fetchone() if _exists(connection) else None
        if row is not None and position(row[0]) >= target:
            return
        assert still(), f"the frontier did not reach {target:X}"
        time.sleep(0.05)


def _exists(connection: Connection) -> bool:
    return connection.execute("SELECT to_regclass('pgtrickle_changes.progress') IS NOT NULL").fetchone() == (True,)


def read_buffers(connection: Connection, slot: str) -> Content:
    """Return all rows of the buffer tables, from one snapshot."""
    content = Content()
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SET LOCAL search_path = pg_catalog")
        for (record,) in connection.execute("SELECT record FROM pgtrickle_changes.progress WHERE slot = %s", (slot,)):
            (content.progress if record["kind"] == "progress" else content.captures).append(record)
        for (record,) in connection.execute(
            "SELECT record FROM pgtrickle_changes.control WHERE slot = %s ORDER BY lsn, seq", (slot,)
        ):
            content.control.append(record)
        versions = connection.execute(
            "SELECT relid, version, source_schema, source_table, columns, avro_schema::text "
            "FROM pgtrickle_changes.versions ORDER BY relid, version"
        ).fetchall()
        by_relid: dict[int, dict[int, tuple[list[str], list[str]]]] = {}
        names: dict[int, str] = {}
        for relid, version, schema, table, columns, avro in versions:
            bases = [f["pg_base"] for f in json.loads(avro)["fields"][-1]["type"][1]["fields"]]
            by_relid.setdefault(relid, {})[version] = (columns, bases)
            names[relid] = f"{schema}.{table}"
        for relid, known in by_relid.items():
            content.rows[names[relid]] += _rows(connection, relid, known)
    return content


def _rows(connection: Connection, relid: int, known: dict[int, tuple[list[str], list[str]]]) -> list[Row]:
    found: list[Row] = []
    query = f"COPY (SELECT * FROM pgtrickle_changes.changes_{relid} ORDER BY 1, 2) TO STDOUT"
    names = [
        name
        for (name,) in connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            (f"pgtrickle_changes.changes_{relid}",),
        )
    ]
    with connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
        for texts in copy.rows():
            record = dict(zip(names, texts, strict=True))
            columns, bases = known[int(record["__pgt_version"] or 0)]
            op = str(record["__pgt_op"])
            image: Image = ()
            if op != "T" or record.get("__pgt_leaf") is not None:
                image = tuple(_normal(b, record[c]) for c, b in zip(columns, bases, strict=True))
            found.append(
                Row(
                    op,
                    position(str(record["__pgt_lsn"])),
                    int(record["__pgt_seq"] or 0),
                    image,
                    tuple(columns),
                    _ordinals(record["__pgt_partial"]) or frozenset(),
                    _ordinals(record["__pgt_changed_cols"]),
                    record["__pgt_snapshot"] == "t",
                    None,
                    0,
                    len(found),
                    0,
                )
            )
    return found


def _normal(base: str, text: str | None) -> str | None:
    return float_text(base, float(text)) if text is not None and base in FLOATS else text


def _ordinals(mask: str | None) -> frozenset[int] | None:
    if mask is None:
        return None
    bits = int.from_bytes(bytes.fromhex(mask.removeprefix("\\x")), "little")
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)
