"""Runs the applier, as `stopped_in.py PLACE FLAG run`. In a write it stops itself, once the file FLAG exists.

It stops as by SIGSTOP, for as long as the test wants: what it does when it goes on is real.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from applier.cli import main
from applier.sinks.delta_lake.sink import DeltaSink
from applier.sinks.kafka.publisher import TopicPublisher
from applier.sinks.postgres.sink import PostgresSink

PLACES: dict[str, tuple[type, str, bool]] = {
    "postgres": (PostgresSink, "_finish", False),
    "topic": (TopicPublisher, "_commit", False),
    "delta": (DeltaSink, "_open", True),
}
"""By sink: a method, and whether to stop after it. Rows are written but not committed; or the version is known that the
next commit follows."""


def _stopping(method: Callable[..., Any], flag: Path, *, after: bool) -> Callable[..., Any]:
    def stop() -> None:
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)

    @wraps(method)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if not after:
            stop()
        result = method(*arguments, **named)
        if after:
            stop()
        return result

    return wrapped


if __name__ == "__main__":
    place, flag = sys.argv[1], Path(sys.argv[2])
    owner, name, after = PLACES[place]
    setattr(owner, name, _stopping(getattr(owner, name), flag, after=after))
    main(sys.argv[3:])
