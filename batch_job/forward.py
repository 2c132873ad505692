"""The threads that make the forward passes of a run: each pass in one thread, several passes at once.

A pass in one thread has the same bits as the service's, which makes it so too, and cores that make passes of their own
need not wait for one another, as those that share a pass do many times in each.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

import numpy as np

from shared.codes import Rejection
from shared.encode import Encoded
from shared.engine import choose_device
from shared.errors import ScoringError
from shared.host import cores
from shared.scorer import Scored, Scores, score_each
from shared.settings import Settings
from shared.tile import FORWARD_ROWS

SLICES = 4
"""The rows of a chunk are cut into so many parts for each thread, so that none waits long for the last one."""


class Certified(Scores, Protocol):
    """Scores that were proven on this host."""

    @property
    def golden_digest(self) -> str:
        """sha256 over the golden scores' bits, as computed on this host."""
        ...


Opener = Callable[[], Certified]


def passes_at_once(settings: Settings) -> int:
    """How many forward passes a run makes at the same time: as the setting says, else one for each core."""
    if choose_device(settings.device) != "cpu":
        return 1
    return settings.threads or cores()


class TooLong(Exception):
    """A pass exceeded its limit."""


class ForwardThreads:
    """Opens the scores in a thread of its own, at once, and scores with as many as told."""

    def __init__(self, open_scores: Opener, threads: int) -> None:
        self._requests: SimpleQueue[tuple[Encoded, Future[Scored]] | None] = SimpleQueue()
        self._scores: Future[Certified] = Future()
        self._count = threads
        for number in range(threads):
            target = (lambda: self._open(open_scores)) if number == 0 else self._work
            Thread(target=target, name=f"forward-{number}", daemon=True).start()

    def opened(self) -> Certified:
        """What scores, once it is open."""
        return self._scores.result()

    def score_each(self, encoded: Encoded, seconds: float) -> Scored:
        """As ``shared.scorer.score_each``; TooLong when it takes longer."""
        answers = [self._asked(encoded.take(rows)) for rows in _slices(len(encoded), self._count)]
        if wait(answers, timeout=seconds).not_done:
            raise TooLong
        return merged([answer.result() for answer in answers], encoded.rejections)

    def end(self) -> None:
        """Ends the threads that do not hang, and waits until they have opened what they open: nothing can stop that."""
        for _ in range(self._count):
            self._requests.put(None)
        self._scores.exception()

    def _asked(self, encoded: Encoded) -> Future[Scored]:
        answer: Future[Scored] = Future()
        self._requests.put((encoded, answer))
        return answer

    def _open(self, open_scores: Opener) -> None:
        with _answering(self._scores):
            self._scores.set_result(open_scores())
        self._work()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            encoded, answer = request
            with _answering(answer):
                answer.set_result(score_each(self._scores.result(), encoded))


def merged(found: Sequence[Scored], rejections: Sequence[Rejection]) -> Scored:
    """The parts, which are in the order of their rows: only the rejections need sorting."""
    if not found:
        raise ScoringError("the model does not come back even for no rows at all; look into it")
    every = [*rejections, *(rejection for part in found for rejection in part.rejections)]
    return Scored(
        rows=np.concatenate([part.rows for part in found]),
        scores=np.concatenate([part.scores for part in found]),
        rejections=tuple(sorted(every, key=lambda rejection: rejection.row)),
    )


def _slices(rows: int, threads: int) -> Iterator[slice]:
    """Whole passes in each; one slice of no rows, because even that gives the scores' width."""
    size = -(-rows // (threads * SLICES * FORWARD_ROWS)) * FORWARD_ROWS
    for start in range(0, max(rows, 1), max(size, FORWARD_ROWS)):
        yield slice(start, start + size)


@contextmanager
def _answering(answer: Future[Scored] | Future[Certified]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for
        answer.set_exception(error)
