"""A drill: a fault that is done to real processes. It yields what it does, step by step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drills.scene import Scene

Act = Callable[["Scene"], Iterator[str]]
STILL_SERVING = "still serving"


@dataclass(frozen=True, kw_only=True)
class Drill:
    """``stage``: the kind of stage that it needs. ``refuses``: whether a call may be refused, with Retry-After."""

    name: str
    done: str
    act: Act
    stage: str
    refuses: bool


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a drill. ``lost`` must be empty. ``recovery``: seconds; None where there was nothing to wait for."""

    name: str
    done: str
    lost: tuple[str, ...]
    recovery: float | None
    serves: bool
    seconds: float
    asked: int = 0
    refused: int = 0
    slowest: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return self.serves and not self.lost


DRILLS: dict[str, Drill] = {}
"""All drills, in the order in which they are done."""


def drill(done: str, *, stage: str = "plain", refuses: bool = False) -> Callable[[Act], Act]:
    """Makes a drill of a function, under its name."""

    def kept(act: Act) -> Act:
        name = act.__name__.replace("_", "-")
        DRILLS[name] = Drill(name=name, done=done, act=act, stage=stage, refuses=refuses)
        return act

    return kept
