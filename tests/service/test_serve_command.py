"""``forescore serve`` as a process of its own."""

import signal
import socket
from pathlib import Path

import httpx2
import orjson
import pytest
from support.publish import publish
from support.servers import wait_until
from support.services import ready_process, serve_process
from support.snapshot_files import leave_file

from shared.bundle import Bundle
from shared.scorer import Scorer
from shared.testing.store import MemoryStore

ROW = {"visits": 0, "returns": 3, "basket": 1}


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A home whose embedded store's socket fits into the path of a socket."""
    return str(tmp_path_factory.mktemp("home"))


def test_it_serves_with_nothing_but_a_bundle(bundle: Bundle, tmp_path: Path, home: str) -> None:
    """Without Redis it uses the embedded Valkey: features put there are scored, and ids come through as they are."""
    with ready_process(tmp_path, str(bundle.path), warm=False, FORESCORE_HOME=home) as client:
        assert client.put("/features/kg%2Fs", json={"features": ROW}).status_code == 204
        body = client.get("/score/kg%2Fs").json()
        assert (body["entity_id"], body["scores"]) == ("kg/s", {"buys": 0.3100255})
        assert client.get("/score/kg").status_code == 404
        assert client.get("/score/%FF").status_code == 422
        assert client.get("/score/100%25").status_code == 404
        assert client.get("/openapi.json").status_code == 200
        assert client.post("/score", content=b"[" * 2_000_000).json()["type"].endswith("body-too-large")
        assert "server" not in client.get("/livez").headers


def test_it_serves_from_a_file_alone(scorer: Scorer, tmp_path: Path) -> None:
    """--store none: no Redis is opened or started, and the snapshot's file is what it answers from."""
    memory = MemoryStore("purchase")
    meta = publish(memory.store, scorer, {"known": ROW})
    leave_file(tmp_path / "home" / "runs", memory.store, meta)
    options = ["--store", "none", "--features", "none"]
    with ready_process(tmp_path, str(scorer.bundle.path), *options, FORESCORE_HOME=str(tmp_path / "home")) as client:
        answer = client.get("/score/known")
        assert (answer.json()["source"], answer.json()["scores"]) == ("file", {"buys": 0.3100255})
        assert client.get("/readyz").json()["status"] == "ready"
        assert client.get("/score/nobody").status_code == 404
    assert not (tmp_path / "home" / "store").exists()


def test_it_says_where_it_listens_and_logs_one_line_a_request(bundle: Bundle, tmp_path: Path, home: str) -> None:
    """One line on standard output; the log on standard error is JSON to the end, which SIGTERM brings with 0, and has
    no value of a feature."""
    with serve_process(tmp_path, str(bundle.path), "--port", "0", "--features", "none", FORESCORE_HOME=home) as server:
        url = server.url()
        assert server.output == f"Forescore listens on {url} (try {url}/docs)\n"
        wait_until(lambda: _status(f"{url}/readyz") == 200, 60)
        httpx2.post(f"{url}/score", json={"items": [{"features": {**ROW, "visits": "T4INT"}}]})
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0

    lines = [orjson.loads(line) for line in server.errors.splitlines()]
    (line,) = [line for line in lines if line["event"] == "request" and line["level"] == "info"]
    assert (line["route"], line["items"], line["status"]) == ("/score", 1, 200)
    assert "ready" in [line["event"] for line in lines]
    assert "T4INT" not in server.errors + server.output


def test_ctrl_c_ends_it(bundle: Bundle, tmp_path: Path, home: str) -> None:
    """It ends with 130, and without a traceback."""
    with serve_process(tmp_path, str(bundle.path), "--port", "0", "--features", "none", FORESCORE_HOME=home) as server:
        url = server.url()
        wait_until(lambda: _status(f"{url}/readyz") == 200, 120)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=60) == 130

    assert "Traceback" not in server.errors


def test_a_taken_port_is_named(bundle: Bundle, tmp_path: Path, home: str) -> None:
    """One line with the port and the next step, before anything is loaded; exit code 2 and no traceback."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        with serve_process(tmp_path, str(bundle.path), "--port", port, FORESCORE_HOME=home) as server:
            assert server.process.wait(timeout=60) == 2

    assert server.errors.startswith(f"forescore: port {port} on 127.0.0.1: ")
    assert "--port" in server.errors
    assert server.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "FORESCORE_BUNDLE"),
        (["nowhere"], "nowhere"),
        (["pyproject.toml"], "pyproject.toml"),
        (["tests", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["tests", "--port", "70000"], "--port"),
    ],
)
def test_a_mistake_in_the_call_is_one_line(tmp_path: Path, home: str, arguments: list[str], named: str) -> None:
    """It names the thing and ends with exit code 2."""
    with serve_process(tmp_path, *arguments, FORESCORE_HOME=home) as server:
        assert server.process.wait(timeout=60) == 2

    assert named in server.errors
    assert server.errors.count("\n") == 1


def test_a_bundle_that_fails_its_check_is_told_by_a_process_that_lives(tmp_path: Path, home: str) -> None:
    """Not ready, with the reason; the process stays up, so that the reason can be read."""
    empty = tmp_path / "bundle"
    empty.mkdir()
    with serve_process(tmp_path, str(empty), "--port", "0", FORESCORE_HOME=home) as server:
        url = server.url()
        wait_until(lambda: _json(f"{url}/readyz").get("status") == "failed", 60)
        assert str(empty) in str(_json(f"{url}/readyz")["reason"])
        assert _status(f"{url}/livez") == 200
        assert server.process.poll() is None


def _status(url: str) -> int:
    try:
        return httpx2.get(url).status_code
    except httpx2.TransportError:
        return 0


def _json(url: str) -> dict[str, object]:
    try:
        answer: dict[str, object] = httpx2.get(url).json()
    except httpx2.TransportError:
        return {}
    return answer
