"""Objects that somebody puts into a schema of the applier's search path take over none of its statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from applier.catalog.install import install_catalog
from applier.sinks.postgres.full_diff import FullResult
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.sinks.stream_tables import Bag, Connection, delta, executed, held, make, sink, zset

NOW = datetime(2024, 2, 29, tzinfo=UTC)
PG14 = 140_000

HOSTILE = """
DO $do$
DECLARE
    types text[] := '{int2,int4,int8,numeric,varchar,text,bpchar,name,oid,text[],varchar[],int8[],mood}';
    l text; r text; o text;
BEGIN
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION public.steal(%s, %s) RETURNS boolean LANGUAGE plpgsql AS'
                           ' ''BEGIN RAISE EXCEPTION $$stolen$$; END''', l, r);
            FOREACH o IN ARRAY '{=,<>,<,>,<=,>=,+,-,||}'::text[] LOOP
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.steal)',
                               o, l, r);
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH l IN ARRAY '{"generate_series(int4, int8)", "generate_series(int8, int4)", "unnest(oid[])",
                         "unnest(int2vector)", "format(text, text)", "concat(text, text)", "hash_record(record)",
                         "array_agg(text)", "array_agg(name)"}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION public.%s RETURNS SETOF int8 LANGUAGE plpgsql AS'
                       ' ''BEGIN RAISE EXCEPTION $$stolen$$; END''', l);
    END LOOP;
END $do$
"""


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
        yield connection


def states(number: int) -> Bag:
    """Some rows of which about half are new in each state; some keys are NULL."""
    rows: list[tuple[object, ...]] = [
        (f"k{i}" if i else None, "sad" if i % 2 else None, str(i * number), "x" * i) for i in range(number, number + 6)
    ]
    return Counter(rows)


@pytest.mark.parametrize("server", [None, PG14], ids=["merge", "without_merge"])
@pytest.mark.parametrize("key", [(0,), (0, 1), None], ids=["one", "two", "keyless"])
@pytest.mark.parametrize("driver_rows", [1, 1000], ids=["staged", "collected"])
def test_writes_use_the_operators_of_postgresql_alone(
    db: Connection, database: str, server: int | None, key: tuple[int, ...] | None, driver_rows: int
) -> None:
    columns = {"a": "varchar(20)", "m": "mood", "n": "numeric", "b": "varchar"}
    table = make(db, "st", columns, key)
    db.execute(HOSTILE.encode())
    to = sink(database, 4, server, driver_rows=driver_rows)
    before: Bag = Counter()
    for number in range(4):
        after = states(number)
        lsn_range = number * 10, number * 10 + 10
        if number % 2:
            full = FullResult(LsnRange(*map(Lsn, lsn_range)), zset(table, after))
            to.replace(table, full, NOW, executed("full"), acknowledged=Lsn(0)).lease().close()
        else:
            to.apply(table, delta(table, before, after, lsn_range), NOW, executed("change"))
        assert held(db, table) == after
        before = after
