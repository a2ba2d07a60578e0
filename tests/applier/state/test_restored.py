"""A stored state is the state that is computed: after a restart nothing is computed again, and no result differs.

Whatever is wrong with what was stored, the state is computed as before, and the result is the same.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

from applier.errors import HistoryGone
from applier.operators.stateful_nodes import stateful_nodes
from applier.operators.support.inputs import Inputs
from applier.plan.expr import AggregateCall, Const
from applier.plan.nodes import Aggregate, ColumnName, Filter, Join, Node, Project, named
from applier.plan.stream_table import StreamTable
from applier.state import accumulators_spark
from applier.state import fingerprint as fingerprint_module
from applier.state import store as states_module
from applier.state.durable_states import DurableStates
from applier.state.fingerprint import SourceCopy, state_fingerprint, structure
from applier.state.state_files import STATE_FILES_KEPT_S, StateFiles
from applier.state.store import ExportedState, StateStore
from applier.state.stored import StoredState
from shared_schema.lsn import Lsn, LsnRange
from tests.applier.operators.plans import BIG, INT, Bag, less, plans, scan
from tests.applier.operators.test_law import BagInputs
from tests.applier.operators.test_recursion import REACHABLE
from tests.applier.refresh.test_evolution import facts, relation
from tests.applier.state.test_min_max import BY_X
from tests.applier.state.test_store import (
    COUNT_SUM,
    EMPTY,
    NESTED,
    OTHER,
    OUTER,
    SOME,
    TWO_TOTALS,
    MaintainedTable,
    X,
    Y,
    contents,
    table_of,
)
from tests.applier.state.test_top_k_buffer import FIRST, GROUPS, THIRD, TIED

pytestmark = pytest.mark.usefixtures("interpreted")

BY_KEY: Node = Aggregate(scan("a"), (X,), COUNT_SUM)
VALUES: Node = Aggregate(
    Project(Join(scan("a"), scan("b"), ((X, X),), None), (X, Y)), (X,), (AggregateCall("min(int4)", (Y,), INT),)
)
KINDS = {
    "sums": BY_KEY,
    "sums of all": Aggregate(scan("a"), (), COUNT_SUM),
    "two aggregates": TWO_TOTALS,
    "minima and maxima": BY_X,
    "values": VALUES,
    "one over the other": OUTER,
    "inside a condition": NESTED,
    "first rows": FIRST,
    "later rows": THIRD,
    "ties": TIED,
    "first groups": GROUPS,
    "recursion": REACHABLE,
}


class Contents:
    """The sources of a stream table, by LSN; `replayed` are the past ranges that were read."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.at: dict[int, dict[str, Bag]] = {}
        self.captured_at = Lsn(1)
        self.held = True
        self.replayed: list[LsnRange] = []

    def copies(self, table: StreamTable) -> Sequence[SourceCopy]:
        return [SourceCopy(one.table, one.relid, self.captured_at, "") for one in table.scans]

    def is_unchanged(self, table: StreamTable, lsn_range: LsnRange) -> bool:
        return self.at[lsn_range.lower.value] == self.at[lsn_range.upper.value]

    @contextmanager
    def between(self, table: StreamTable, lsn_range: LsnRange) -> Iterator[Inputs]:
        if not self.held:
            raise HistoryGone("the rows are no longer held")
        self.replayed.append(lsn_range)
        yield BagInputs(self.spark, self.at[lsn_range.lower.value], self.at[lsn_range.upper.value])


class Restartable(MaintainedTable):
    """A stream table that can be restarted from what was stored."""

    def __init__(self, spark: SparkSession, node: Node, folder: Path) -> None:
        super().__init__(spark, node)
        self.sources, self.folder = Contents(spark), folder
        self.form: dict[str, Any] = {}
        self.start()

    def start(self) -> None:
        """Begin with what was stored last."""
        self.files = StateFiles(self.folder)
        self.states = StateStore(self.spark, self.sources, self.files)
        self.states.adopt(json.loads(json.dumps(self.form)), Lsn(1))

    def fill(self, content: dict[str, Bag], at: int) -> None:
        self.sources.at[at] = content
        super().fill(content, at)

    def step(self, lower: int, content: dict[str, Bag]) -> Bag:
        """Apply the next content."""
        self.sources.at[lower + 1] = content
        return self.go(self.sources.at[lower], content, LsnRange(Lsn(lower), Lsn(lower + 1)))

    def store(self, at: int) -> bool:
        """Store the state at an LSN; return whether it was known there."""
        durable = DurableStates(self.states)
        taken = durable.take([(self.table.id, self.table, Lsn(at))])
        try:
            form = durable.write(taken, {}, Lsn(1))
        finally:
            taken.close()
        self.form = form
        return bool(form)


def _count(name: str) -> float:
    return REGISTRY.get_sample_value(f"pg_trickle_states_{name}_total") or 0.0


@contextmanager
def counted(*, computed: int, restored: int) -> Iterator[None]:
    """Check how often states are computed and read back inside the block."""
    before = _count("computed"), _count("restored")
    yield
    assert (_count("computed") - before[0], _count("restored") - before[1]) == (computed, restored)


@pytest.fixture
def small_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold all accumulators in Spark."""
    monkeypatch.setattr(states_module, "MAX_DRIVER_GROUPS", 0)


def held_rows(table: StreamTable, states: StateStore, at: int) -> list[Counter[tuple[Any, ...]]]:
    """Return the rows of each node's state, what was added last included, but not those of top-k buffers, which may
    hold more or less behind the last place."""
    state = states._tables[table.id]
    assert state.advance_to(Lsn(at))
    exported = states.export(table, Lsn(at))
    assert isinstance(exported, ExportedState)
    found = []
    for node in exported.nodes:
        rows = pa.table({}) if node.rows.rows is None else node.rows.rows()
        if node.rows.base is not None:
            base = node.rows.base.frame.toArrow()
            rows = accumulators_spark.sum_accumulator_rows(
                node.state.node,  # type: ignore[arg-type]
                [base, *([rows.cast(base.schema)] if rows.num_columns else [])],
            )
        if node.rows.kind != "top_k":
            found.append(Counter(map(repr, rows.to_pylist())))
    exported.close()
    return found  # type: ignore[return-value]


def _check_equal_to_computed(restartable: Restartable, at: int) -> None:
    computed = Restartable(restartable.spark, restartable.node, restartable.folder / "other")
    computed.fill(restartable.sources.at[at], at)
    assert held_rows(restartable.table, restartable.states, at) == held_rows(computed.table, computed.states, at)


@settings(max_examples=int(os.environ.get("RESTORED", "5")), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    node=plans().filter(lambda node: bool(stateful_nodes(node))),
    path=st.lists(contents, min_size=4, max_size=4),
    stored_at=st.integers(1, 3),
    groups=st.sampled_from([0, 1000]),
)
def test_random_plans(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    node: Node,
    path: list[dict[str, Bag]],
    stored_at: int,
    groups: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states_module, "MAX_DRIVER_GROUPS", groups)
        _restart_on_the_way(Restartable(spark, node, tmp_path_factory.mktemp("states")), path, stored_at)


def _restart_on_the_way(restartable: Restartable, path: list[dict[str, Bag]], stored_at: int) -> None:
    """Go through four contents, store the state at one of the first three, and restart at the third."""
    restartable.fill(path[0], 1)
    for lower in (1, 2):
        if stored_at == lower:
            assert restartable.store(lower)
        restartable.step(lower, path[lower])
    if stored_at == 3:
        assert restartable.store(3), "with what the last range added"
    restartable.start()
    with counted(computed=0, restored=1):
        restartable.step(3, path[3])
    replayed = [LsnRange(Lsn(stored_at), Lsn(3))] if stored_at < 3 else []
    assert restartable.sources.replayed == replayed
    _check_equal_to_computed(restartable, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored_at", [2, 3])
def test_every_kind(spark: SparkSession, tmp_path: Path, kind: str, stored_at: int) -> None:
    _restart_on_the_way(Restartable(spark, KINDS[kind], tmp_path), [SOME, OTHER, SOME, EMPTY], stored_at)


@pytest.mark.usefixtures("small_driver")
@pytest.mark.parametrize("fold", [0, 1000])
def test_what_spark_holds(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fold: int) -> None:
    """The base is written once for as long as it is the same; after each LSN range only the overlay is."""
    monkeypatch.setattr(accumulators_spark, "FOLD_ROWS", fold)
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    forms = []
    for lower, content in enumerate((OTHER, SOME, OTHER), 1):
        restartable.step(lower, content)
        assert restartable.store(lower + 1)
        forms.append(StoredState.from_json(restartable.form["1"]))
    bases = {form.nodes[0].base for form in forms}
    assert len(bases) == (1 if fold else 3)
    restartable.start()
    with counted(computed=0, restored=1):
        restartable.step(4, EMPTY)
    # What was read back is written only when it changes.
    assert restartable.store(5)
    last = StoredState.from_json(restartable.form["1"])
    assert (last.nodes[0].base in bases) is bool(fold) and last.nodes[0].added


def test_a_state_that_is_too_large_is_not_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_module, "MAX_DERIVED_ROWS", 0)
    restartable = Restartable(spark, REACHABLE, tmp_path)
    restartable.fill(SOME, 1)
    restartable.step(1, OTHER)
    assert restartable.store(2)
    restartable.start()
    with counted(computed=0, restored=1):
        restartable.step(2, SOME)
    assert restartable.states._tables[1].too_large == {REACHABLE}


def test_what_is_stored_is_used_once(spark: SparkSession, tmp_path: Path) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    restartable.start()
    with counted(computed=0, restored=1):
        restartable.step(1, OTHER)
        restartable.step(2, SOME)
    restartable.states.forget(1)
    with counted(computed=1, restored=0):
        restartable.step(3, OTHER)


def test_a_range_without_changes_moves_what_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    restartable.sources.at |= dict.fromkeys(range(1, 8), SOME)
    restartable.start()
    restartable.states.unchanged(restartable.table, LsnRange(Lsn(1), Lsn(4)))
    # Another checkpoint: nobody has read the state, and it is that of a later frontier.
    assert restartable.store(4) and restartable.form["1"]["frontier"] == str(Lsn(4))
    # The last refreshes before the crash are not known, but that nothing changed is.
    restartable.states.unchanged(restartable.table, LsnRange(Lsn(5), Lsn(6)))
    assert restartable.store(6) and not restartable.store(7)
    restartable.form = {}
    with counted(computed=0, restored=1):
        restartable.step(6, OTHER)
    assert not restartable.sources.replayed


def _altered(restartable: Restartable) -> None:
    altered = Aggregate(Filter(scan("a"), less(X, Const(3, INT))), (X,), COUNT_SUM)
    restartable.node, restartable.table = altered, table_of(altered)


def _captured_again(restartable: Restartable) -> None:
    restartable.sources.captured_at = Lsn(2)


def _gone(restartable: Restartable) -> None:
    restartable.sources.held = False


def _file(restartable: Restartable) -> Path:
    [path] = restartable.folder.glob("*.arrow")
    return path


def _truncated(restartable: Restartable) -> None:
    path = _file(restartable)
    path.write_bytes(path.read_bytes()[:-40])


def _bit_flipped(restartable: Restartable) -> None:
    content = bytearray(_file(restartable).read_bytes())
    content[len(content) // 3] ^= 1
    _file(restartable).write_bytes(content)


def _missing(restartable: Restartable) -> None:
    _file(restartable).unlink()


def _another_kind(restartable: Restartable) -> None:
    restartable.form["1"]["nodes"][0]["kind"] = "fixpoint"


def _another_form(restartable: Restartable) -> None:
    restartable.form["1"] = {"frontier": "0/2", "files": 7}


@pytest.mark.parametrize(
    ("happens", "is_warned"),
    [
        (_altered, False),
        (_captured_again, False),
        (_gone, True),
        (_truncated, True),
        (_bit_flipped, True),
        (_missing, True),
        (_another_kind, True),
        (_another_form, True),
    ],
)
def test_what_cannot_be_used_is_computed(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[Restartable], None],
    is_warned: bool,
) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    restartable.step(1, OTHER)
    happens(restartable)
    with caplog.at_level(logging.INFO, "applier.state.store"):
        restartable.start()
        with counted(computed=1, restored=0):
            restartable.step(2, SOME)
        restartable.step(3, EMPTY)
    assert any(record.levelno == logging.WARNING for record in caplog.records) is is_warned


def test_a_damaged_parquet_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module, "MAX_DRIVER_GROUPS", 0)
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    [path] = tmp_path.glob("*.parquet/part-*")
    path.write_bytes(path.read_bytes()[:-8])
    restartable.start()
    with counted(computed=1, restored=0):
        restartable.step(1, OTHER)


def test_a_frontier_that_went_back(spark: SparkSession, tmp_path: Path) -> None:
    """As after the restore of a server: what is stored belongs to a history that is gone."""
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    restartable.step(1, OTHER)
    assert restartable.store(2)
    restartable.start()
    with counted(computed=1, restored=0):
        restartable.step(1, SOME)
        # Its frontier is reached once more, with other rows.
        restartable.step(2, OTHER)


def test_what_is_older_than_the_traces_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    restartable.step(1, OTHER)
    restartable.states = StateStore(spark, restartable.sources, restartable.files)
    restartable.states.adopt(restartable.form, Lsn(2))
    with counted(computed=1, restored=0):
        restartable.step(2, SOME)
    durable = DurableStates(restartable.states)
    none = durable.take([(1, None, Lsn(3)), (2, None, Lsn(3))])
    # One that could not be taken now stays, unless it is too old or its stream table is gone.
    assert durable.write(none, restartable.form, Lsn(1)) == restartable.form
    assert durable.write(none, restartable.form, Lsn(2)) == {}
    assert durable.write(durable.take([(2, None, Lsn(3))]), restartable.form, Lsn(1)) == {}


def test_a_crash_between_the_files_and_the_manifest(spark: SparkSession, tmp_path: Path) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    assert restartable.store(1)
    DurableStates(restartable.states).settle(restartable.form)
    first = restartable.form
    restartable.step(1, OTHER)
    restartable.step(2, SOME)
    assert restartable.store(3)
    assert len(list(tmp_path.iterdir())) == 3, "what the manifest names, the next rows and what was added last"
    restartable.form = first
    restartable.start()
    with counted(computed=0, restored=1):
        restartable.step(3, OTHER)
    # Files of the process that was killed stay for a day: it may have been another one that only hangs.
    assert restartable.store(4)
    DurableStates(restartable.states).settle(restartable.form)
    files = {path.name for path in tmp_path.iterdir()}
    named = {file.path for file in StoredState.from_json(restartable.form["1"]).files()}
    assert len(files) == len(named) + 2 and named < files
    for name in files - named:
        os.utime(tmp_path / name, (time.time() - STATE_FILES_KEPT_S - 60,) * 2)
    DurableStates(restartable.states).settle(restartable.form)
    assert {path.name for path in tmp_path.iterdir()} == named


def test_a_state_that_changes_now_is_not_taken(spark: SparkSession, tmp_path: Path) -> None:
    restartable = Restartable(spark, BY_KEY, tmp_path)
    restartable.fill(SOME, 1)
    with restartable.states._tables[1].lock:
        assert not restartable.store(1)
    assert not restartable.store(2), "that is not where it is"
    assert restartable.store(1)
    without_folder = StateStore(spark, restartable.sources, StateFiles.below("s3://bucket/state"))
    assert DurableStates(without_folder).take([(1, restartable.table, Lsn(1))]).states == {}


def test_what_is_exported_does_not_change(spark: SparkSession, tmp_path: Path) -> None:
    """The rows are written beside the ticks, which go on."""
    for node in (BY_KEY, BY_X, REACHABLE, FIRST):
        restartable = Restartable(spark, node, tmp_path)
        restartable.fill(SOME, 1)
        exported = restartable.states.export(restartable.table, Lsn(1))
        for lower, content in enumerate((OTHER, EMPTY, SOME, OTHER), 1):
            restartable.step(lower, content)
        assert isinstance(exported, ExportedState)
        restartable.form = {"1": exported.write(restartable.files).to_json()}
        exported.close()
        restartable.start()
        with counted(computed=0, restored=1):
            restartable.step(1, OTHER)


def test_files_keep_types_exactly(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "digits": pa.array([Decimal(10) ** 37, None], pa.decimal128(38, 0)),
            "more": pa.array([Decimal(10) ** 60, Decimal(-1)], pa.decimal256(76, 2)),
            "moment": pa.array([1, -(2**40)], pa.timestamp("us", "UTC")),
            "bytes": pa.array([b"\0\xff", None], pa.binary()),
            "list": pa.array([[{"a": 1.5}], None], pa.list_(pa.struct([("a", pa.float64())]))),
            "no": pa.array([None, None], pa.null()),
        }
    )
    files = StateFiles(tmp_path)
    read = files.read_rows(files.write_rows(1, rows))
    assert read.schema == rows.schema and read.equals(rows)


def test_what_a_fingerprint_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = SourceCopy(scan("a").table, 1, Lsn(5), "m")
    of = state_fingerprint(table_of(BY_KEY), None, [copy])
    renamed = named(BY_KEY, {0: ColumnName("t", "other")})
    assert of is not None and state_fingerprint(table_of(renamed), None, [copy]) == of
    others = [
        state_fingerprint(table_of(BY_X), None, [copy]),
        state_fingerprint(table_of(BY_KEY), None, []),
        *(
            state_fingerprint(table_of(BY_KEY), None, [replace(copy, **change)])
            for change in ({"relid": 2}, {"captured_at": Lsn(6)}, {"membership": "n"})
        ),
        state_fingerprint(table_of(Aggregate(scan("a"), (X,), COUNT_SUM[:1])), None, [copy]),
        state_fingerprint(table_of(Filter(scan("a"), less(X, Const(1, INT)))), None, [copy]),
        state_fingerprint(table_of(Filter(scan("a"), less(X, Const(1, BIG)))), None, [copy]),
        state_fingerprint(table_of(Filter(scan("a"), less(X, Const(True, INT)))), None, [copy]),
    ]
    meaning = [
        state_fingerprint(table_of(BY_KEY), facts(relation(storage=storage, enums=enums)), [copy])
        for storage, enums in ((1, {}), (2, {}), (1, {"7": "labels"}))
    ]
    assert meaning[0] == meaning[1], "VACUUM FULL changes no value"
    others += [meaning[0], meaning[2]]
    monkeypatch.setattr(fingerprint_module, "code_digest", lambda: "another version")
    others.append(state_fingerprint(table_of(BY_KEY), None, [copy]))
    assert None not in others and len({of, *others}) == len(others) + 1
    # What looks another way in each process has none, instead of one that differs or is always the same.
    for unknown in (frozenset({1}), object(), {"a": 1}, [1]):
        with pytest.raises(TypeError, match="no structure"):
            structure((1, unknown))
