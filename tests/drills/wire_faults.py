"""The wire between the service and its store: slow, cutting, torn, half-open."""

from collections.abc import Iterator

from support.proxy import BadWire
from support.servers import wait_until

from drills.drill import drill
from drills.scene import Scene

SLOW, TOO_SLOW = 0.02, 1.5
FAILOVERS = 20
TORN_BYTES = 700


@drill("every reply of the store is 20 ms late, then 1.5 s (more than a look-up waits)", stage="wired", refuses=True)
def wire_slow(scene: Scene) -> Iterator[str]:
    stage, wire = scene.stage, _wire(scene)
    run = stage.published()
    wire.delay = SLOW
    wait_until(lambda: stage.is_cached(run), 20)
    yield "a little slow: the cache answers"
    wire.delay = TOO_SLOW
    scene.degraded()
    yield "too slow: who has features is scored online"
    wire.mend()
    scene.recovers(lambda: stage.is_cached(run))
    yield "fast again"


@drill("all connections to the store are reset, twenty times in a row", stage="wired", refuses=True)
def wire_cut(scene: Scene) -> Iterator[str]:
    stage, wire = scene.stage, _wire(scene)
    run = stage.published()
    before = wire.open
    for _ in range(FAILOVERS):
        wire.cut()
        wait_until(lambda: stage.is_cached(run), 20)
    yield f"{FAILOVERS} failovers, each over before the next"
    wire.cut()
    scene.recovers(lambda: stage.is_cached(run))
    wait_until(lambda: wire.open <= before + 2, 20)
    yield "no more connections are open than before"


@drill("every connection to the store ends in the middle of a reply", stage="wired", refuses=True)
def wire_torn(scene: Scene) -> Iterator[str]:
    stage, wire = scene.stage, _wire(scene)
    run = stage.published()
    wire.torn = TORN_BYTES
    wire.cut()
    yield f"torn after {TORN_BYTES} bytes of replies"
    scene.degraded()
    wire.mend()
    scene.recovers(lambda: stage.is_cached(run))
    yield "whole again"


@drill("the store's host vanishes: connections stay open and nothing comes (half-open)", stage="wired", refuses=True)
def wire_half_open(scene: Scene) -> Iterator[str]:
    stage, wire = scene.stage, _wire(scene)
    run = stage.published()
    wire.dead = True
    yield "nothing is passed on, nothing is closed"
    scene.degraded()
    wire.mend()
    scene.recovers(lambda: stage.is_cached(run))
    yield "new connections lead to the store; the old ones never answer"


def _wire(scene: Scene) -> BadWire:
    wire = scene.stage.wire
    assert wire is not None
    return wire
