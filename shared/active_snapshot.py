from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class ActiveSnapshot(Collector):
    """``forescore_snapshot_info``: one sample, of the snapshot that is active now.

    No gauge: that would keep the labels of every snapshot there ever was, and one that several workers write would
    name two of them around a promotion. Each worker knows the pointer, so the one that is asked says it.
    """

    _labelnames = ("model", "model_version", "snapshot")  # where those of prometheus_client's own metrics are

    def __init__(self) -> None:
        self.labels: tuple[str, str, str] | None = None

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The metric without a sample."""
        yield GaugeMetricFamily("forescore_snapshot_info", "1 for the active snapshot.", labels=self._labelnames)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metric, with its sample once a snapshot is known."""
        for family in self.describe():
            if self.labels is not None:
                family.add_metric(self.labels, 1)
            yield family
