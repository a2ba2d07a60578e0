"""The number of Spark jobs per change, by query shape: each job takes 30 ms or more, so none may be added."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks.laboratory import Laboratory

JOBS = {
    "SELECT id, v FROM a": 0,
    "SELECT id, v FROM a WHERE v < 50": 0,
    "SELECT v, count(*) AS n FROM a GROUP BY v": 0,
    "SELECT a.id, b.v FROM a JOIN b ON b.id = a.v": 3,
    "SELECT b.v, sum(a.id) AS s FROM a JOIN b ON b.id = a.v GROUP BY b.v": 3,
    "SELECT a.id, b.v FROM a LEFT JOIN b ON b.id = a.v": 9,
    "SELECT a.id FROM a WHERE EXISTS (SELECT FROM b WHERE b.id = a.v)": 7,
    "SELECT v, max(id) AS m FROM a GROUP BY v": 1,
    "SELECT id, row_number() OVER (PARTITION BY v ORDER BY id) AS n FROM a": 2,
    "SELECT id, v FROM a ORDER BY id DESC LIMIT 5": 1,
}


def test_a_change_takes_no_more_jobs_than_it_did(open_laboratory: Callable[..., Laboratory]) -> None:
    lab = open_laboratory(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT i, i % 100 FROM generate_series(1, 1000) i",
        "INSERT INTO b SELECT i, i % 10 FROM generate_series(1, 80) i",
    )
    names = {f"shape_{number}": query for number, query in enumerate(JOBS)}
    for name, query in names.items():
        lab.create(name, query)
        lab.tick(name)
    for turn in range(2):
        lab.change("a", f"UPDATE a SET v = v + 1 WHERE id % 100 = {turn}")
        lab.change("b", f"DELETE FROM b WHERE id = {20 + turn}")
        lab.step()
        jobs = {query: lab.tick(name).jobs for name, query in names.items()}
    assert all(not lab.differences(name, query) for name, query in names.items())
    lab.step()
    assert not any(lab.tick(name).jobs for name in names), "nothing changed, and nothing is asked of Spark"
    assert {query: n for query, n in jobs.items() if n > JOBS[query]} == {}
