"""What runs beside the start of the JVM: the first error wins, the rest is told to stop, and no thread stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from applier.runtime.head_start import HeadStart
from applier.runtime.start_stages import StartStages


@pytest.fixture
def stopping() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    assert [t.name for t in threading.enumerate() if t.name.startswith("start_")] == []


@pytest.fixture
def head_start(stopping: threading.Event) -> Iterator[HeadStart]:
    made = HeadStart(stopping, StartStages())
    yield made
    made.close()


def test_tasks_run_side_by_side(head_start: HeadStart, stopping: threading.Event) -> None:
    both = threading.Barrier(2, timeout=10)
    one = head_start.run("one", both.wait)
    two = head_start.run("two", both.wait)
    after = head_start.run("after", lambda: 7, two)
    head_start.finish()
    assert {one.result(), two.result()} == {0, 1} and after.result() == 7 and not stopping.is_set()


def test_the_error_of_a_task_comes_before_a_later_one_of_the_main_thread(
    head_start: HeadStart, stopping: threading.Event
) -> None:
    def fail() -> None:
        raise OSError("first")

    failed = head_start.run("fails", fail)
    waits = head_start.run("waits", lambda: stopping.wait(30))
    never = head_start.run("never", lambda: pytest.fail("its task failed"), failed)
    with pytest.raises(OSError, match="first") as caught, head_start.first_error():
        assert stopping.wait(10)
        raise ValueError("second")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(OSError, match="first"):
        head_start.finish()
    head_start.close()
    assert waits.result() is True and isinstance(never.exception(), OSError)


def test_an_error_of_the_main_thread_ends_the_tasks(head_start: HeadStart, stopping: threading.Event) -> None:
    def fail_later() -> None:
        assert stopping.wait(30)
        time.sleep(0.05)
        raise OSError("second")

    head_start.run("fails", fail_later)
    with pytest.raises(ValueError, match="first"), head_start.first_error():
        raise ValueError("first")
    head_start.close()
    with pytest.raises(ValueError, match="first"):
        head_start.finish()
