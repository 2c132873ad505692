"""The soak itself: capacity, steady load with promotions, too much load, and what comes after."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills.soak.book import write_book, write_truth
from drills.soak.verdicts import SHARE, TIMES, Verdict, around_promotions, rate, verdicts
from drills.soak.watch import call, watching
from drills.stage import Stage

Found = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Seconds of each phase and between two promotions, and how many connections there are: in each of the closed loops
    of which the best is the capacity, and at most. ``timed``: whether times decide."""

    warm: float = 5
    capacity: float = 20
    steady: float = 600
    over: float = 20
    after: float = 8
    promotion: float = 20
    loops: tuple[int, ...] = (32, 64, 128)
    most_connections: int = 900
    timed: bool = True


SHORT = Sizes(
    warm=0.5, capacity=1, steady=3, over=1.5, after=1, promotion=1, loops=(32,), most_connections=200, timed=False
)


def soak(stage: Stage, sizes: Sizes, told: Callable[[str], object]) -> tuple[Found, list[Verdict]]:
    """All phases; what was found in each, and what it means."""
    book = write_book(stage.folder / "book.json")
    truth = write_truth(stage.folder / "truth.json", stage.world)
    with watching(stage, truth, every=sizes.promotion):  # a capacity that the steady load has as well
        capacity = _capacity(stage, sizes, book, truth, told)
    told(f"capacity: {rate(capacity):,.0f} good answers a second; now {sizes.steady:.0f} s at {SHARE:.0%} of it")
    usual = {"rate": SHARE * rate(capacity), "connections": sizes.most_connections}
    with watching(stage, truth, every=sizes.promotion) as watch:
        (steady,) = call(stage, book, truth, [usual | {"seconds": sizes.steady}])
    during, outside = around_promotions(steady, watch.spans)
    told(
        f"steady: p99 {steady['p99_ms']:.1f} ms, {watch.promoted} promotions; of a quarter of a second usually "
        f"{during:.1f} ms while one is at work, else {outside:.1f} ms. Now {TIMES} times capacity"
    )
    too_much = {"rate": TIMES * rate(capacity), "connections": sizes.most_connections, "seconds": sizes.over}
    over, after = call(stage, book, truth, [too_much, usual | {"seconds": sizes.after}])
    found = {"capacity": capacity, "steady": steady, "over": over, "after": after}
    return found, verdicts(found, watch, timed=sizes.timed)


def _capacity(stage: Stage, sizes: Sizes, book: Path, truth: Path, told: Callable[[str], object]) -> dict[str, Any]:
    """The best of the closed loops: a few connections wait for round trips, and leave the service time."""
    warm = {"connections": sizes.loops[0], "seconds": sizes.warm}
    loops = [{"connections": most, "seconds": sizes.capacity} for most in sizes.loops]
    _, *found = call(stage, book, truth, [warm, *loops])
    for most, phase in zip(sizes.loops, found, strict=True):
        told(f"{most} connections: {rate(phase):,.0f} good answers a second, p99 {phase['p99_ms']:.1f} ms")
    return max(found, key=rate)
