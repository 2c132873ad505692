"""Under load: flips and the removal of snapshots, callers who leave, and a rolling restart."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import orjson
from support.balancing import READY_SECONDS, Balancer, Instance
from support.servers import HOST, wait_until
from support.snapshots import promote, rollback

from drills.callers import Answer, get
from drills.drill import drill
from drills.scene import Scene
from drills.world import KNOWN, live_row

FLIPS = 20
LEAVING = 1_000
CALLS = 50


@drill("20 promotions and rollbacks between two versions under load, and the one not active is retired")
def flips_under_load(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    second = stage.published("2")
    first = stage.published("1")
    runs = {False: first, True: second}
    with stage.store() as store:
        for number in range(FLIPS):
            if number % 4 == 3:
                rollback(store)
            else:
                promote(store, runs[number % 2 == 0].manifest.snapshot)
            active = store.catalogue.active()
            assert active is not None
            run = first if active.meta.snapshot == first.manifest.snapshot else second
            scene.recovers(lambda run=run: stage.is_cached(run))  # type: ignore[misc]
        yield f"{FLIPS} flips, each seen"
        promote(store, first.manifest.snapshot)
        wait_until(lambda: stage.is_cached(first), 20)
        name = second.manifest.snapshot
        meta = next(row.meta for row in store.catalogue.snapshots() if row.meta.snapshot == name)
        store.control.retire(name)
        left = store.writer.count(meta)
        scene.expect(left == 0, f"{left} entities of the retired snapshot are left")
    scene.expect(stage.is_cached(first), "the active snapshot was touched")
    yield "the other one is retired"


@drill("1,000 callers leave before they are answered; then 1,000 stay")
def cancelled_callers(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    port = httpx2.URL(stage.url).port
    assert port is not None
    for number in range(LEAVING):
        _leave(port, _request(scene, number))
    yield f"{LEAVING} have left"
    scene.recovers(lambda: stage.is_cached(run))
    with ThreadPoolExecutor(8) as pool:
        answers = [one for some in pool.map(lambda _: _stay(scene), range(8)) for one in some]
    scene.judge(answers)
    good = sum(answer.status == 200 for answer in answers)
    scene.expect(good == LEAVING, f"{good} of {LEAVING} were answered")
    yield f"{good} who stayed were answered"


@drill("two instances behind a load balancer are restarted one after the other under load")
def rolling_restart(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    right = stage.world.batch_scores(run.version, run.edition)
    expected = {entity: float(str(right[entity])) for entity in KNOWN[:8]}
    environment = {**stage.environment, "FORESCORE_SERVICE__DRAIN_SECONDS": "2"}
    with ExitStack() as stack:
        folder = stage.folder / f"rolling-{stage.world.new_number()}"
        folder.mkdir()
        instances = [Instance(folder / name, stage.world.bundle(), environment) for name in ("a", "b")]
        for instance in instances:
            stack.callback(lambda each: each.process.stop(), instance)
        for instance in instances:
            wait_until(instance.is_ready, READY_SECONDS)
        balancer = Balancer([instance.url for instance in instances], expected)
        with balancer.busy(callers=2):
            for instance in instances:
                balancer.wait_answered(by=instance.url, calls=CALLS)
            for instance in instances:
                scene.expect(instance.restart() == 0, "an instance did not end in good order")
                balancer.wait_answered(by=instance.url, calls=CALLS)
                yield "one is restarted"
        scene.lost += balancer.failed
        scene.notes.append(f"{sum(balancer.answered.values())} calls, {len(balancer.failed)} failed")


def _request(scene: Scene, number: int) -> bytes:
    """A hit, a miss, or a list with features, in turns."""
    if number % 3 == 2:
        body = orjson.dumps({"items": [{"features": live_row(f"U{number}")}] * 4})
        head = f"POST /score HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        return head.encode() + b"\r\n\r\n" + body
    entity = scene.stage.unseen.next() if number % 3 else KNOWN[number % len(KNOWN)]
    return f"GET /score/{entity} HTTP/1.1\r\nHost: d\r\n\r\n".encode()


def _leave(port: int, request: bytes) -> None:
    """Sends it and resets the connection at once."""
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request)


def _stay(scene: Scene) -> list[Answer]:
    with httpx2.Client(base_url=scene.stage.url, timeout=15) as client:
        return [
            get(client, scene.stage.unseen.next() if number % 4 == 0 else KNOWN[number % len(KNOWN)])
            for number in range(LEAVING // 8)
        ]
