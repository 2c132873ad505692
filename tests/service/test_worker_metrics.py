"""Metrics of several workers, played one after the other in this process."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, values

from service.worker_metrics import FOLDER_VARIABLE, forget, join
from shared.metrics import Metrics
from shared.telemetry import StageTimer
from shared.testing.clock import FrozenClock

ROUTE = "/score/{entity_id}"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What joining changes for the whole process is put back after each test."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))


def worker(folder: Path, number: int) -> Metrics:
    return Metrics(join(folder, number))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def answered(metrics: Metrics, calls: int) -> None:
    for _ in range(calls):
        metrics.request(ROUTE, 200, 0.25, StageTimer(FrozenClock()))


def test_each_tells_the_sum(tmp_path: Path) -> None:
    """Counters and histograms of two workers are added, whichever is asked."""
    first, second = worker(tmp_path, 1), worker(tmp_path, 2)
    answered(first, 3)
    answered(second, 4)
    for asked in (first, second):
        assert value(asked, "forescore_requests_total", route=ROUTE, status="200") == 7
        assert value(asked, "forescore_request_duration_seconds_sum", route=ROUTE) == 7 * 0.25
        assert value(asked, "forescore_request_duration_seconds_bucket", route=ROUTE, le="0.25") == 7


def test_a_successor_counts_on_in_the_same_files(tmp_path: Path) -> None:
    """A worker that was started again a hundred times has the files of the first, and its count."""
    answered(worker(tmp_path, 1), 1)
    files = sorted(tmp_path.iterdir())
    for _ in range(100):
        forget(tmp_path, 1)
        last = worker(tmp_path, 1)
        answered(last, 1)
    assert sorted(tmp_path.iterdir()) == files
    assert value(last, "forescore_requests_total", route=ROUTE, status="200") == 101


def test_what_a_dead_worker_held_is_forgotten(tmp_path: Path) -> None:
    """Its queue is gone with it, and what it had counted stays."""
    first, second = worker(tmp_path, 1), worker(tmp_path, 2)
    first.queue(5)
    second.queue(7)
    first.shed("deadline", 2)
    assert value(second, "forescore_queue_rows") == 12
    forget(tmp_path, 1)
    assert value(second, "forescore_queue_rows") == 7
    assert value(second, "forescore_shed_rows_total", reason="deadline") == 2


def test_the_worst_of_all_is_told(tmp_path: Path) -> None:
    """The oldest pointer, an open breaker, a parity that is not exact: one worker is enough. One that loads is none."""
    first, second, third = (worker(tmp_path, number) for number in (1, 2, 3))
    first.ages(pointer=9.0, snapshot=100.0)
    second.ages(pointer=0.5, snapshot=None)
    second.breaker(is_open=True)
    snapshot = {"model": "churn", "model_version": "1", "snapshot": "1-A"}
    first.active(**snapshot, exact=True)
    assert value(third, "forescore_parity_exact") == 1
    second.active(**snapshot, exact=False)
    assert value(third, "forescore_parity_exact") == 0
    assert value(third, "forescore_pointer_age_seconds") == 9
    assert value(third, "forescore_snapshot_age_seconds") == float("inf")
    assert value(third, "forescore_breaker_open") == 1


def test_one_that_loads_is_told(tmp_path: Path) -> None:
    """Ready means all; a worker that is gone is none, and a replaced one stays counted."""
    first, second = worker(tmp_path, 1), worker(tmp_path, 2)
    first.ready(is_ready=True)
    assert value(first, "forescore_ready") == 0
    second.ready(is_ready=True)
    assert value(first, "forescore_ready") == 1
    forget(tmp_path, 2)
    successor = worker(tmp_path, 2)
    successor.replaced()
    assert (value(first, "forescore_ready"), value(first, "forescore_workers_replaced_total")) == (0, 1)


def test_one_snapshot_is_active(tmp_path: Path) -> None:
    """The one that the worker that is asked knows; the one before is named no more, though another still has it."""
    first, second = worker(tmp_path, 1), worker(tmp_path, 2)
    for asked, snapshot in ((first, "1-A"), (second, "1-A"), (first, "1-B")):
        asked.active(model="churn", model_version="1", snapshot=snapshot, exact=True)
    named = [
        sample.labels["snapshot"]
        for family in first.registry.collect()
        for sample in family.samples
        if sample.name == "forescore_snapshot_info"
    ]
    assert named == ["1-B"]


def test_every_gauge_ends_with_its_worker() -> None:
    """A gauge of another kind would keep the number of a worker as a label, or the state of one that is dead."""
    registry = CollectorRegistry()
    Metrics(registry)
    gauges = [one for one in registry._collector_to_names if isinstance(one, Gauge)]
    assert gauges
    assert all(gauge._multiprocess_mode.startswith("live") for gauge in gauges)
