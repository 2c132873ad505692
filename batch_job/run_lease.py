"""The right to publish, held for a whole run: while it is held, nobody else begins one for the same model.

It is renewed in the background. Who loses it, because it slept or the store forgot it, is told so at the next step.
A holder that was killed leaves two things: the lease, which lapses by itself, and under FORESCORE_HOME a file that
names it, whose lock the kernel let go of. Who can lock the file and finds the lease's holder in it need not wait.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from batch_job.job import Means
from batch_job.lease import whoami
from batch_job.manifest import RunManifest
from batch_job.parts import PartInfo
from batch_job.progress import Observer
from shared.errors import Fenced, LeaseHeld, SettingsError, StoreError
from shared.snapshot import Lease
from shared.store.interfaces import Leases

RENEWALS = 3
"""How often the lease is renewed in the time that it lasts."""

_ASK_AGAIN_SECONDS = 1.0
_MAX_BYTES = 4096
_MAX_LINES = 8


class RunLease:
    """A lease that renews itself. ``lost`` is the error once it was lost."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self.lease = lease
        self.lost: Fenced | None = None
        self._leases = leases

    def renew(self) -> None:
        """Asks for more time. An outage of the store decides nothing: the next call tells whether it was lost."""
        try:
            self._leases.renew(self.lease)
        except Fenced as error:
            self.lost = error
        except StoreError:
            return

    def require(self) -> None:
        """Fenced if the lease is known to be lost."""
        if self.lost is not None:
            raise Fenced(str(self.lost))

    def keep(self, ended: Event) -> None:
        """Renews until the end or the loss, and gives it back at the end."""
        while self.lost is None and not ended.wait(self.lease.seconds / RENEWALS):
            self.renew()
        with suppress(StoreError):  # it lapses by itself; the error that ends the run must not be hidden
            self._leases.release(self.lease)

    def watching(self, observer: Observer) -> Observer:
        """An observer in front of that one, which ends the run at its next step once the lease is lost."""
        return _Watching(observer, self.require)


@contextmanager
def run_lease(
    leases: Leases, model: str, what: str, means: Means, *, wait: bool = False, told: Callable[[str], object] = print
) -> Iterator[RunLease]:
    """Holds the lease for the block, ``what`` being the run, such as ``run 1a2b3c4d``.

    LeaseHeld names who else holds it; with ``wait`` that one is waited for, and ``told`` once who it is.
    """
    path = means.settings.home / "leases" / f"{means.settings.redis.namespace}-{model}"
    with _opened(path, f"{whoami()} {what}") as proof:
        keeper = _Keeper(
            leases, proof, means.settings.gates.lease_seconds, _Patience(means.sleep, told) if wait else None
        )
        try:
            keeper.start()
            yield keeper.held()
        finally:
            keeper.end()


class _Keeper:
    """The thread that has the lease from the first to the last: Ctrl-C, which strikes in another, cannot lose it."""

    def __init__(self, leases: Leases, proof: "_Proof", seconds: float, patience: "_Patience | None") -> None:
        self._leases = leases
        self._proof = proof
        self._seconds = seconds
        self._patience = patience
        self._held: Future[RunLease] = Future()
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def held(self) -> RunLease:
        """Waits for the lease; raises what it could not be had for."""
        return self._held.result()

    def end(self) -> None:
        """Gives it back."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _keep(self) -> None:
        try:
            held = RunLease(self._leases, self._acquired())
            self._proof.settle()
        except BaseException as error:  # noqa: BLE001 - it is raised where the lease is waited for
            self._held.set_exception(error)
            return
        self._held.set_result(held)
        held.keep(self._ended)

    def _acquired(self) -> Lease:
        while True:
            self._proof.claim()
            try:
                return self._leases.acquire(self._proof.holder, self._seconds)
            except LeaseHeld as error:
                if error.holder in self._proof.dead:
                    with suppress(LeaseHeld):  # another one was quicker, and is now the one to be named
                        return self._leases.acquire(self._proof.holder, self._seconds, instead_of=error.holder)
                elif self._patience is None or self._ended.is_set():
                    raise
                else:
                    self._patience.wait_for(error.holder)


class _Patience:
    def __init__(self, sleep: Callable[[float], None], told: Callable[[str], object]) -> None:
        self._sleep = sleep
        self._told = told
        self._holder: str | None = None

    def wait_for(self, holder: str) -> None:
        if holder != self._holder:
            self._holder = holder
            self._told(f"waiting for {holder}")
        self._sleep(_ASK_AGAIN_SECONDS)


class _Proof:
    """A file that is locked as long as this process lives. Its lines are this holder and those of the dead before it.

    Where somebody else has it locked, a dead holder's lease must lapse by itself.
    """

    def __init__(self, handle: int, holder: str) -> None:
        self.holder = holder
        self.dead: tuple[str, ...] = ()
        self._handle = handle
        self._locked = False

    def claim(self) -> None:
        """Before the lease is asked for: a kill right after it was given must leave this holder's name."""
        if self._locked:
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        self._locked = True
        lines = os.pread(self._handle, _MAX_BYTES, 0).decode(errors="replace").splitlines()
        self.dead = tuple(lines[:_MAX_LINES])
        self._write((self.holder, *self.dead))

    def settle(self) -> None:
        """The lease is ours: the dead are done with."""
        if self._locked:
            self._write((self.holder,))

    def _write(self, lines: tuple[str, ...]) -> None:
        text = "".join(f"{line}\n" for line in lines).encode()
        with suppress(OSError):  # a full disk: without the file, a dead holder's lease lapses by itself
            os.pwrite(self._handle, text, 0)
            os.ftruncate(self._handle, len(text))


@contextmanager
def _opened(path: Path, holder: str) -> Iterator[_Proof]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        raise SettingsError(f"FORESCORE_HOME: {path.parent} cannot be written to: {reason}; name another") from None
    try:
        yield _Proof(handle, holder)
    finally:
        os.close(handle)


class _Watching:
    def __init__(self, observer: Observer, require: Callable[[], None]) -> None:
        self._observer = observer
        self._require = require

    def planned(self, manifest: RunManifest, rows: int) -> None:
        self._observer.planned(manifest, rows)
        self._require()

    def chunk_done(self, part: PartInfo, *, resumed: bool) -> None:
        self._observer.chunk_done(part, resumed=resumed)
        self._require()

    def step(self, name: str) -> None:
        self._observer.step(name)
        self._require()
