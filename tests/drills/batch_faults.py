"""The backfill is killed, paused and overtaken."""

import signal
from collections.abc import Iterator

from support.commands import CommandProcess
from support.servers import wait_until

from drills.drill import drill
from drills.scene import Scene

BRIEFLY = 1.0


@drill("kill -9 of the backfill at each of its steps; the same command again each time")
def batch_killed(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    clean = stage.new_run()
    scene.ends(clean, 0)
    parts, steps = clean.parts(), clean.steps
    for at in range(1, len(steps) + 1):
        run = stage.new_run(edition=clean.edition)
        code = run.start(at=at).code()
        run.note()
        scene.expect(code == -signal.SIGKILL, f"it was not killed at step {at}: {code}")
        scene.ends(run, 0)
        scene.accounted(run)
        scene.expect(run.parts() == parts, f"other parts after a kill at {steps[at - 1]!r}")
    yield f"killed and resumed at {len(steps)} steps"
    scene.recovers(lambda: stage.is_cached(run))
    yield "every time with the parts of a run that nobody disturbed"


@drill("kill -9 of the command forescore backfill between two parts; the same command again")
def command_killed(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.new_run()
    arguments = ["backfill", str(stage.world.bundle()), str(stage.world.table(run.edition)), "--out", str(run.out)]
    arguments += ["--chunk-size", "1"]
    first = CommandProcess(stage.folder / f"{run.out.name}-first", stage.environment, arguments)
    try:
        wait_until(lambda: any((run.out / "parts").glob("part-*")), 300)
    finally:
        first.kill()
    run.note()
    made = len(list((run.out / "parts").glob("part-*")))
    yield f"killed with {made} of {2 + 47} parts made"
    again = CommandProcess(stage.folder / f"{run.out.name}-again", stage.environment, arguments)
    code = again.code()
    scene.expect(code == 0, f"the same command ended with {code}: {again.errors[-200:]}")
    scene.recovers(lambda: stage.is_cached(run))
    scene.accounted(run)
    yield "resumed, published and promoted"


@drill("SIGSTOP of the backfill in the middle of its parts, then SIGCONT")
def batch_paused(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.new_run()
    paused = run.start(at="part-00000.parquet renamed", how="stop")
    run.note()
    yield "paused"
    paused.signal(signal.SIGCONT)
    scene.recovers(lambda: stage.is_cached(run))
    scene.expect(paused.code() == 0, f"it failed: {paused.errors[:200]}")
    scene.accounted(run)
    yield "it went on and was promoted"


@drill("SIGSTOP of the backfill that holds the lease until another has published; then SIGCONT: it must be fenced")
def holder_fenced(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    sleeper, other = stage.new_run(), stage.new_run()
    asleep = sleeper.start(at="ready", how="stop", lease_seconds=BRIEFLY)
    sleeper.note()
    with stage.store() as store:
        wait_until(lambda: store.leases.holder() is None, 20)
    yield "the holder sleeps past its lease"
    scene.ends(other, 0)
    scene.recovers(lambda: stage.is_cached(other))
    asleep.signal(signal.SIGCONT)
    code = asleep.code()
    scene.expect(code == 1 and "Fenced" in asleep.errors, f"the sleeper ended with {code}: {asleep.errors[:200]}")
    scene.expect(stage.is_cached(other), "the sleeper has flipped the pointer")
    yield "woken, it is fenced; the other's scores stay"
