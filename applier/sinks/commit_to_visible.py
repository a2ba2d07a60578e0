"""A delta that a sink has committed in; how long its first source commit took to become visible, as a metric, out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from applier import metrics
from applier.ingest.source_clock import SourceClock
from applier.ingest.source_times import SourceTimes
from applier.plan.stream_table import StreamTable
from shared_schema.lsn import Lsn

POSTGRES, TOPIC, DELTA = "postgres", "topic", "delta"


@dataclass(frozen=True)
class CommitToVisible:
    """Measures by the source's clock from end to end; what cannot be measured is left out."""

    times: SourceTimes = field(default_factory=SourceTimes)
    clock: SourceClock = field(default_factory=SourceClock)

    def observe(self, sink: str, table: StreamTable, since: Lsn) -> None:
        """Record that everything after frontier `since` is visible in a sink now.

        The first commit counts, which waited longest. One that arrived before the applier started is not known.
        """
        first_us, now_us = self.times.first_commit_after(since), self.clock.now_us(time.monotonic())
        if since and first_us is not None and now_us is not None:
            metrics.COMMIT_TO_VISIBLE.labels(metrics.name_of(str(table)), sink).observe(
                max(0.0, (now_us - first_us) / 1_000_000)
            )
