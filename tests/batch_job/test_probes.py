"""The schedule's own port."""

import json
import socket
from collections.abc import Iterator

import httpx2
import pytest
from support.schedule import World
from support.servers import wait_until

from batch_job import probes as port
from batch_job.outcome import FAILED
from batch_job.probes import probes
from shared.errors import SettingsError, StoreDown


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A host at 20:00 whose snapshot was scored at 18:00."""
    host = World(monkeypatch, "2026-11-29 18:00")
    host.publish()
    host.live("2026-11-29 20:00")
    yield host
    host.close()


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with probes(world.health, "127.0.0.1", 0) as url, httpx2.Client(base_url=url, timeout=10) as client:
        yield client


def test_alive_is_alive(client: httpx2.Client, world: World) -> None:
    """/livez looks at nothing, and so is 200 whatever is wrong."""
    world.memory.failure = StoreDown("gone")
    world.step()
    answer = client.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_ready_tells_of_the_snapshot_the_store_and_the_run(client: httpx2.Client, world: World) -> None:
    """The age against the greatest age, whether the store answers, the last outcome, the next run."""
    answer = client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["status"]) == (200, "ready")
    assert body["checks"]["snapshot"]["age_seconds"] == 7200
    assert body["checks"]["snapshot"]["max_age_seconds"] == 36 * 3600
    assert body["checks"]["store"] == {"reachable": True}
    assert body["checks"]["run"]["next_fire_at"] == "2026-11-30T02:00:00Z"
    assert body["checks"]["run"]["last_outcome"] is None
    world.plan.append(world.ended(FAILED, reason="why"))
    world.plan.append(world.ended(FAILED, reason="why"))
    world.plan.append(world.ended(FAILED, reason="why"))
    world.live("2026-11-30 03:00")
    body = client.get("/readyz").json()
    assert (body["checks"]["run"]["last_outcome"], body["checks"]["run"]["last_reason"]) == ("failed", "why")
    assert body["status"] == "ready"  # the alarm is on the age, and yesterday's scores are young enough


def test_not_ready_when_the_snapshot_is_too_old(client: httpx2.Client, world: World) -> None:
    """503, with the reason."""
    world.clock.advance(36 * 3600)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "the active snapshot is older than 129600 s"


def test_not_ready_while_the_store_is_down(client: httpx2.Client, world: World) -> None:
    """503, with the store's error; the probe itself does not wait for the store."""
    world.memory.failure = StoreDown("the store does not answer")
    world.step()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "the store does not answer"


def test_metrics_are_in_base_units(client: httpx2.Client, world: World) -> None:
    """Age in seconds, moments as epoch seconds, runs by outcome."""
    world.live("2026-11-30 02:00")
    world.clock.advance(540)
    lines = client.get("/metrics").text.splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(samples["forescore_schedule_snapshot_age_seconds"]) == 600
    assert float(samples["forescore_schedule_max_age_seconds"]) == 129_600
    assert float(samples["forescore_schedule_last_success_timestamp_seconds"]) == world.clock.now() - 600
    assert float(samples["forescore_schedule_next_fire_timestamp_seconds"]) == world.clock.now() - 600 + 86_400
    assert float(samples['forescore_schedule_runs_total{outcome="done"}']) == 1
    assert float(samples["forescore_schedule_last_run_duration_seconds"]) == 60
    assert float(samples["forescore_schedule_running"]) == 0
    assert float(samples["forescore_schedule_store_up"]) == 1


def test_what_is_not_there(client: httpx2.Client) -> None:
    """Another path is 404, another method 405, HEAD is answered without a body."""
    assert client.get("/score/1").status_code == 404
    assert client.post("/readyz").status_code == 405
    head = client.head("/livez")
    assert (head.status_code, head.content) == (200, b"")


def test_callers_who_say_nothing_hold_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many silent callers as there are slots: more are turned away, and when they are cut off it answers again."""
    monkeypatch.setattr(port._Handler, "timeout", 0.3)
    with probes(world.health, "127.0.0.1", 0) as url:
        host, number = url.removeprefix("http://").split(":")
        silent = [socket.create_connection((host, int(number)), timeout=10) for _ in range(port.MAX_CONNECTIONS)]
        wait_until(lambda: _answers(url))
        for connection in silent:
            connection.close()


def _answers(url: str) -> bool:
    try:
        return bool(json.loads(httpx2.get(f"{url}/livez", timeout=10).content))
    except httpx2.TransportError:
        return False


def test_a_port_that_is_taken_is_named(world: World) -> None:
    """The error names the port and the setting."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with (
            pytest.raises(SettingsError, match=rf"port {taken} on 127.0.0.1.*FORESCORE_SCHEDULE__PORT"),
            probes(world.health, "127.0.0.1", taken),
        ):
            pass
