"""``forescore schedule`` is killed, paused and has company. Each begins two nights after the last good run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.commands import CommandProcess
from support.servers import wait_until

from batch_job.manifest import read_manifest
from drills.drill import drill
from drills.scene import Scene
from drills.stage import Stage

TWO_NIGHTS = -2 * 86_400.0
PATIENCE_SECONDS = 600


class Night:
    """A table that is due, and the processes that are started to score it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.edition = stage.world.new_number()
        self.started: list[CommandProcess] = []
        self._folders = set((stage.home / "runs").iterdir())

    def start(self, command: str) -> CommandProcess:
        """Starts ``forescore schedule`` or ``forescore backfill`` over the table."""
        stage = self.stage
        folder = stage.folder / f"{command}-{stage.world.new_number()}"
        arguments = [command, str(stage.world.bundle()), str(stage.world.table(self.edition))]
        self.started.append(CommandProcess(folder, stage.environment, arguments))
        return self.started[-1]

    def note(self) -> int:
        """Lets the world know the snapshots of the runs that were begun since; how many."""
        folders = set((self.stage.home / "runs").iterdir()) - self._folders
        manifests = [manifest for folder in folders if (manifest := read_manifest(folder)) is not None]
        self.stage.world.snapshots.update({manifest.snapshot: self.edition for manifest in manifests})
        return len(manifests)

    def is_served(self) -> bool:
        """Whether the service has the right score of this edition."""
        self.note()
        answer = self.stage.get("K0")
        snapshot = answer.body.get("snapshot") if answer.status == 200 else None
        return (
            self.stage.world.snapshots.get(snapshot) == self.edition
            and self.stage.world.fault("K0", answer.body) is None
        )

    def is_held(self) -> bool:
        with self.stage.store() as store:
            return store.leases.holder() is not None


@contextmanager
def night(scene: Scene) -> Iterator[Night]:
    """What is active was scored two nights ago, and what was active since is forgotten: it would be a night that is
    done and was taken back."""
    stage = scene.stage
    run = stage.new_run()
    scene.ends(run, 0, clock_shift=TWO_NIGHTS)
    with stage.redis() as redis:
        redis.delete(stage.keys.history())
    made = Night(stage)
    try:
        yield made
    finally:
        for process in made.started:
            with suppress(ProcessLookupError):
                process.process.send_signal(signal.SIGCONT)
            process.kill()
        made.note()


@drill("kill -9 of the scheduler while its run is at work; another scheduler is started")
def schedule_killed(scene: Scene) -> Iterator[str]:
    with night(scene) as due:
        first = due.start("schedule")
        wait_until(due.is_held, PATIENCE_SECONDS)
        first.kill()
        yield "the scheduler is killed, its run is at work"
        second = due.start("schedule")
        scene.recovers(due.is_served, PATIENCE_SECONDS)
        wait_until(second.is_ready, PATIENCE_SECONDS)
        scene.expect(second.end() == 0, "the second scheduler did not end in good order")
        scene.expect(due.note() == 1, f"the night was scored {due.note()} times")
        yield "the night is done, once"


@drill("SIGSTOP of the scheduler while its run is at work, then SIGCONT")
def schedule_paused(scene: Scene) -> Iterator[str]:
    with night(scene) as due:
        scheduler = due.start("schedule")
        wait_until(due.is_held, PATIENCE_SECONDS)
        scheduler.process.send_signal(signal.SIGSTOP)
        wait_until(due.is_served, PATIENCE_SECONDS)
        yield "its run has ended while it was paused"
        scheduler.process.send_signal(signal.SIGCONT)
        scene.recovers(scheduler.is_ready, PATIENCE_SECONDS)
        scene.expect(scheduler.end() == 0, "it did not end in good order")
        scene.expect(due.note() == 1, f"the night was scored {due.note()} times")
        yield "woken, it found the night done"


@drill("two schedulers and a backfill of the same table are started at once")
def all_at_once(scene: Scene) -> Iterator[str]:
    with night(scene) as due, scene.stage.store() as store:
        before = len(store.catalogue.history())
        schedulers = [due.start("schedule"), due.start("schedule")]
        backfill = due.start("backfill")
        scene.recovers(due.is_served, PATIENCE_SECONDS)
        code = backfill.code()
        for scheduler in schedulers:
            wait_until(scheduler.is_ready, PATIENCE_SECONDS)
        refused = "the lease is held by" in backfill.errors
        scene.expect(code == 0 or refused, f"the backfill ended with {code}: {backfill.errors[-200:]}")
        flips, runs = len(store.catalogue.history()) - before, due.note()
        scene.expect(1 <= flips == runs <= 2, f"{flips} flips by {runs} runs")
        ends = [scheduler.end() for scheduler in schedulers]
        scene.expect(ends == [0, 0], f"the schedulers ended with {ends}")
        scene.expect(store.leases.holder() is None, "the lease is still held")
        scene.notes.append(f"{runs} run(s); the backfill was {'refused' if code else 'one of them'}")
        yield "each flip is one run's, and no two ran at the same time"


@drill("the clock of service and scheduler jumps two days ahead, then back by two days more")
def clock_jumps(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    stage.published()
    scheduled = Night(stage)
    try:
        scheduler = scheduled.start("schedule")
        wait_until(scheduler.is_ready, PATIENCE_SECONDS)
        first = scheduled.note()
        stage.set_clock(-TWO_NIGHTS)
        yield "two days ahead"
        scene.recovers(scheduled.is_served, PATIENCE_SECONDS)
        yield "the scheduler has made up for the night"
        stage.set_clock(TWO_NIGHTS)
        wait_until(lambda: stage.get("K0").body["age_seconds"] == 0, 20)
        yield "two days back: no age is negative"
        wait_until(lambda: bool(scheduler.readiness()), 20)
        scene.expect(scheduled.note() == first + 1, f"{scheduled.note() - first} runs in place of one")
        stage.set_clock(0)
        scene.expect(scheduler.end() == 0, "the scheduler did not end in good order")
    finally:
        stage.set_clock(0)
        scheduled.started[0].kill()
        scheduled.note()
