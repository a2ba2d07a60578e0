"""Counts the rows that Spark reads, from the leaves of its executed plans."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_LEAVES = ("InMemoryTableScan", "LocalTableScan", "Scan ", "BatchScan")


class RowsRead:
    """Counts the rows that the leaves of all queries returned since the last call, including rows held in memory."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seen = -1

    def since_last(self) -> int:
        """Return the number of rows; do not call it while timing, because it queries Spark's own listener."""
        context: Any = self._spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        store: Any = self._spark._jsparkSession.sharedState().statusStore()
        executions = store.executionsList()
        ids = [int(executions.apply(i).executionId()) for i in range(executions.size())]
        rows = sum(self._of(store, number) for number in ids if number > self._seen)
        self._seen = max([self._seen, *ids])
        return rows

    def _of(self, store: Any, number: int) -> int:
        values = store.executionMetrics(number)
        nodes, total = store.planGraph(number).allNodes(), 0
        for node in (nodes.apply(i) for i in range(nodes.size())):
            if not str(node.name()).startswith(_LEAVES):
                continue
            metrics = node.metrics()
            for metric in (metrics.apply(i) for i in range(metrics.size())):
                if metric.name() == "number of output rows" and values.contains(metric.accumulatorId()):
                    total += int(str(values.apply(metric.accumulatorId())).replace(",", ""))
        return total
