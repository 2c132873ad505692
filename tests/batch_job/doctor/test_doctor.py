"""``forescore doctor`` as a user calls it, against real servers in the states in which servers are."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from support.command import Command
from support.doctor import Doctor
from support.publish import publish
from support.servers import HOST, ValkeyProcess, dead_port, hung_server
from support.stores import settings_for

from batch_job.doctor import host
from batch_job.doctor.doctor import run
from batch_job.doctor.finding import Check, Level, Verdict
from shared.bundle import Bundle
from shared.scorer import Scorer
from shared.store.connect import open_store

ROWS = {f"C{place}": {"visits": place % 5, "returns": 0, "basket": 2} for place in range(200)}


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """The URL of a server that has one answer to everything."""

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while connection.recv(4096):
                    connection.sendall(reply)

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"redis://{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=10)


def test_all_is_well(doctor: Doctor, valkey: ValkeyProcess, namespace: str, scorer: Scorer) -> None:
    """With a fresh snapshot, the same bundle and a server as it should be, nothing fails and parity is exact."""
    with open_store(settings_for(valkey.url, namespace), "purchase") as store:
        publish(store, scorer, ROWS, scored_at=int(time.time()))
    assert doctor(valkey.url, scorer.bundle.path) == 0
    wanted = (
        "store",
        "pointer",
        "buckets",
        "room for two",
        "age",
        "lease",
        "left over",
        "bundle",
        "certified",
        "parity",
    )
    assert [check for check in wanted if doctor.level(check) != "ok"] == []
    assert "200 entities" in doctor.text("pointer")
    assert "bytes an entity" in doctor.text("buckets")
    assert "listpack" in doctor.text("buckets")
    assert doctor.text("parity").startswith("exact")


def test_strict_counts_warnings(doctor: Doctor, valkey: ValkeyProcess, bundle: Bundle) -> None:
    """No active snapshot is a warning: it fails only for who asks for that."""
    assert doctor(valkey.url, bundle.path) == 0
    assert doctor.level("pointer") == "warning"
    assert doctor(valkey.url, bundle.path, "--strict") == 1


def test_a_table_for_people(command: Command, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --json it is a table, one line at the end sums it up, and brackets are no markup."""
    monkeypatch.setenv("FORESCORE_REDIS__URL", valkey.url)
    monkeypatch.setenv("FORESCORE_[bold]", "1")
    assert command("doctor") == 0
    assert command.out.split()[:5] == ["level", "check", "found", "next", "step"]
    assert "FORESCORE_[bold] is not a setting" in command.out
    assert command.out.splitlines()[-1].endswith("0 failure")


@pytest.mark.parametrize("kind", ["dead", "hung", "LOADING", "NOAUTH", "rubbish"])
def test_a_store_that_does_not_answer_is_a_finding(doctor: Doctor, bundle: Bundle, kind: str) -> None:
    """Down, hung, loading, wanting a password or no store at all: one failure in bounded time, and the rest is told."""
    replies = {
        "LOADING": b"-LOADING in memory\r\n",
        "NOAUTH": b"-NOAUTH Authentication required.\r\n",
        "rubbish": b"hi",
    }
    told = {
        "dead": "cannot be reached",
        "hung": "in time",
        "LOADING": "loading",
        "NOAUTH": "NOAUTH",
        "rubbish": "store",
    }
    if kind == "dead":
        assert doctor(f"redis://{HOST}:{dead_port()}", bundle.path) == 1
    elif kind == "hung":
        with hung_server() as port:
            assert doctor(f"redis://{HOST}:{port}", bundle.path, "--timeout", 0.2) == 1
    else:
        with answering(replies[kind]) as url:
            assert doctor(url, bundle.path, "--timeout", 0.5) == 1
    assert doctor.level("store") == "failure"
    assert told[kind] in doctor.text("store")
    assert doctor.level("certified") == "ok"


def test_no_secret_is_told(doctor: Doctor, server: ValkeyProcess, command: Command) -> None:
    """A wrong password is a finding in which it does not stand."""
    with Redis(port=server.port) as client:
        client.config_set("requirepass", "right")
    assert doctor(f"redis://:hunter2@{HOST}:{server.port}") == 1
    assert "NOAUTH" in doctor.text("store")
    assert "hunter2" not in command.out + command.err


def test_a_misspelt_variable_is_found(doctor: Doctor, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not a setting has no effect, which nothing else would say; the nearest is named, the value is not."""
    monkeypatch.setenv("FORESCORE_HOMES", "secret")
    monkeypatch.setenv("FORESCORE_REDIS_URL", "secret")
    assert doctor(valkey.url) == 0
    assert doctor.level("variables") == "warning"
    assert "did you mean FORESCORE_HOME?" in doctor.text("variables")
    assert "FORESCORE_REDIS__URL" in doctor.text("variables")
    assert "secret" not in doctor.text("variables")


def test_a_setting_that_cannot_be_is_a_finding(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that no command would start with are told like everything else."""
    monkeypatch.setenv("FORESCORE_SERVICE__WORKER", "2")
    assert doctor(None) == 1
    assert "FORESCORE_SERVICE__WORKER:" in doctor.text("settings")
    assert "did you mean FORESCORE_SERVICE__WORKERS?" in doctor.text("variables")


def test_timeouts_must_fit_into_the_deadline(
    doctor: Doctor, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is waited for longer than a request may take makes each outage a 504."""
    monkeypatch.setenv("FORESCORE_REDIS__READ_TIMEOUT_MS", "600")
    assert doctor(valkey.url) == 1
    assert "600 ms x 2 = 1200 ms" in doctor.text("timeouts")


def test_a_bundle_that_does_not_load_is_a_finding(doctor: Doctor, valkey: ValkeyProcess, tmp_path: Path) -> None:
    """It is told beside all the others."""
    assert doctor(valkey.url, tmp_path) == 1
    assert "is not a bundle" in doctor.text("bundle")
    assert doctor.level("version") == "ok"


def test_an_engine_cache_that_others_may_write_to(
    doctor: Doctor, valkey: ValkeyProcess, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is run from there, so it is a failure."""
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines").chmod(0o777)
    monkeypatch.setenv("FORESCORE_ENGINE_CACHE", str(tmp_path / "engines"))
    assert doctor(valkey.url, bundle.path) == 1
    assert "chmod 700" in doctor.text("engine cache")


def test_more_threads_than_cores(doctor: Doctor, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would only wait for one another."""
    monkeypatch.setenv("FORESCORE_SERVICE__WORKERS", "200")
    monkeypatch.setenv("FORESCORE_THREADS", "2")
    doctor(valkey.url)
    assert doctor.level("threads") == "warning"
    assert "200 workers x 2 threads of a pass = 400" in doctor.text("threads")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({}, None),
    ],
)
def test_the_quota_of_a_container(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    """Both versions of cgroups are read, and a machine without them has none."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host.cpu_quota(tmp_path) == quota


def test_a_folder_that_cannot_be_written_to(
    doctor: Doctor, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by root: a run would end at its first part."""
    monkeypatch.setenv("FORESCORE_HOME", "/proc/self")
    assert doctor(valkey.url) == 1
    assert doctor.level("runs folder") == "failure"


def test_a_check_that_breaks_is_a_finding() -> None:
    """The others go on, and its message, which might hold a value, is not told."""

    def breaks(_: None) -> Iterator[Verdict]:
        raise KeyError("secret")
        yield

    def holds(_: None) -> Iterator[Verdict]:
        yield Verdict(Level.OK, "fine")

    found = list(run([Check("one", "x", breaks), Check("two", "x", holds)], None))
    assert [finding.level for finding in found] == [Level.FAILURE, Level.OK]
    assert "KeyError at test_doctor.py" in found[0].found
    assert "secret" not in found[0].found
