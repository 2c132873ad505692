"""The demo: every step that a user would take, with the same commands, on one machine.

``forescore demo`` trains, builds, backfills and serves, and says what to try. ``forescore demo --check`` does it in a
folder of its own on a free port, asks those questions itself, and stops all that it started.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq

from shared.errors import ForescoreError, SettingsError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOST, PORT = "127.0.0.1", 8000
WORK = Path(".forescore", "demo")
UNKNOWN = "C9999"
PATIENCE_SECONDS = 60


class DemoFailed(ForescoreError):
    """A step of the demo failed, or an answer was not the expected one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the service said: its status, and its body as it was sent."""

    status: int
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    def score(self) -> str:
        """The score as it is written."""
        found = re.search(r'"churn":([0-9.e-]+)', self.text)
        return found[1] if found else "no score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Where the demo works, on which port it serves, and where its time went."""

    work: Path
    port: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def bundle(self) -> Path:
        return self.work / "bundle"

    @property
    def nightly(self) -> Path:
        return self.work / "nightly.parquet"

    @property
    def unseen(self) -> Path:
        return self.work / "unseen.parquet"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ids(self) -> tuple[str, str, str]:
        """A known, an unseen and an unknown customer."""
        known, unseen = (pq.read_table(table, columns=["customer_id"]) for table in (self.nightly, self.unseen))
        return known["customer_id"][0].as_py(), unseen["customer_id"][0].as_py(), UNKNOWN

    def environment(self) -> dict[str, str]:
        """The user's, without his settings: the demo must not write into his store."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("FORESCORE_")}
        return others | {"FORESCORE_HOME": str(self.work / "home"), "PYTHONUNBUFFERED": "1"}

    def ask(self, path: str, items: list[Mapping[str, object]] | None = None) -> Answer:
        """GET, or POST where there are items."""
        data = None if items is None else json.dumps({"items": items}).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})  # noqa: S310 - our own http URL
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - the same
                return Answer(status=response.status, text=response.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(status=error.code, text=error.read().decode())


def main(check: bool, port: int | None) -> None:  # noqa: FBT001 - the two options of the command
    """Runs the demo until Ctrl-C; with ``check`` until its questions are answered, and fails if one is not."""
    signal.signal(signal.SIGTERM, _interrupt)
    if check:
        _check(port or _free_port())
    else:
        _show(Demo(work=WORK.resolve(), port=_require_free(PORT if port is None else port or _free_port())))


def _show(demo: Demo) -> None:
    _prepare(demo)
    report = _backfill(demo)
    try:
        with _serving(demo, sys.stderr) as service:
            _tell(demo, report)
            _invite(demo)
            service.wait()
            raise DemoFailed("demo: the service ended by itself; what it said is above")
    except KeyboardInterrupt:
        print("\nStopped, with its store. The same command starts it again with the same bundle.")


def _check(port: int) -> None:
    demo = Demo(work=Path(tempfile.mkdtemp(prefix="forescore-demo-")), port=port)
    try:
        _prepare(demo)
        report = _backfill(demo)
        with (demo.work / "up.log").open("w", encoding="utf-8") as log, _serving(demo, log):
            _tell(demo, report)
            _ask(demo)
        _require_gone(demo)
    except ForescoreError as error:
        raise DemoFailed(f"{error}. Its files are in {demo.work}") from None
    except KeyboardInterrupt:
        shutil.rmtree(demo.work)
        raise
    shutil.rmtree(demo.work)
    print("demo check: ok")


def _prepare(demo: Demo) -> None:
    """The tables, and the bundle if it is not there yet."""
    _run(demo, [sys.executable, str(HERE / "prepare.py"), str(demo.work)])
    if demo.bundle.exists():
        print(f"The bundle of the last demo is used again: {_near(demo.bundle)} (delete it to train anew)")
        return
    start = time.perf_counter()

    def heard(line: str) -> None:
        if line.startswith("trained"):
            demo.seconds["train"] = time.perf_counter() - start

    _run(demo, [_forescore(), "bundle", "build", "examples.telco_churn.train:bundle", str(demo.bundle)], heard)
    demo.seconds["build"] = time.perf_counter() - start - demo.seconds["train"]


def _backfill(demo: Demo) -> dict[str, Any]:
    """Scores the nightly table into a new snapshot, and returns the run's report."""
    start = time.perf_counter()
    out = demo.work / "run"
    _run(demo, [_forescore(), "backfill", str(demo.bundle), str(demo.nightly), "--out", str(out), "--force"])
    demo.seconds["backfill"] = time.perf_counter() - start
    report: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return report


@contextmanager
def _serving(demo: Demo, log: TextIO) -> Iterator[subprocess.Popen[bytes]]:
    """Store, schedule and service, ready; they are stopped in the end."""
    start = time.perf_counter()
    command = [_forescore(), "up", str(demo.bundle), str(demo.nightly), "--port", str(demo.port)]
    command += ["--schedule-port", "0", "--features", f"{demo.unseen},store"]
    _echo(command)
    service = subprocess.Popen(  # in a session of its own: Ctrl-C is for the demo, which stops all of it then
        command, cwd=ROOT, env=demo.environment(), stdout=log, stderr=log, start_new_session=True
    )
    try:
        _wait(lambda: service.poll() is not None or _is_ready(demo), "the service is not ready after a minute")
        if service.poll() is not None:
            raise DemoFailed(f"demo: the service did not start; {_told_in(log)}")
        demo.seconds["start"] = time.perf_counter() - start
        yield service
    finally:
        _end(service)


def _tell(demo: Demo, report: Mapping[str, Any]) -> None:
    counts = report["counts"]
    times = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in demo.seconds.items())
    print(f"""
Where the time went:  {times}
The backfill:         {counts["scored"]:,} scored, {counts["rejected"]:,} rejected, {counts["duplicate"]:,} duplicate \
of {counts["input"]:,} customers
The snapshot:         {report["snapshot"]}, {report["state"]}
""", flush=True)  # fmt: skip


def _invite(demo: Demo) -> None:
    known, unseen, unknown = demo.ids()
    print(f"""Forescore serves on {demo.url} until you press Ctrl-C. Try, in this order:

  curl {demo.url}/score/{known}   # known: scored by the batch, "source":"cache"
  curl {demo.url}/score/{unseen}   # unseen: scored now, "source":"online"; asked again: "cache"
  curl {demo.url}/score/{unknown}   # unknown: neither score nor features, status 404

The schedule scores the table again each night at 02:00 UTC.
""", flush=True)  # fmt: skip


def _ask(demo: Demo) -> None:
    """The questions that the user is told to ask, and one POST with a bad item among good ones."""
    known, unseen, unknown = demo.ids()
    cached = demo.ask(f"/score/{known}")
    _require(
        cached.status == HTTPStatus.OK and cached.body["source"] == "cache", f"{known} comes from the cache", cached
    )
    online = demo.ask(f"/score/{unseen}")
    _require(online.status == HTTPStatus.OK and online.body["source"] == "online", f"{unseen} is scored online", online)
    _wait(lambda: demo.ask(f"/score/{unseen}").body["source"] == "cache", f"{unseen} is not written back")
    again = demo.ask(f"/score/{unseen}")
    _require(again.score() == online.score(), f"{unseen} has the same score from the cache", again)
    missing = demo.ask(f"/score/{unknown}")
    _require(
        missing.status == HTTPStatus.NOT_FOUND and missing.body["type"].endswith("unknown-entity"),
        f"{unknown} is a 404",
        missing,
    )

    row = pq.read_table(demo.nightly).slice(0, 1).to_pylist()[0]
    features = {name: value for name, value in row.items() if name != "customer_id"}
    items = [{"entity_id": known}, {"features": features | {"tenure": "long"}}, {"features": features}]
    many = demo.ask("/score", items)
    _require(
        many.status == HTTPStatus.OK and len(many.body["results"]) == len(items), "POST /score answers each item", many
    )
    first, bad, inline = many.body["results"]
    _require(bad.get("error", {}).get("status") == HTTPStatus.UNPROCESSABLE_ENTITY, "the bad item alone is a 422", many)
    _require(first["scores"] == inline["scores"] == cached.body["scores"], "the same row has the same score", many)


def _require(holds: bool, what: str, answer: Answer) -> None:  # noqa: FBT001 - an assertion
    if not holds:
        raise DemoFailed(f"demo check: expected that {what}; the service said {answer.status}: {answer.text[:500]}")
    print(f"  ok: {what}")


def _require_gone(demo: Demo) -> None:
    """Nothing is left: the port is free, and nobody holds the lock of the store's server, the last one to end."""
    _require_free(demo.port)
    _wait(lambda: not _is_locked(demo.work / "home" / "store" / "server.lock"), "the store does not stop")
    print("  ok: nothing is left running")


def _require_free(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            raise SettingsError(f"port {port} is taken; choose another: PORT={port + 1} make demo") from None
    return port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _run(demo: Demo, command: list[str], heard: Callable[[str], None] = lambda _: None) -> None:
    """One command of the user's; what it prints is passed on as it comes."""
    _echo(command)
    with subprocess.Popen(
        command, cwd=ROOT, env=demo.environment(), stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            heard(line)
    if process.returncode != 0:
        raise DemoFailed(f"demo: {Path(command[0]).name} {command[1]} failed; what it said is above")


def _echo(command: list[str]) -> None:
    words = [Path(command[0]).name, *(_near(Path(word)) if os.sep in word else word for word in command[1:])]
    print(f"$ {' '.join(words)}", flush=True)


def _near(path: Path) -> str:
    """The path from here, where it is below here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _forescore() -> str:
    """The command of this environment, whether it is activated or not."""
    return str(Path(sys.executable).with_name("forescore"))


def _is_ready(demo: Demo) -> bool:
    with suppress(OSError):
        return demo.ask("/readyz").status == HTTPStatus.OK
    return False


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"demo: {otherwise}")
        time.sleep(0.05)  # another process cannot tell this one that it is ready


def _end(service: subprocess.Popen[bytes]) -> None:
    """In good order; by force if it takes too long."""
    service.terminate()
    try:
        service.wait(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()


def _is_locked(path: Path) -> bool:
    """Whether a process holds this lock: the kernel lets go of it with its holder."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _told_in(log: TextIO) -> str:
    return "what it said is above" if log is sys.stderr else f"what it said is in {log.name}"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
