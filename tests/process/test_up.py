"""``forescore up``: store, schedule and service on one machine."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.processes import children_of
from support.servers import wait_until

from shared.testing.bundles import purchase_bundle

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(240)


class Up:
    """The command, started in an empty home."""

    def __init__(self, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        bundle = purchase_bundle(tmp_path / "bundle").path
        table = tmp_path / "customers.parquet"
        columns = {"visits": [1, 0, 2, 1], "returns": [0, 3, 1, 1], "basket": [2, 1, 0, 1]}
        pq.write_table(pa.table({"customer_id": [0, 1, 2, 3], **columns}), table)
        self._output, self._errors = tmp_path / "out", tmp_path / "err"
        ports = ["--port", "0", "--schedule-port", "0", "--workers", "2"]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forescore", "up", str(bundle), str(table), *ports],
                stdout=output,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "FORESCORE_HOME": str(self.home), "FORESCORE_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def is_up(self) -> bool:
        return "Ctrl-C stops all of it" in self.output and "  store" in self.output

    def url(self, part: str) -> str:
        """Where a part answers, as is printed when all is up."""
        line = next(line for line in self.output.splitlines() if line.startswith(f"  {part} "))
        return line.split()[1].rpartition("/")[0]

    def children(self) -> list[int]:
        """The processes that it started, in that order."""
        return children_of(self.process.pid)

    def store_runs(self) -> bool:
        lock = self.home / "store" / "server.lock"
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.terminate()
    made.process.wait(timeout=60)


def score(url: str) -> tuple[int, object]:
    answer = httpx2.get(f"{url}/score/0", timeout=30)
    return answer.status_code, answer.json().get("source")


def test_an_empty_home_is_filled_and_served(up: Up) -> None:
    """The schedule makes the first snapshot by itself, two workers serve it, and Ctrl-C leaves nothing running."""
    wait_until(up.is_up, 120)
    service, schedule = up.url("service"), up.url("schedule")
    assert httpx2.get(f"{service}/readyz", timeout=30).status_code == 200
    assert httpx2.get(f"{schedule}/livez", timeout=30).status_code == 200
    wait_until(lambda: score(service) == (200, "cache"), 120)
    wait_until(lambda: httpx2.get(f"{schedule}/readyz", timeout=30).status_code == 200, 60)
    children = up.children()
    wait_until(lambda: len(children_of(children[0])) == 2, 60)
    children += children_of(children[0])
    assert up.store_runs()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(timeout=60) == 130
    assert len(children) == 4
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert not up.store_runs()


def test_one_part_that_dies_stops_all(up: Up) -> None:
    """Exit code 1 and one line that names it; the store is stopped too."""
    wait_until(lambda: len(up.children()) == 2, 60)
    first, second = up.children()
    os.kill(first, signal.SIGKILL)
    assert up.process.wait(timeout=60) == 1
    last = up.errors.splitlines()[-1]
    assert last == "forescore: the service ended by itself, with signal 9; so everything was stopped"
    assert not Path(f"/proc/{second}").exists()
    assert not up.store_runs()
