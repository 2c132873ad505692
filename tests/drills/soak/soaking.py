"""The soak itself: capacity, steady load with promotions, too much load, and what comes after."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drills.soak.book import write_book, write_truth
from drills.soak.verdicts import SHARE, TIMES, Verdict, rate, verdicts
from drills.soak.watch import call, watching
from drills.stage import Stage

Found = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Seconds of each phase, and how many connections there are at most. ``timed``: whether times decide."""

    warm: float = 5
    capacity: float = 10
    steady: float = 600
    over: float = 20
    after: float = 8
    promotion: float = 20
    connections: int = 32
    most_connections: int = 1_000
    timed: bool = True


SHORT = Sizes(warm=0.5, capacity=1, steady=3, over=1.5, after=1, promotion=1, most_connections=200, timed=False)


def soak(stage: Stage, sizes: Sizes, told: Callable[[str], object]) -> tuple[Found, list[Verdict]]:
    """All phases; what was found in each, and what it means."""
    book = write_book(stage.folder / "book.json")
    truth = write_truth(stage.folder / "truth.json", stage.world)
    loops = [{"connections": sizes.connections, "seconds": seconds} for seconds in (sizes.warm, sizes.capacity)]
    _, capacity = call(stage, book, truth, loops)
    told(f"capacity: {rate(capacity):,.0f} good answers a second; now {sizes.steady:.0f} s at {SHARE:.0%} of it")
    usual = {"rate": SHARE * rate(capacity), "connections": sizes.most_connections}
    with watching(stage, truth, every=sizes.promotion) as watch:
        (steady,) = call(stage, book, truth, [usual | {"seconds": sizes.steady}])
    told(f"steady: p99 {steady['p99_ms']:.1f} ms, {watch.promoted} promotions; now {TIMES} times capacity")
    too_much = {"rate": TIMES * rate(capacity), "connections": sizes.most_connections, "seconds": sizes.over}
    over, after = call(stage, book, truth, [too_much, usual | {"seconds": sizes.after}])
    found = {"capacity": capacity, "steady": steady, "over": over, "after": after}
    return found, verdicts(found, watch, timed=sizes.timed)
