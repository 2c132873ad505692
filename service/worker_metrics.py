"""Metrics of several workers, told by whichever is asked: each writes into files of one folder, and reads all of them.

prometheus_client names the files by process id, so that they grow with every worker that is started again
(https://github.com/prometheus/client_python/issues/275). Here they bear the worker's number: its successor goes on
counting in the same files.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, values
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus_client reads it, from the environment alone."""


class WorkersRegistry(CollectorRegistry):
    """Takes metrics as any registry does, and tells what all workers wrote; what is no number in a file is its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._files = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]
        self._own: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Adds a metric."""
        super().register(collector)
        if not isinstance(collector, MetricWrapperBase):
            self._own.append(collector)

    def collect(self) -> Iterator[Metric]:
        """All metrics, with the sums of all workers."""
        yield from self._files.collect()  # type: ignore[no-untyped-call]
        for collector in self._own:
            yield from collector.collect()


def join(folder: Path, number: int) -> WorkersRegistry:
    """The registry of this worker. For the whole process, and before any metric is made."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
    return WorkersRegistry(folder)


def forget(folder: Path, number: int) -> None:
    """Drops what holds only while a worker lives, such as its queue. What it counted stays."""
    mark_process_dead(number, str(folder))  # type: ignore[no-untyped-call]
