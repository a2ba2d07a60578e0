"""docs/sources.md is true line by line: each example is run, what the page says happens, and what it says mends it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence

import psycopg
import pytest

from applier.refresh.check import check_stream_table
from deploy.local.stack import Stack
from tests import oracle
from tests.life.ddl_actions import ACTIONS
from tests.life.sources_page import Line, lines, objects, table_rows

Connection = psycopg.Connection[tuple[object, ...]]

LONG = bool(os.environ.get("PG_TRICKLE_LONG_TESTS"))
"""Whether every line is run; otherwise one batch is."""

BATCHES = 8
"""The stream tables of a batch are there together, and have one time limit."""

ROWS = """
INSERT INTO t (id, v, w, m, c, s)
    SELECT i, i, 10 * i, (ARRAY['sad', 'ok'])[1 + i % 2]::mood, chr(96 + i), 's' FROM generate_series(1, 9) i;
INSERT INTO q SELECT i, row(i, i)::pair, i FROM generate_series(1, 9) i;
INSERT INTO p SELECT i, i FROM generate_series(0, 199, 20) i;
INSERT INTO r SELECT 300 + i, i % 3 FROM generate_series(1, 9) i;
INSERT INTO filled VALUES (200, 1), (250, 2);
INSERT INTO shelf.box VALUES (1, 1), (2, 2);
"""

ACCEPTED = {"refused": ("nothing",)}
"""What the page says -> what is seen of the stream table, where that is not the same word."""

_STATE = """
SELECT s.status, coalesce(s.last_error_code, ''), coalesce(s.last_error_message, ''), coalesce(s.last_error_hint, ''),
    EXISTS (SELECT FROM pgtrickle.health_check() h
            WHERE h.check_name = 'error_tables' AND strpos(h.detail, format('%%s.%%s', s.pgt_schema, s.pgt_name)) > 0),
    s.pgt_id
FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_schema = %s AND s.pgt_name = 'st'
"""
_TRACES = """
SELECT count(*) FILTER (WHERE h.refresh_reason = 'AUTO_SCHEMA_EVOLUTION'),
    count(*) FILTER (WHERE h.action LIKE 'FULL%%' AND h.refresh_reason NOT IN ('QUERY_REFUSED', 'MODE')),
    (SELECT count(*) FROM pgtrickle.pgt_recaptures c JOIN pgtrickle.pgt_dependencies d USING (source_relid)
     WHERE d.pgt_id = s.pgt_id)
FROM pgtrickle.pgt_stream_tables s LEFT JOIN pgtrickle.pgt_refresh_history h
    ON h.pgt_id = s.pgt_id AND h.refresh_id > %s
WHERE s.pgt_schema = %s AND s.pgt_name = 'st' GROUP BY s.pgt_id
"""


def test_every_line_of_the_tables_is_run() -> None:
    found = lines()
    assert len(found) == table_rows() > 80
    assert len({line.change for line in found}) == len(found)
    assert {line.expected for line in found} == {"nothing", "followed", "suspended", "refused", "stopped"}
    assert [a.change for a in found if bool(a.remedy) != a.outcome.startswith(("suspended", "stopped"))] == []


def test_the_fuzz_knows_every_line() -> None:
    """A line that is added here is added there, and what the fuzz does is said here."""
    known = {change for action in ACTIONS.values() for change in action.lines}
    assert known == {line.change for line in lines()}


def build(db: Connection, chosen: Sequence[Line]) -> None:
    """Create the objects and the stream table of every line; the waits for them overlap."""
    for line in chosen:
        db.execute(f"CREATE SCHEMA {line.schema}; SET search_path = {line.schema}".encode())
        db.execute(line.own(objects() + ROWS).encode())
        db.execute(
            "SELECT pgtrickle.create_stream_table('st', %s, refresh_mode => %s, auto_evolve => %s)",
            (line.own(line.query), line.mode, line.evolves),
        )
    db.execute("RESET search_path")
    for line in chosen:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '240 s')", (line.table.quoted,))


def run(db: Connection, line: Line, text: str) -> str:
    """Run the statements of a cell -> '' or the error of the first that PostgreSQL refuses."""
    db.execute(f"SET search_path = {line.schema}".encode())
    try:
        for statement in line.statements(text):
            db.execute(statement.encode())
    except psycopg.Error as error:
        return str(error).splitlines()[0]
    finally:
        db.execute("RESET search_path")
    return ""


def outcome(db: Connection, line: Line, since: int, limit_s: int = 120) -> str:
    """What happened to a stream table: 'suspended', how it stayed equal, or what is wrong with it."""
    try:
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => make_interval(secs => %s))", (line.table.quoted, limit_s))
        checked = check_stream_table(db, line.table)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return "suspended"
    except psycopg.errors.QueryCanceled:
        return "stuck"
    except psycopg.errors.InsufficientPrivilege:
        # The owner may not read its sources any more; the superuser may.
        return "nothing" if count_differences(db, line) == 0 else "different"
    except psycopg.Error as error:
        return f"not checked: {error}"
    if not checked.equal:
        return f"different: {checked}"
    followed, full, copies = db.execute(_TRACES, (since, line.schema)).fetchall()[0]
    if followed:
        return "followed"
    return "nothing" if not full and not copies else f"silently {full} times full and copied {copies} times"


def await_following(db: Connection, line: Line, since: int) -> str:
    began = time.monotonic()
    while (happened := outcome(db, line, since)) == "nothing" and time.monotonic() - began < 20:
        time.sleep(0.5)
    return happened


def count_differences(db: Connection, line: Line) -> int:
    """Compare a stream table with its query, as the superuser."""
    found = db.execute("SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = %s", (line.schema,))
    query = str(found.fetchall()[0][0])
    query, table = query.rstrip("; "), f"TABLE {line.table.quoted}"
    db.execute("SET ROLE postgres")
    try:
        only = "SELECT count(*) FROM (({}) EXCEPT ALL ({})) d"
        both = f"SELECT ({only.format(query, table)}) + ({only.format(table, query)})"
        return int(str(db.execute(both.encode()).fetchall()[0][0]))
    finally:
        db.execute("SET ROLE trickle_owner")


def find_lack_of_reason(db: Connection, line: Line, notified: set[int]) -> list[str]:
    """What a suspended stream table does not say of code, message, hint, alert and health."""
    status, code, message, hint, listed, pgt_id = db.execute(_STATE, (line.schema,)).fetchall()[0]
    said = {
        "status": status == "SUSPENDED",
        "code": code,
        "message": message,
        "hint": hint,
        "health": listed,
        "alert": int(str(pgt_id)) in notified,
    }
    return [what for what, is_there in said.items() if not is_there]


def listen(db: Connection) -> set[int]:
    """Return the stream tables whose suspension was notified; the set grows."""
    suspended: set[int] = set()

    def note(notify: psycopg.Notify) -> None:
        alert = json.loads(notify.payload)
        if alert["event"] == "auto_suspended":
            suspended.add(int(alert["pgt_id"]))

    db.add_notify_handler(note)
    db.execute("LISTEN pg_trickle_alert")
    return suspended


def write_to_sources(db: Connection, chosen: Iterable[Line]) -> None:
    """Delete a row of each source: what was altered before goes on being followed."""
    rows = db.execute(
        "SELECT DISTINCT d.source_relid::regclass::text FROM pgtrickle.pgt_dependencies d"
        " JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) JOIN pg_class c ON c.oid = d.source_relid"
        " WHERE s.pgt_schema = ANY (%s)",
        ([line.schema for line in chosen],),
    ).fetchall()
    for (source,) in rows:
        try:
            db.execute(f"DELETE FROM {source} WHERE id = (SELECT max(id) FROM {source})".encode())
        except psycopg.Error:
            # PostgreSQL itself allows no such change: the right was revoked, or the log would not identify the row.
            continue


def judge_lines(db: Connection, chosen: Sequence[Line]) -> list[str]:
    """Run the examples, then what mends them -> what is not as the page says."""
    build(db, chosen)
    notified, since = listen(db), last_refresh(db)
    problems = {line: run(db, line, line.example) for line in chosen}
    wrong = [f"{a.change}: {problem}" for a, problem in problems.items() if bool(problem) != (a.expected == "refused")]
    write_to_sources(db, chosen)
    for line in chosen:
        happened = outcome(db, line, since, 20 if wrong else 120)
        if line.expected == "followed" and happened == "nothing":
            # New columns come with one of the next refreshes; until then the rows are those of the query as it was.
            happened = await_following(db, line, since)
        if happened not in ACCEPTED.get(line.expected, (line.expected,)):
            wrong.append(f"{line.change}: {happened} instead of {line.expected}: {state(db, line)}")
            print(wrong[-1])
        if happened == "suspended" and (lacking := find_lack_of_reason(db, line, notified)):
            wrong.append(f"{line.change}: suspended without {lacking}: {state(db, line)}")
    mended = [line for line in chosen if line.remedy]
    wrong += [f"{line.change}, mended: {problem}" for line in mended if (problem := run(db, line, line.remedy))]
    write_to_sources(db, mended)
    for line in mended:
        happened = outcome(db, line, since, 20 if wrong else 120)
        if happened.startswith(("suspended", "stuck", "different", "not checked")):
            wrong.append(f"{line.change}: {happened} after {line.remedy}: {state(db, line)}")
            print(wrong[-1])
    return wrong


def judge_stopped(db: Connection, stack: Stack, line: Line) -> list[str]:
    """Run an example that ends the consumer, then what mends it -> what is not as the page says."""
    build(db, [line])
    assert not run(db, line, line.example)
    oracle.eventually(lambda: assert_stopped(stack), 30)
    write_to_sources(db, [line])
    wrong = []
    with pytest.raises(psycopg.errors.QueryCanceled):
        db.execute("SELECT pgtrickle.wait_for(%s, timeout => '1 s')", (line.table.quoted,))
    oracle.eventually(lambda: assert_unhealthy(db), 10)
    if line.remedy == "pg-trickle-cdc resync":
        stack.binaries["cdc"].run_once("resync", "--yes")
    elif problem := run(db, line, line.remedy):
        wrong.append(f"{line.change}, mended: {problem}")
    stack.restart("cdc")
    happened = outcome(db, line, last_refresh(db))
    if happened.startswith(("suspended", "stuck", "different", "not checked")):
        wrong.append(f"{line.change}: {happened} after {line.remedy}: {state(db, line)}")
    return wrong


def assert_stopped(stack: Stack) -> None:
    assert not stack.binaries["cdc"].running


def assert_unhealthy(db: Connection) -> None:
    found = db.execute("SELECT * FROM pgtrickle.health_check()").fetchall()
    assert any("ERROR" in row for row in found), found


def last_refresh(db: Connection) -> int:
    return int(
        str(db.execute("SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history").fetchall()[0][0])
    )


def state(db: Connection, line: Line) -> list[object]:
    return [*db.execute(_STATE, (line.schema,)).fetchall()]


def version_of(db: Connection) -> int:
    return db.info.server_version // 10_000


@pytest.mark.parametrize("batch", range(BATCHES) if LONG else [0])
@pytest.mark.timeout(900)
def test_what_the_page_says_happens(db: Connection, batch: int) -> None:
    found = [a for a in lines() if not a.concerns_all and a.since <= version_of(db)]
    assert judge_lines(db, found[batch::BATCHES]) == []


@pytest.mark.skipif(not LONG, reason="stops every stream table: PG_TRICKLE_LONG_TESTS")
@pytest.mark.timeout(900)
def test_what_concerns_the_whole_publication(db: Connection, stack: Stack) -> None:
    """One after the other: each is the end of all stream tables over the publication, until it is mended."""
    found = [line for line in lines() if line.concerns_all]
    wrong = [judge_stopped(db, stack, a) if a.expected == "stopped" else judge_lines(db, [a]) for a in found]
    assert [problem for problems in wrong for problem in problems] == []
