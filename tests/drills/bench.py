"""What the drills share: the world, and stages that are opened when they are first needed."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from drills.callers import Callers
from drills.drill import STILL_SERVING, Drill, Result
from drills.scene import Scene
from drills.stage import Stage, opened_stage
from drills.world import World

Told = Callable[[str], object]
PATIENT = {
    "FORESCORE_REDIS__READ_TIMEOUT_MS": "5000",
    "FORESCORE_FEATURES__TIMEOUT_MS": "10000",
    "FORESCORE_SERVICE__DEADLINE_MS": "20000",
}
KINDS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "wired": {"wired": True},
    "crew": {"workers": 2},
    "watched": {"workers": 2, "FORESCORE_SERVICE__HANG_SECONDS": "3"},
    "usual": {"usual": True},
    "compiled": {"usual": True, "FORESCORE_ENGINE": "compiled"},
    "patient": PATIENT,
}
"""``usual``: with the service's own times. ``patient``: nothing is given up because the machine is busy. ``watched``: a
worker that says nothing hangs after three seconds."""
CUT_OFF = {"crew", "watched"}
"""Where a process dies that had connections: callers ask again, once."""


class Bench:
    """Each stage is used by one drill after the other. After one that failed, the next gets a fresh one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stages: dict[str, tuple[Stage, ExitStack]] = {}
        self._opened = 0

    @cached_property
    def world(self) -> World:
        return World.made(self.folder / "world")

    def stage(self, kind: str) -> Stage:
        """The stage of that kind, opened if there is none."""
        if kind not in self._stages:
            self._opened += 1
            stack = ExitStack()
            folder = self.folder / f"{kind}-{self._opened}"
            with ExitStack() as opening:
                opening.push(stack)
                stage = stack.enter_context(opened_stage(self.world, folder, **KINDS[kind]))  # type: ignore[arg-type]
                opening.pop_all()
            self._stages[kind] = (stage, stack)
        return self._stages[kind][0]

    def discard(self, kind: str) -> None:
        """Closes the stage of that kind, whatever state it is in."""
        _, stack = self._stages.pop(kind)
        stack.close()

    def close(self) -> None:
        for kind in list(self._stages):
            self.discard(kind)

    def perform(self, drill: Drill, told: Told, kind: str | None = None) -> Result:
        """Does one drill, telling each of its steps, on a stage of its own kind or of another one."""
        kind = kind or drill.stage
        scene = Scene(drill, self.stage(kind))
        stage, started, serves = scene.stage, time.monotonic(), False
        callers = Callers(stage.url, stage.unseen, retries=drill.stage in CUT_OFF)
        try:
            with callers.asking():
                for step in drill.act(scene):
                    told(step)
            scene.judge(callers.answers)
            scene.still_serving()
            serves = not scene.lost
        except (AssertionError, OSError, KeyError) as error:
            scene.lost.append(f"the drill broke off: {type(error).__name__}: {error}"[:300])
        seconds = time.monotonic() - started
        told(STILL_SERVING if serves else "NOT serving as it should: " + "; ".join(scene.lost[:3]))
        if not serves:
            self.discard(kind)
        return _result(scene, callers, serves=serves, seconds=seconds)


def _result(scene: Scene, callers: Callers, *, serves: bool, seconds: float) -> Result:
    notes = [*scene.notes, *([f"{callers.cut} cut off and asked again"] if callers.cut else [])]
    return Result(
        name=scene.drill.name,
        done=scene.drill.done,
        lost=tuple(scene.lost),
        recovery=scene.recovery,
        serves=serves,
        seconds=seconds,
        asked=len(callers.answers),
        refused=scene.refused,
        slowest=max((answer.seconds for answer in callers.answers), default=0.0),
        notes=tuple(notes),
    )


@contextmanager
def opened_bench(folder: Path) -> Iterator[Bench]:
    """A bench in that folder; nothing of the machine's own settings reaches it."""
    for name in [name for name in os.environ if name.startswith("FORESCORE_")]:
        del os.environ[name]
    bench = Bench(folder)
    try:
        yield bench
    finally:
        bench.close()
