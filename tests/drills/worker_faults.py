"""One of two workers is killed, paused or hangs. Callers ask again what was cut off, as clients do."""

import os
import signal
from collections.abc import Iterator

import httpx2
from support.servers import wait_until

from drills.drill import drill
from drills.scene import Scene
from drills.stage import READY_SECONDS

FRESH_CALLS = 30


@drill("kill -9 of one of two workers", stage="crew")
def worker_killed(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    ready, victim = _readies(scene), stage.workers()[0]
    os.kill(victim, signal.SIGKILL)
    scene.recovers(lambda: stage.is_cached(run))
    yield "the other one answers"
    _is_replaced(scene, victim, ready)
    yield "the one that was killed is replaced"


@drill("SIGSTOP of one of two workers, then SIGCONT", stage="crew")
def worker_paused(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    victim = stage.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        for _ in range(FRESH_CALLS):
            answer = httpx2.get(f"{stage.url}/score/K0", timeout=10)
            scene.expect(answer.status_code == 200, f"a new connection was answered {answer.status_code}")
        yield f"{FRESH_CALLS} new connections were answered by the other one"
    finally:
        os.kill(victim, signal.SIGCONT)
    scene.recovers(lambda: stage.is_cached(run))
    yield "it goes on"


@drill("one of two workers hangs for good (SIGSTOP without SIGCONT): it must be found out", stage="watched")
def worker_hung(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    ready, victim = _readies(scene), stage.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    yield "one says nothing any more"
    scene.recovers(lambda: victim not in stage.workers() and stage.is_cached(run))
    scene.expect('"event":"worker hangs"' in stage.server.errors, "the log does not say that it hung")
    yield "it is killed"
    _is_replaced(scene, victim, ready)
    yield "and replaced"


def _is_replaced(scene: Scene, victim: int, ready: int) -> None:
    """``ready``: how often workers had said so before it was struck."""
    wait_until(lambda: _readies(scene) > ready, READY_SECONDS)
    workers = scene.stage.workers()
    scene.expect(len(workers) == 2 and victim not in workers, f"the workers are {workers}")


def _readies(scene: Scene) -> int:
    """How often workers have said that they are ready."""
    return scene.stage.server.errors.count('"event":"ready"')
