"""The fast lane and the framework give the same answers, to the byte; only ids and times of a request differ."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.publish import meta_of, publish, write
from support.servers import wait_until
from support.services import service_settings, serving
from support.snapshots import promote

from service.app import create_app
from shared.codes import Code
from shared.errors import StoreDown
from shared.schema import Binary, MultiClass, MultiLabel, Output, Regression
from shared.scorer import Scorer
from shared.snapshot import Absent, Lookup, Lost, SnapshotMeta
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
SCORED_AT = 1_700_000_000
NOW = SCORED_AT + 3600.5
OF_A_REQUEST = {"x-request-id", "server-timing", "date"}
IDS = ["a", "kg/s", "a b", " a ", "100%", "\u65e5\u672c", 'q"uote', "back\\slash", "{x}:*", "007", "+7", "x" * 256]
OUTPUTS: dict[str, tuple[Output, ...]] = {
    "binary": (Binary("buys"),),
    "threshold": (Binary("buys", threshold=0.7),),
    "classes": (Binary("buys", classes=("no", "yes \u00e9"), threshold=0.5),),
    "multiclass": (MultiClass("next", classes=("a", 'b"', "c")),),
    "labels": (MultiLabel("tags", classes=("x", "y", "z")),),
    "labels with threshold": (MultiLabel("tags", classes=("x", "y"), threshold=0.1),),
    "regression": (Regression("spend"),),
    "several": (Binary("buys", threshold=0.5), Regression("spend"), MultiClass("next", classes=("a", "b"))),
}
FLOATS = [
    0.7,
    0.69999999,
    0.5,
    0.1,
    0.1000001,
    0.0,
    -0.0,
    1.0,
    1e-7,
    1.5e-45,
    3.4e38,
    -12.5,
    1e5,
    123456.79,
    1e-4,
    9.99e-5,
    16777216.0,
]
PATHS = [
    *(
        f"/score/{path}"
        for path in ("a", "kg%2Fs", "kg/s", "a%20b", "%E6%97%A5%E6%9C%AC", "100%25", "+7", "%61", "007")
    ),
    *(f"/score/{path}" for path in ("nobody", "", "%20", "%", "%zz", "%FF", "%00", "a%0Ab", "x" * 256, "x" * 257)),
    *(f"/score/a?{query}" for query in ("", "snapshot=1-A", "snapshot=1-B", "model_version=1", "other=1")),
    *("/score", "/scores/a", "//score/a", "/score//a", "/score/rejected", "/score/broken", "/score/lost", "/"),
]
HEADERS: list[dict[str, str]] = [
    {},
    *(
        {"cache-control": text}
        for text in ("max-age=3600", "max-age=3599", "no-cache", "max-age=0, max-stale", "nonsense=")
    ),
    *({"cache-control": text} for text in ("only-if-cached", "only-if-cached, max-age=1", "max-age=1, max-stale=9999")),
    *({"if-none-match": text} for text in ("*", '"x"', 'W/"x"', "")),
    {"range": "bytes=0-1", "accept": "text/html", "expect": "x"},
]


def _lanes(scorer: Scorer, memory: MemoryStore, clock: FrozenClock, **service: Any) -> tuple[Any, Any]:
    """The same service twice: with the lane, and without."""
    settings = [service_settings(scorer, fast_lane=fast, **service) for fast in (True, False)]
    fast, slow = (serving(scorer, memory, one, wall=clock, monotonic=clock) for one in settings)
    return fast, slow


def _told(
    client: TestClient, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    answer = client.request(method, path, headers=dict(headers), content=body)
    told = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in OF_A_REQUEST]
    own = answer.headers["x-request-id"].encode()
    return answer.status_code, answer.content.replace(own, b"ID"), told


def _require_same(
    fast: TestClient, slow: TestClient, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> int:
    answer = _told(fast, method, path, headers, body)
    assert answer == _told(slow, method, path, headers, body), (method, path, headers)
    return answer[0]


def _filled(memory: MemoryStore, scorer: Scorer) -> SnapshotMeta:
    meta = publish(
        memory.store, scorer, dict.fromkeys([*IDS, "broken", "lost"], ROW), scored_at=SCORED_AT, data_as_of=1
    )
    write(memory.store, meta, {}, {"rejected": (Code.NOT_A_NUMBER, 1)})
    memory.corrupt(meta, "broken")
    return meta


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
def test_every_request_has_one_answer(scorer: Scorer, memory: MemoryStore, method: str) -> None:
    """Whatever the method, the path and the conditions: with and without the lane, status, headers and body agree."""
    _filled(memory, scorer)
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW))
    with fast_service as fast, slow_service as slow:
        statuses = {
            _require_same(fast, slow, method, path, headers)
            for path in PATHS
            for headers in (
                HEADERS if method in {"GET", "HEAD"} and path in {"/score/a", "/score/nobody"} else HEADERS[:1]
            )
        }
    assert {"GET": {200, 304, 404, 409, 422, 503, 504} <= statuses | {409}}.get(method, True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": [{"entity_id": "a"}]}',
        b'{"items": [{"entity_id": "unseen"}, {"entity_id": "nobody"}, {"entity_id": "rejected"}, {"entity_id": 7}]}',
        b'{"items": [{"features": {"visits": 2, "returns": 1, "basket": 0}}, {"features": {"visits": "x"}}]}',
        b'{"items": [{"entity_id": "a", "features": {"visits": 2}}, {"features": {"other": 2}}, {}, 1, "a"]}',
        *(b'{"items": []}', b"{}", b"[", b"", b'{"items": [NaN]}', b" " * 2_000_000),
    ],
)
def test_every_list_has_one_answer(scorer: Scorer, memory: MemoryStore, body: bytes) -> None:
    """A body that is a list, is none, or is too long: with and without the lane, status, headers and body agree."""
    _filled(memory, scorer)
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW), write_back=False)
    with fast_service as fast, slow_service as slow:
        assert fast.put("/features/unseen", json={"features": ROW}).status_code == 204
        for path in ("/score", "/score?x=1", "/score/", "/%73core"):
            for headers in ({}, {"cache-control": "only-if-cached"}):
                _require_same(fast, slow, "POST", path, headers, body)


def test_a_miss_has_one_answer(scorer: Scorer, memory: MemoryStore) -> None:
    """An entity that is scored online is told alike, with its conditions."""
    _filled(memory, scorer)
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW), write_back=False)
    with fast_service as fast, slow_service as slow:
        assert fast.put("/features/unseen", json={"features": ROW}).status_code == 204
        statuses = [_require_same(fast, slow, "GET", "/score/unseen", headers) for headers in HEADERS]
    assert {200, 304, 504} == set(statuses)


def test_an_answer_that_is_at_hand_is_304_on_both(scorer: Scorer, memory: MemoryStore) -> None:
    """The tag is the same one, whoever gave it: either takes the other's."""
    _filled(memory, scorer)
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW))
    with fast_service as fast, slow_service as slow:
        for entity in IDS[:3]:
            tag = slow.get(f"/score/{entity}").headers["etag"]
            assert _require_same(fast, slow, "GET", f"/score/{entity}", {"if-none-match": f'"x", W/{tag}'}) == 304


@pytest.mark.parametrize("kind", OUTPUTS)
def test_every_kind_of_output_is_written_alike(scorer: Scorer, memory: MemoryStore, kind: str) -> None:
    """Numbers at every edge, predictions on and beside the threshold, and names that need escapes."""
    outputs = OUTPUTS[kind]
    columns = sum(len(output.columns) for output in outputs)
    scores = {f"e{place}": [*FLOATS[place:], *FLOATS[:place]][:columns] for place in range(len(FLOATS))}
    meta = meta_of(scorer, "1-A", len(scores), outputs=outputs, golden_digest="of another host", scored_at=SCORED_AT)
    write(memory.store, meta, scores)
    promote(memory.store, meta.snapshot)
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW))
    with fast_service as fast, slow_service as slow:
        for entity in scores:
            assert _require_same(fast, slow, "GET", f"/score/{entity}", {}) == 200


def test_a_score_that_grew_too_old_is_left_to_the_framework(scorer: Scorer, memory: MemoryStore) -> None:
    """Before, at and after the age above which no score is served."""
    _filled(memory, scorer)
    clock = FrozenClock(NOW)
    fast_service, slow_service = _lanes(scorer, memory, clock, max_age_seconds=7200)
    with fast_service as fast, slow_service as slow:
        statuses = []
        for now in (SCORED_AT - 5, SCORED_AT + 7200, SCORED_AT + 7200.5, SCORED_AT + 7201):
            clock.time = now
            statuses.append(_require_same(fast, slow, "GET", "/score/a", {}))
    assert statuses == [200, 200, 503, 503]


def test_outages_and_promotions_are_told_alike(scorer: Scorer, memory: MemoryStore) -> None:
    """The store fails and returns, the pointer moves on and back, a snapshot is retired: one answer at each step."""
    fast_service, slow_service = _lanes(scorer, memory, FrozenClock(NOW))
    with fast_service as fast, slow_service as slow:
        statuses = [_require_same(fast, slow, "GET", "/score/a", {})]
        for snapshot in ("1-A", "1-B"):
            publish(memory.store, scorer, {"a": ROW, snapshot: ROW}, snapshot=snapshot, scored_at=SCORED_AT)
            for client in (fast, slow):
                wait_until(lambda client=client, snapshot=snapshot: _snapshot(client) == snapshot)  # type: ignore[misc]
            statuses += [_require_same(fast, slow, "GET", f"/score/{entity}", {}) for entity in ("a", "1-A", "1-B")]
        memory.failure = StoreDown("gone")
        statuses.append(_require_same(fast, slow, "GET", "/score/a", {}))
        memory.failure = None
        memory.store.control.retire("1-A")
        statuses.append(_require_same(fast, slow, "GET", "/score/a", {}))
    assert statuses == [404, 200, 200, 404, 200, 404, 200, 503, 200]


def _snapshot(client: TestClient) -> str | None:
    found: str | None = client.get("/score/a").json().get("snapshot")
    return found


def test_before_it_is_ready_both_say_so(scorer: Scorer, memory: MemoryStore) -> None:
    """A process that cannot become ready answers 503 either way."""
    answers = []
    for fast in (True, False):
        app = create_app(service_settings(fast_lane=fast))
        with TestClient(app) as client:
            wait_until(lambda client=client: client.get("/readyz").json()["status"] == "failed")  # type: ignore[misc]
            answers.append(_told(client, "GET", "/score/a", {}))
    assert answers[0] == answers[1]
    assert answers[0][0] == 503


@pytest.mark.parametrize(("entity", "trips"), [("a", ["peek"]), ("nobody", ["peek"]), ("lost", ["peek"])])
def test_nothing_is_looked_up_twice(scorer: Scorer, memory: MemoryStore, entity: str, trips: list[str]) -> None:
    """What the lane has found out goes with the request, be it a hit or not."""
    meta = _filled(memory, scorer)
    reader, asked = memory.async_store.reader, []
    peek, lookup = reader.peek, reader.lookup

    async def peeked(meta: SnapshotMeta, entity_id: bytes) -> bytes | Absent | Lost:
        asked.append("peek")
        return Lost("bucket") if entity_id == b"lost" else await peek(meta, entity_id)

    async def looked_up(meta: SnapshotMeta, ids: Sequence[str]) -> list[Lookup]:
        asked.append("lookup")
        return await lookup(meta, ids)

    reader.peek, reader.lookup = peeked, looked_up  # type: ignore[method-assign]
    with serving(scorer, memory) as client:
        assert client.get(f"/score/{entity}").status_code == (
            200 if entity == "a" else 404 if entity == "nobody" else 503
        )
        told = client.get("/metrics").text
    assert asked == trips
    assert meta.snapshot == "1-A"
    word = {"a": "hit", "nobody": "absent", "lost": "lost"}[entity]
    assert f'forescore_lookups_total{{outcome="{word}"}} 1.0' in told


def test_a_lane_that_may_not_be_in_time_is_not_taken(scorer: Scorer, memory: MemoryStore) -> None:
    """Where the store's limits are no tighter than the deadline, the route answers, under the deadline."""
    publish(memory.store, scorer, {"a": ROW})

    async def hung(_meta: SnapshotMeta, _entity: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    memory.async_store.reader.peek = hung  # type: ignore[method-assign,assignment]
    with serving(scorer, memory, service_settings(scorer, deadline_ms=160)) as client:
        assert client.get("/score/a").status_code == 200
