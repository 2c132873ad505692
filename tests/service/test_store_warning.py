"""F2: a store that may drop scores is told of when the service starts; whatever the store does, the service starts."""

import io
import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis import Redis
from support.servers import ValkeyProcess, hung_server, start_valkey, wait_until
from support.services import service_settings, serving

from service.worker import looks_at_store, parse
from shared.scorer import Scorer
from shared.settings import RedisSettings
from shared.store import inspection


def warnings(log: str) -> list[dict[str, str]]:
    """The lines of the log that tell of a store's set-up."""
    return [line for line in map(json.loads, log.splitlines()) if line["event"] == "store is not set up well"]


def test_the_service_warns_once_of_a_store_that_evicts(scorer: Scorer, tmp_path: Path, log: io.StringIO) -> None:
    """One line with what was found and what to do."""
    with start_valkey(tmp_path, "--maxmemory-policy", "allkeys-lru") as server:
        settings = service_settings(scorer, redis=RedisSettings(url=SecretStr(server.url)))
        with serving(scorer, settings=settings):
            wait_until(lambda: bool(warnings(log.getvalue())))
    [line] = warnings(log.getvalue())
    assert line["level"] == "warning"
    assert "maxmemory-policy allkeys-lru" in line["found"]
    assert "CONFIG SET maxmemory-policy noeviction" in line["next_step"]


@pytest.mark.parametrize(
    ("number", "options", "looks"), [("1", [], True), ("2", [], False), ("1", ["--replaces"], False)]
)
def test_of_several_workers_one_looks(number: str, options: list[str], *, looks: bool) -> None:
    """The first one, and not the one that takes its place after it died."""
    given = ["--number", number, "--listener", "3", "--channel", "4", "--metrics", "m", *options]
    assert looks_at_store(parse(given)) is looks


def test_a_worker_that_does_not_look_says_nothing(scorer: Scorer, tmp_path: Path, log: io.StringIO) -> None:
    """What another worker says is not said twice."""
    with start_valkey(tmp_path, "--maxmemory-policy", "allkeys-lru") as server, Redis(port=server.port) as client:
        settings = service_settings(scorer, redis=RedisSettings(url=SecretStr(server.url)))
        with serving(scorer, settings=settings, looks_at_store=False) as opened:
            assert opened.get("/score/nobody").status_code == 404
        assert "cmdstat_info" not in client.info("commandstats")
    assert warnings(log.getvalue()) == []


def test_a_store_that_hangs_holds_nothing_up(scorer: Scorer, log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is given up in time, says nothing, and was in nobody's way."""
    monkeypatch.setattr(inspection, "SECONDS", 0.05)
    with hung_server() as port:
        url = SecretStr(f"redis://127.0.0.1:{port}")
        settings = service_settings(scorer, redis=RedisSettings(url=url, read_timeout_ms=50), features="none")
        with serving(scorer, settings=settings) as client:
            assert client.get("/readyz").json()["status"] == "degraded"
    assert warnings(log.getvalue()) == []
    assert "never retrieved" not in log.getvalue()


def test_a_store_that_is_set_up_well_is_no_news(scorer: Scorer, valkey: ValkeyProcess, log: io.StringIO) -> None:
    """Nothing is said where nothing is wrong."""
    asked: list[object] = []
    settings = service_settings(scorer, redis=RedisSettings(url=SecretStr(valkey.url), read_timeout_ms=5000))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inspection, "tell", asked.append)
        with serving(scorer, settings=settings):
            wait_until(lambda: bool(asked))
    assert asked == [[]]
    assert warnings(log.getvalue()) == []
