"""docs/security.md: its lines are given to a real server, and a whole life goes well with exactly these users."""

import asyncio
import io
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from redis import Redis
from redis.exceptions import ResponseError
from support.command import Command
from support.servers import HOST, ValkeyProcess, start_valkey, wait_until
from support.services import service_settings, serving
from support.snapshots import load, promote, snapshot_meta
from support.stores import settings_for

from batch_job.doctor.permissions import denied_to_all, denied_to_reader
from shared.clock import MonotonicClock
from shared.errors import StoreRefused
from shared.layout import Keys
from shared.scorer import Scorer, open_scorer
from shared.settings import LimitSettings, RedisSettings, Settings
from shared.snapshot import Found
from shared.store.connect import open_async_store, open_rate_windows, open_store
from shared.store.interfaces import OnlineScore
from shared.telemetry import configure_logging
from shared.testing.bundles import purchase_bundle

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
KEYS = Keys("fs", "purchase")
USERS = {"service": "SERVICE_PASSWORD", "batch": "BATCH_PASSWORD", "doctor": "DOCTOR_PASSWORD"}


@dataclass(frozen=True)
class Guarded:
    """A server with the users of the page."""

    server: ValkeyProcess

    def url(self, who: str) -> str:
        return f"redis://forescore-{who}:{USERS[who]}@{HOST}:{self.server.port}"

    def settings(self, who: str) -> RedisSettings:
        return RedisSettings(url=SecretStr(self.url(who)), read_timeout_ms=5000)

    def client(self, who: str) -> Redis:
        return Redis(port=self.server.port, username=f"forescore-{who}", password=USERS[who])


def users_of_the_page() -> str:
    found = re.search(r"<!-- users -->\n\n```acl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "users.acl").write_text(users_of_the_page(), encoding="utf-8")
    with start_valkey(folder, "--aclfile", str(folder / "users.acl")) as server:
        yield Guarded(server)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return open_scorer(purchase_bundle(tmp_path_factory.mktemp("bundles") / "purchase"), device="cpu")


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, guarded: Guarded
) -> Command:
    """``forescore`` as the batch job's user."""
    monkeypatch.setenv("FORESCORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORESCORE_REDIS__URL", guarded.url("batch"))
    return Command(capsys)


def table(path: Path, visits: list[int]) -> Path:
    columns = {"visits": visits, "returns": [0] * len(visits), "basket": [2] * len(visits)}
    pq.write_table(pa.table({"customer_id": [f"C{place}" for place in range(len(visits))], **columns}), path)
    return path


def test_a_whole_life_with_these_users(
    guarded: Guarded, scorer: Scorer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publish, promote, serve, score a miss and write it back, put and forget features, roll back, retire."""
    bundle = scorer.bundle.path
    assert command("backfill", bundle, table(tmp_path / "one.parquet", [1, 0]), "--json") == 0, command.err
    first = command.json()["snapshot"]
    assert command("backfill", bundle, table(tmp_path / "two.parquet", [2, 1, 1]), "--json") == 0, command.err
    second = command.json()["snapshot"]

    settings = service_settings(scorer, redis=guarded.settings("service"))
    with serving(scorer, settings=settings) as client:
        hit = client.get("/score/C0")
        assert (hit.json()["snapshot"], hit.json()["source"]) == (second, "cache")
        assert client.get("/score/new").status_code == 404
        put = client.put("/features/new", json={"features": {"visits": 1, "returns": 0, "basket": 2}})
        assert put.status_code == 204, put.text
        missed = client.get("/score/new")
        assert (missed.json()["source"], missed.json()["scores"]) == ("online", {"buys": 0.8581489})
        assert missed.headers["cache-status"] == "forescore; fwd=miss; stored"
        wait_until(lambda: client.get("/score/new").json()["source"] == "cache")
        assert client.delete("/features/new").status_code == 204
        assert [row["active"] for row in client.get("/snapshots").json()["snapshots"]] == [True, False]

        assert command("rollback", "--json") == 0, command.err
        wait_until(lambda: client.get("/score/C0").json()["snapshot"] == first)

    assert command("get", "C0") == 0, command.err
    assert command("retire", str(second)) == 0, command.err
    assert command("snapshots", "--json") == 0, command.err
    assert second not in command.out

    monkeypatch.setenv("FORESCORE_REDIS__URL", guarded.url("doctor"))
    users = ("--reader", "forescore-service", "--writer", "forescore-batch")
    assert command("doctor", bundle, *users) == 0, command.out
    assert "not looked at" not in command.out
    assert "may also" not in command.out


@pytest.mark.parametrize("what", denied_to_reader(KEYS))
def test_the_service_is_refused(guarded: Guarded, what: str) -> None:
    """Whoever takes over the service can neither change what is served nor remove it."""
    with guarded.client("service") as client, pytest.raises(ResponseError, match=r"(?i)no permissions|ACL"):
        client.execute_command(*denied_to_reader(KEYS)[what])


@pytest.mark.parametrize(
    "command",
    [
        ("EVAL", "return redis.call('HSET', KEYS[1], 'snapshot', 'x')", 1, KEYS.active()),
        ("EVAL_RO", "return redis.call('HSET', KEYS[1], 'snapshot', 'x')", 1, KEYS.active()),
        ("EVAL", f"return redis.call('HSET', '{KEYS.active()}', 'snapshot', 'x')", 1, KEYS.bucket("1-A", 0)),
        ("EVAL", "return redis.call('DEL', KEYS[1])", 1, KEYS.bucket("1-A", 0)),
        ("HGETALL", KEYS.history()),
        ("GET", "another"),
        ("ACL", "LIST"),
    ],
)
def test_no_script_leads_around_it(guarded: Guarded, command: tuple[object, ...]) -> None:
    """What the service's user may not send, a script of its may not do either."""
    with guarded.client("service") as client, pytest.raises(ResponseError, match=r"(?i)no permissions|ACL|write"):
        client.execute_command(*command)


@pytest.mark.parametrize("what", denied_to_all())
@pytest.mark.parametrize("who", ["batch", "doctor"])
def test_the_others_are_refused_too(guarded: Guarded, who: str, what: str) -> None:
    """Neither the batch job nor the doctor may empty, list, configure, load into or end the server."""
    with guarded.client(who) as client, pytest.raises(ResponseError, match=r"(?i)no permissions"):
        client.execute_command(*denied_to_all()[what])


@pytest.mark.parametrize("key", [KEYS.active(), KEYS.lease(), KEYS.features("0"), KEYS.bucket("1-A", 0)])
def test_the_doctor_changes_nothing(guarded: Guarded, key: str) -> None:
    """It reads, and only reads."""
    with guarded.client("doctor") as client, pytest.raises(ResponseError, match=r"(?i)no permissions"):
        client.set(key, "x")


def test_a_cluster_needs_four_words_more(tmp_path: Path) -> None:
    """With what the page adds for a cluster, the batch job's user publishes there and the service's reads."""
    [words] = re.findall(r"before its brackets,\n`([^`]+)`", PAGE.read_text(encoding="utf-8"))
    users = re.sub(r"^(user forescore-[^(\n]*)", rf"\1 {words} ", users_of_the_page(), flags=re.MULTILINE)
    (tmp_path / "users.acl").write_text(users.replace("default off", "default on nopass +@all"), encoding="utf-8")
    arguments = ("--cluster-enabled", "yes", "--aclfile", str(tmp_path / "users.acl"))
    with start_valkey(tmp_path, *arguments) as server, Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        batch, service = (Guarded(server).url(who).replace("redis:", "redis+cluster:") for who in ("batch", "service"))
        with open_store(settings_for(batch, "fs"), "churn") as store:
            meta = load(store, snapshot_meta(entities=1), {"a": 0.5})
            promote(store, meta.snapshot)

        async def served() -> list[bool]:
            async with open_async_store(settings_for(service, "fs"), "churn") as reading:
                active = await reading.reader.active()
                assert active is not None
                assert isinstance((await reading.reader.lookup(active.meta, ["a"]))[0], Found)
                await reading.features.write("b", b"{}", 60)
                score = OnlineScore(entity_id="b", scores=(0.5,), scored_at=1)
                return await reading.online.write_back(active.meta, [score])

        assert asyncio.run(served()) == [True]
        assert client.acl_log() == []


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Guarded, Redis]]:
    """A server with the users of the page, and one more who may read its ACL log."""
    users = users_of_the_page().replace("default off", "default on nopass ~* +@all")
    (tmp_path / "users.acl").write_text(users, encoding="utf-8")
    arguments = ("--aclfile", str(tmp_path / "users.acl"))
    with start_valkey(tmp_path, *arguments) as server, Redis(port=server.port) as client:
        yield Guarded(server), client


def test_rates_are_counted_in_the_store_with_these_users(watched: tuple[Guarded, Redis], scorer: Scorer) -> None:
    """The service's user counts rows there, its scripts too: beyond the limit 429, and the server refused nothing."""
    guarded, client = watched
    limits = LimitSettings(rate="2/day", storage="store")
    settings = service_settings(scorer, redis=guarded.settings("service")).model_copy(update={"limits": limits})
    with serving(scorer, settings=settings) as first, serving(scorer, settings=settings) as second:
        statuses = [one.get("/score/nobody").status_code for one in (first, second, first, second)]
        refused = first.get("/score/nobody")
        assert "forescore_rates_unknown_total 0.0" in first.get("/metrics").text
    assert statuses == [404, 404, 429, 429]
    assert refused.headers["ratelimit-policy"] == '"all";q=2;w=86400'
    assert client.acl_log() == []


def test_a_window_of_rates_may_end_with_these_users(watched: tuple[Guarded, Redis]) -> None:
    """Also the commands of a window that ends, which a script sends only then, are allowed."""
    guarded, client = watched
    settings = Settings(redis=guarded.settings("service"))

    async def counted() -> list[bool]:
        async with open_rate_windows(settings, MonotonicClock()) as windows:
            taken = [await windows.acquire("a", 5, 60, 2)]
            client.pexpire("fs:rate:{a}", 59_000)  # as if its minute were over
            taken.append(await windows.acquire("a", 5, 60, 2))
            client.pexpire("fs:rate:{a}", 59_000)
            await windows.window("a", 60)
            return taken

    assert asyncio.run(counted()) == [True, True]
    assert client.exists("fs:rate:{a}/-1")
    assert client.acl_log() == []


@pytest.mark.parametrize(("storage", "code"), [("store", 1), ("memory", 0)])
def test_the_doctor_knows_what_rates_need(
    watched: tuple[Guarded, Redis],
    scorer: Scorer,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    storage: str,
    code: int,
) -> None:
    """A service's user that may not count is a failure where the store is to count, and nowhere else."""
    guarded, client = watched
    monkeypatch.setenv("FORESCORE_REDIS__URL", guarded.url("doctor"))
    monkeypatch.setenv("FORESCORE_LIMITS__RATE", "2/day")
    monkeypatch.setenv("FORESCORE_LIMITS__STORAGE", storage)
    arguments = ("doctor", scorer.bundle.path, "--reader", "forescore-service", "--writer", "forescore-batch")
    assert command(*arguments) == 0, command.out
    [brackets] = re.findall(r"\(%RW~fs:rate[^)]*\)", users_of_the_page())
    rules = users_of_the_page().splitlines()[1].replace(brackets, "").split()[2:]
    client.execute_command("ACL", "SETUSER", "forescore-service", "reset", *_rules(rules))
    assert command(*arguments) == code, command.out
    assert ("count rows" in command.out) == (storage == "store")


def _rules(words: list[str]) -> list[str]:
    """What is in brackets is one argument."""
    return [word.strip() for word in re.findall(r"\([^)]*\)|\S+", " ".join(words))]


def test_a_service_that_may_not_ask_says_nothing(watched: tuple[Guarded, Redis], scorer: Scorer) -> None:
    """Without the right to ask the server how it is set up, the service starts as ever, without a warning."""
    guarded, client = watched
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.execute_command("ACL", "SETUSER", "forescore-service", "-info")
    stream = io.StringIO()
    configure_logging(Settings(log_format="json", log_level="debug"), stream)
    with serving(scorer, settings=service_settings(scorer, redis=guarded.settings("service"))) as opened:
        wait_until(lambda: [entry["object"] for entry in client.acl_log()] == ["info"])
        assert opened.get("/score/nobody").status_code == 404
    assert '"event":"ready"' in stream.getvalue()
    assert "warning" not in stream.getvalue()


def test_nobody_is_the_default_user(guarded: Guarded) -> None:
    """Without a name and a password nothing is answered."""
    with socket.create_connection((HOST, guarded.server.port), timeout=10) as connection:
        connection.sendall(b"GET x\r\n")
        assert connection.recv(8) == b"-NOAUTH "


def test_a_refusal_inside_a_script_is_told_as_such(guarded: Guarded) -> None:
    """A writer's call with the service's user says that the user may not do this, and not that a script failed."""
    settings = service_settings(redis=guarded.settings("service"))
    with open_store(settings, "purchase") as store, pytest.raises(StoreRefused, match="NOPERM"):
        store.leases.acquire("test", 1)
