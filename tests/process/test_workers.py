"""``forescore serve --workers N`` with nothing but a bundle."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from support.crews import CrewProcess, crew_process
from support.processes import command_of, maps, runs, servers_in
from support.servers import wait_until
from support.services import serve_process

from shared.bundle import Bundle
from shared.testing.bundles import purchase_bundle

ROW = {"visits": 0, "returns": 3, "basket": 1}
CALLS = 400
SPINNING = """
class Spinning:
    name = "spinning"

    async def read(self, ids):
        while "spin" in ids:
            pass
        return [None] * len(ids)

    async def close(self):
        pass


def open_source(schema, settings):
    return Spinning()
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return purchase_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory, bundle: Bundle, home: Path) -> Iterator[CrewProcess]:
    """Three workers with two threads a pass, which nothing but the settings asks for, and a source that may spin."""
    sources = tmp_path_factory.mktemp("sources")
    (sources / "spinning.py").write_text(SPINNING)
    given = {
        "FORESCORE_HOME": str(home),
        "FORESCORE_THREADS": "2",
        "OMP_NUM_THREADS": "7",
        "FORESCORE_SERVICE__HANG_SECONDS": "5",
        "FORESCORE_FEATURES__URL": "store,spinning:open_source",
        "PYTHONPATH": str(sources),
    }
    with crew_process(tmp_path_factory.mktemp("crew"), bundle.path, 3, **given) as crew:
        yield crew


def ask(url: str) -> int:
    """One call on a connection of its own."""
    address = urlsplit(url)
    with closing(HTTPConnection(address.hostname or "", address.port, timeout=60)) as connection:
        connection.request("GET", address.path)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def metric_files(crew: CrewProcess) -> list[Path]:
    command = command_of(crew.pids()[0]).split()
    return sorted(Path(command[command.index("--metrics") + 1]).iterdir())


def number_of(file: Path) -> str:
    return file.stem.rpartition("_")[2]


def test_each_call_is_counted_once(crew: CrewProcess) -> None:
    """400 calls that three workers answered are 400 in the counter, whichever of them is asked for it."""
    httpx2.put(f"{crew.url}/features/a", json={"features": ROW}, timeout=60).raise_for_status()
    before = len(crew.log("request"))
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(ask, [f"{crew.url}/score/a"] * CALLS))
    assert statuses == [200] * CALLS
    answered = crew.log("request")[before:]
    assert len({line["worker"] for line in answered}) > 1
    route = "/score/{entity_id}"
    for _ in range(20):
        assert crew.counted("forescore_requests_total", route=route, status="200") == CALLS
        assert crew.counted("forescore_request_duration_seconds_count", route=route) == CALLS


def test_a_worker_that_is_killed_is_replaced(crew: CrewProcess) -> None:
    """The others answer meanwhile, its successor counts on in the same files, and what it had counted stays."""
    counted = crew.counted("forescore_requests_total", route="/model")
    ready, files, before = len(crew.log("ready")), metric_files(crew), crew.pids()
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: len(crew.log("worker ended")) == 1, 30)
    asked = 0
    while len(crew.log("ready")) == ready:
        assert ask(f"{crew.url}/model") == 200
        asked += 1
    (line,) = crew.log("worker ended")
    assert (line["signal"], line["was_ready"], line["level"]) == (9, True, "warning")
    after = crew.pids()
    assert (len(after), len(set(after) & set(before))) == (3, 2)
    assert crew.counted("forescore_requests_total", route="/model") == counted + asked
    assert (crew.counted("forescore_workers_replaced_total"), crew.counted("forescore_ready")) == (1, 1)
    assert {number_of(file) for file in metric_files(crew)} == {"1", "2", "3"}
    assert {number_of(file) for file in files} == {"1", "2", "3"}


def test_workers_that_hang_are_replaced(crew: CrewProcess) -> None:
    """One is stopped and one spins in a customer's code: both are killed and replaced, and the third answers on."""
    hung, ready, before = crew.counted("forescore_workers_hung_total"), len(crew.log("ready")), crew.pids()
    os.kill(before[0], signal.SIGSTOP)
    address = urlsplit(crew.url)
    with closing(HTTPConnection(address.hostname or "", address.port, timeout=60)) as connection:
        connection.request("GET", "/score/spin")
        wait_until(lambda: len(crew.log("worker hangs")) == 2, 60)
    assert ask(f"{crew.url}/model") == 200
    crew.wait_ready(ready + 2)
    after = crew.pids()
    assert (len(after), len(set(after) & set(before))) == (3, 1)
    assert {line["pid"] for line in crew.log("worker hangs")} == set(before) - set(after)
    assert "in read" in crew.server.errors, "where it span is not told"
    assert crew.counted("forescore_workers_hung_total") == hung + 2


def test_one_embedded_store_serves_all(crew: CrewProcess, home: Path) -> None:
    """Without Redis, all workers share one embedded server."""
    assert len(servers_in(home)) == 1


def test_each_worker_has_the_threads_of_the_setting(crew: CrewProcess) -> None:
    """FORESCORE_THREADS is what torch uses in each worker, and what OpenMP and MKL are told, over what they were."""
    assert {line["threads"] for line in crew.log("ready")} == {2}
    for pid in crew.pids():
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {b"OMP_NUM_THREADS=2", b"MKL_NUM_THREADS=2"} <= set(given)


def test_the_process_that_watches_is_small(crew: CrewProcess) -> None:
    """Each worker loads the model by itself; who started them has no torch in its memory."""
    assert all(maps(pid, "libtorch_cpu") for pid in crew.pids())
    assert not maps(crew.parent, "libtorch_cpu")


def test_one_line_says_where_it_listens(crew: CrewProcess) -> None:
    """As with one worker: one line on standard output."""
    assert crew.server.output == f"Forescore listens on {crew.url} (try {crew.url}/docs)\n"


def test_the_end_leaves_nothing(tmp_path: Path, bundle: Bundle) -> None:
    """SIGTERM: not ready and alive first; then exit code 0, and no process, no metrics and no store are left."""
    home = tmp_path / "home"
    given = {"FORESCORE_HOME": str(home), "FORESCORE_SERVICE__DRAIN_SECONDS": "3"}
    with crew_process(tmp_path, bundle.path, 2, **given) as crew:
        pids, folder = crew.pids(), metric_files(crew)[0].parent
        crew.server.process.terminate()
        wait_until(lambda: len(crew.log("stopping")) == 2, 30)
        answer = httpx2.get(f"{crew.url}/readyz", timeout=30)
        assert (answer.status_code, answer.json()["status"], answer.headers["connection"]) == (503, "stopping", "close")
        assert ask(f"{crew.url}/livez") == 200
        assert crew.server.process.wait(60) == 0
        assert not any(map(runs, pids))
        assert not folder.exists()
        assert not servers_in(home)


def test_workers_end_with_who_started_them(tmp_path: Path, bundle: Bundle) -> None:
    """A parent that is killed leaves no worker that listens on, and no files of metrics."""
    with crew_process(tmp_path, bundle.path, 2, ready=1, FORESCORE_HOME=str(tmp_path / "home")) as crew:
        wait_until(lambda: len(crew.pids()) == 2, 30)
        pids, folder = crew.pids(), metric_files(crew)[0].parent
        crew.server.process.kill()
        wait_until(lambda: not any(map(runs, pids)), 60)
        wait_until(lambda: not servers_in(tmp_path / "home"), 30)
        assert not folder.exists()


def test_a_bundle_that_fails_is_told_by_one_worker_that_lives(tmp_path: Path) -> None:
    """What no worker can load, one has tried: it stays up and says why, and the others are not started."""
    empty = tmp_path / "bundle"
    empty.mkdir()
    arguments = [str(empty), "--port", "0", "--workers", "3"]
    with serve_process(tmp_path, *arguments, FORESCORE_HOME=str(tmp_path / "home")) as server:
        url = server.url()
        wait_until(lambda: "not ready" in server.errors, 120)
        answer = httpx2.get(f"{url}/readyz", timeout=60)
        assert (answer.status_code, answer.json()["status"]) == (503, "failed")
        assert str(empty) in answer.json()["reason"]
        assert server.errors.count("worker started") == 1
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130
