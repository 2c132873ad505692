"""One drill on its stage: what it lost, how long it took to recover, and whether all is still served afterwards."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from support.servers import wait_until

from drills.callers import Answer
from drills.drill import Drill
from drills.stage import Run, Stage
from drills.world import KNOWN

RECOVERY_SECONDS = 60.0
REFUSALS = {503, 504}


@dataclass
class Scene:
    """``lost``: all that went wrong and must not."""

    drill: Drill
    stage: Stage
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recovery: float | None = None
    refused: int = 0

    def expect(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - read as an assertion
        """What does not hold is lost."""
        if not holds:
            self.lost.append(otherwise)

    def ends(self, run: Run, code: int, saying: str = "", **given: object) -> None:
        """The run must end with that exit code, and say why."""
        found = run.complete(**given)
        self.expect(found == code and saying in run.errors, f"backfill ended with {found}: {run.errors[:200]}")

    def accounted(self, run: Run) -> None:
        """Every row of the run's table must have become something."""
        counts = run.manifest.counts
        found = (counts.input, counts.scored, counts.rejected, counts.duplicate)
        right = (len(KNOWN) + 1, len(KNOWN), 1, 0)
        self.expect(found == right, f"rows unaccounted for: {found} in place of {right}")

    def recovers(self, condition: Callable[[], bool], within: float = RECOVERY_SECONDS) -> None:
        """Waits for the first right answer from the right source; what it took counts from this call."""
        started = time.monotonic()
        wait_until(condition, within)
        self.recovery = max(self.recovery or 0.0, time.monotonic() - started)

    def degraded(self) -> None:
        """In the middle of the fault: whoever has features is scored, and the probes answer."""
        stage = self.stage
        for entity in ("E0", stage.unseen.next()):
            wait_until(lambda entity=entity: stage.is_online(entity), 20)  # type: ignore[misc]
        for name in ("/livez", "/readyz"):
            self.expect(stage.probe(name) == 200, f"{name} is not 200 in the fault")

    def judge(self, answers: list[Answer]) -> None:
        """Looks at all answers that callers got."""
        for answer in answers:
            if not answer.entities:
                self.expect(answer.status == 200, f"{answer.path} answered {answer.status}: {answer.body}")
            elif answer.path == "/score" and answer.status == 200:
                for entity, one in zip(answer.entities, answer.body["results"], strict=True):
                    error = one.get("error", {})
                    self._judge(entity, error.get("status", 200), one, allowed=error.get("status") in REFUSALS)
            else:
                allowed = answer.status == 504 or (answer.status == 503 and answer.retry_after is not None)
                self._judge(answer.entities[0], answer.status, answer.body, allowed=allowed)

    def _judge(self, entity: str, status: int, body: object, *, allowed: bool) -> None:
        if status == 200:
            fault = self.stage.world.fault(entity, body)  # type: ignore[arg-type]
            if fault is not None:
                self.lost.append(fault)
        elif allowed and self.drill.refuses:
            self.refused += 1
        else:
            self.lost.append(f"{entity}: {status} {body}"[:200])

    def still_serving(self) -> None:
        """Asks really: the known, a miss, the probes; then a following backfill, and every entity of it."""
        stage = self.stage
        run = stage.published()
        self.accounted(run)
        for entity in KNOWN:
            self.expect(stage.is_cached(run, entity), f"{entity} is not served from {run.manifest.snapshot}")
        miss = stage.get(stage.unseen.next())
        self.judge([miss])
        is_online = miss.status == 200 and miss.body["source"] == "online"
        self.expect(is_online, f"a miss was not scored online: {miss.status} {miss.body}")
        wait_until(lambda: stage.status() == "ready", 20)
        self.expect(stage.probe("/livez") == 200, "/livez is not 200")
