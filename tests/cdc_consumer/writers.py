"""Runs sessions that write at random in the background until the block ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cdc_consumer.harness import Connection, connect

Step = Callable[[Connection, random.Random], None]


@contextmanager
def writing(url: str, step: Step, sessions: int = 2, pause_s: float = 0.0) -> Iterator[None]:
    """Run `step` in every session until the block ends; an error in a writer fails the test."""
    stop, errors = threading.Event(), list[BaseException]()

    def work(seed: int) -> None:
        pick = random.Random(seed)
        try:
            with connect(url) as connection:
                while not stop.wait(pause_s):
                    step(connection, pick)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(sessions)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors, errors
