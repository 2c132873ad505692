"""Forward passes with a time limit, and what becomes of rows that never come back.

A thread that hangs in native code cannot be ended, so the rows of a pass that exceeds its limit are tried again in a
process of their own, which can: halved until the one that hangs stands alone, and is rejected. The process opens the
same bundle, so that the others get the same bits. ``python -m batch_job.quarantine`` is that process.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np

from batch_job.forward import Certified, ForwardThreads, Opener, TooLong, merged
from shared.codes import Code, Rejection
from shared.encode import Encoded
from shared.errors import ScoringError
from shared.scorer import Scored, score_each

MIN_SECONDS = 5.0
"""A few rows are given this long, where the limit of a whole chunk is longer."""

MAX_HANGING = 32
"""Rows that hang beyond which it is the model that hangs."""

OPEN_SECONDS = 300.0
"""How long the process of the quarantine may take to open the bundle."""


class TimedScores:
    """``score_each`` with a limit. ``open_scores`` must be picklable: it is called again in the quarantine.

    ``begin`` lets another thread open the scores; whatever needs them begins too, and waits.
    """

    def __init__(self, open_scores: Opener, seconds: float, threads: int = 1) -> None:
        self._open_scores = open_scores
        self._seconds = seconds
        self._threads = threads
        self._workers: ForwardThreads | None = None
        self._hanging = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.end()

    def begin(self) -> None:
        """Starts the threads that score, of which one opens the scores first, unless there are some."""
        self._begun()

    def _begun(self) -> ForwardThreads:
        if self._workers is None:
            self._workers = ForwardThreads(self._open_scores, self._threads)
        return self._workers

    @property
    def opened(self) -> Certified:
        """What scores, once it is open."""
        return self._begun().opened()

    def score_each(self, encoded: Encoded) -> Scored:
        """As ``shared.scorer.score_each``; a row for which the model does not come back is rejected with TIMEOUT."""
        workers = self._begun()
        workers.opened()  # opening does not count against the limit
        try:
            return workers.score_each(encoded, self._seconds)
        except TooLong:
            workers.end()
            self._workers = None  # some are lost to whatever they hang in
            return self._apart(encoded)

    def _apart(self, encoded: Encoded) -> Scored:
        found: list[Scored] = []
        lost: list[Rejection] = []
        with _quarantine(self._open_scores) as cell:
            waiting = [*_halves(np.arange(len(encoded))), np.empty(0, np.int64)]  # no rows give the scores' width
            while waiting:
                positions = waiting.pop()
                outcome = cell.ask(encoded.take(positions), self._limit(len(positions), len(encoded)))
                if isinstance(outcome, Scored):
                    found.append(outcome)
                elif len(positions) != 1:
                    waiting += _halves(positions)
                else:
                    self._count_hanging()
                    lost.append(Rejection(row=int(encoded.rows[positions[0]]), code=outcome))
        return merged(found, [*encoded.rejections, *lost])

    def _limit(self, rows: int, of: int) -> float:
        return max(self._seconds * rows / of, min(self._seconds, MIN_SECONDS))

    def _count_hanging(self) -> None:
        self._hanging += 1
        if self._hanging > MAX_HANGING:
            raise ScoringError(
                f"the model does not come back: {self._hanging} rows exceeded the limit of {self._seconds:g} s; raise "
                "FORESCORE_BATCH__CHUNK_TIMEOUT_SECONDS, or lower --chunk-size, or look into the model"
            )


def _halves(positions: np.ndarray) -> list[np.ndarray]:
    middle = (len(positions) + 1) // 2
    return [half for half in (positions[middle:], positions[:middle]) if len(half)]


@contextmanager
def _quarantine(open_scores: Opener) -> Iterator["_Cell"]:
    cell = _Cell(open_scores)
    try:
        yield cell
    finally:
        cell.kill()


class _Cell:
    """The process: started when there is something to ask, killed when it does not answer."""

    def __init__(self, open_scores: Opener) -> None:
        self._open_scores = open_scores
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def ask(self, encoded: Encoded, seconds: float) -> Scored | Code:
        """What became of the rows; TIMEOUT if nothing in time, FORWARD_FAILED if the process died of them."""
        connection = self._connection or self._start()
        try:
            connection.send(encoded)
            if connection.poll(seconds):
                answer = connection.recv()
                if isinstance(answer, Scored):
                    return answer
                raise ScoringError(f"the model failed in the quarantine: {answer}")
        except (EOFError, OSError):
            self.kill()
            return Code.FORWARD_FAILED
        self.kill()
        return Code.TIMEOUT

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process, self._connection = None, None

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this module, a number
                [sys.executable, "-m", "batch_job.quarantine", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._connection = ours
        ours.send(self._open_scores)
        if not ours.poll(OPEN_SECONDS) or ours.recv() is not None:
            raise ScoringError("the bundle does not open in the quarantine; run again, and report this")
        return ours


def serve(connection: Connection) -> None:
    """The life of the process: opens the scores, says so, then answers until the other side is gone."""
    requests: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_receive, args=(connection, requests), daemon=True).start()
    open_scores: Opener = requests.get()
    scores = open_scores()
    connection.send(None)
    _be_silent()
    while True:
        encoded: Encoded = requests.get()
        try:
            connection.send(score_each(scores, encoded))
        except ScoringError as error:
            connection.send(str(error))


def _be_silent() -> None:
    """What native code says when it dies of a row may hold the row's values: from now on nobody hears it."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())


def _receive(connection: Connection, requests: SimpleQueue[Any]) -> None:
    """Ends the process with its parent, also while the model hangs: nobody else would."""
    while True:
        try:
            requests.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
