"""Who may ask, and how much: asked once for each request, before anything of it is looked at.

The fast lane's short cut asks ``enter_now``, all else comes through ``__call__``; either way one place decides, and
one place says no. Where the settings ask for neither keys nor limits there is no guard at all.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access import AccessLog
from service.doors import Door, door_of
from service.keyring import Keyring
from service.keys import Key
from service.passes import Pass, Room
from service.problems import retold
from service.runtime import Service
from shared.errors import Forbidden, RequestError, StoreError, TooManyRequests, Unauthorized
from shared.settings import Settings
from shared.store.connect import open_rate_windows
from shared.telemetry import Logger

if TYPE_CHECKING:  # their library is loaded where there is a limit
    from service.rates import Rates, SharedRates

NOBODY = ""
"""The name that callers share where no key is asked for."""
COUNT_SECONDS = 1.0
LOG_SECONDS = 5.0
"""At most so often it is said that rates are unknown."""
_MISSING = "send an API key: Authorization: Bearer KEY, or X-API-Key: KEY"

_log: Logger = structlog.get_logger()


class Guard:
    """Around ``inner``, the whole application."""

    def __init__(self, inner: ASGIApp, service: Service) -> None:
        settings = service.settings
        self._inner = inner
        self._service = service
        self._metrics = service.metrics
        self._clock = service.dependencies.monotonic
        self._open_metrics = settings.keys.open_metrics
        self._retry_after = settings.service.retry_after_seconds
        self._keyring = (
            Keyring(settings.keys, service.dependencies.wall, service.metrics) if settings.keys.are_set else None
        )
        limits = settings.limits
        self._room = Room(limits.rows, limits.rows_per_key) if _has_room(settings) else None
        self._rates: Rates | None = None
        self._shared: SharedRates | None = None
        self._has_shared = limits.are_shared
        self._told_at: float | None = None
        self._counts: dict[str, int] = {}
        self._refusing = AccessLog(
            self._refuse, metrics=service.metrics, clock=service.dependencies.monotonic, lines=service.lines
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """For as long as the application lives. SettingsError where the keys cannot be read."""
        async with AsyncExitStack() as stack:
            if self._keyring is not None:
                self._keyring.read()
                stack.push_async_callback(_ended, asyncio.create_task(self._keyring.watch()))
            if self._service.settings.limits.has_rates:
                await self._open_rates(stack)
            stack.push_async_callback(_ended, asyncio.create_task(self._count()))
            stack.callback(self.count)
            yield

    async def _open_rates(self, stack: AsyncExitStack) -> None:
        from service.rates import Rates, SharedRates, policies_of  # noqa: PLC0415 - only where there is a limit
        from service.windows import Windows  # noqa: PLC0415 - the same

        policies = policies_of(self._service.settings.limits)
        if self._has_shared:
            windows = await stack.enter_async_context(open_rate_windows(self._service.settings, self._clock))
            self._shared = SharedRates(policies, windows)
        else:
            self._rates = Rates(policies, Windows(self._clock))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            async with self._opened():
                await self._inner(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if "pass" not in state:
            await self._enter(scope)
        if "refused" in state:
            await self._refusing(scope, receive, send)
            return
        try:
            await self._inner(scope, receive, send)
        finally:
            state["pass"].leave()

    def enter_now(self, scope: Scope) -> bool:
        """Lets a request in without waiting. False where it is refused or cannot be let in at once: ``__call__`` goes
        on with it then."""
        if self._has_shared:
            return False
        self._try(scope)
        return "refused" not in scope["state"]

    async def _enter(self, scope: Scope) -> None:
        self._try(scope)
        state = scope["state"]
        if self._shared is None or not state["pass"].is_counted:
            return
        passed: Pass = state["pass"]
        try:
            await self._ask_rates(passed.key or NOBODY, passed.rows)
        except BaseException as error:  # also of one who leaves meanwhile
            passed.void()
            if not isinstance(error, TooManyRequests):
                raise
            self._note(scope, error, passed.key)

    def _try(self, scope: Scope) -> None:
        """Puts a pass into the request's state, and the refusal if there is one."""
        name: str | None = None
        try:
            door = door_of(scope, open_metrics=self._open_metrics)
            if self._keyring is not None and door.access is not None:
                key = self._known(scope)
                name = key.name
                self._require(door, key)
            scope["state"]["pass"] = self._admit(name) if door.limited else Pass(None, name, 0)
        except RequestError as error:
            self._note(scope, error, name)

    def _note(self, scope: Scope, error: RequestError, name: str | None) -> None:
        if isinstance(error, TooManyRequests):
            self._metrics.refused(error.reason)
        scope["state"]["refused"] = error
        scope["state"]["pass"] = Pass(None, name, 0)

    def _known(self, scope: Scope) -> Key:
        presented = presented_in(scope)
        key = self._keyring.find(presented) if presented and self._keyring is not None else None
        if key is None:
            self._metrics.refused("key")
            raise Unauthorized(_MISSING)
        return key

    def _require(self, door: Door, key: Key) -> None:
        if door.access not in key.scopes:
            self._metrics.refused("scope")
            raise Forbidden(f"this needs a key with the scope {door.access}")

    def _admit(self, name: str | None) -> Pass:
        who = name or NOBODY
        if self._room is not None:
            self._room.take(who, 1, self._metrics)
        if self._rates is not None:
            try:
                self._rates.take(who, 1)
            except TooManyRequests:
                if self._room is not None:
                    self._room.give_back(who, 1)
                raise
        return Pass(self, name, 1)

    async def add(self, passed: Pass, rows: int) -> None:
        """A request has so many rows more than it was let in with."""
        who = passed.key or NOBODY
        if self._room is not None:
            self._room.take(who, rows, self._metrics)
        try:
            if self._rates is not None:
                self._rates.take(who, rows)
            await self._ask_rates(who, rows)
        except BaseException as error:  # also of one who leaves meanwhile
            if self._room is not None:
                self._room.give_back(who, rows)
            if isinstance(error, TooManyRequests):
                self._metrics.refused(error.reason)
            raise
        passed.rows += rows

    def release(self, name: str | None, rows: int) -> None:
        """So many rows are not in work any more."""
        if self._room is not None:
            self._room.give_back(name or NOBODY, rows)

    def left(self, passed: Pass) -> None:
        """A request has ended."""
        self.release(passed.key, passed.rows)
        if passed.key is not None:
            self._counts[passed.key] = self._counts.get(passed.key, 0) + passed.rows

    async def _ask_rates(self, who: str, rows: int) -> None:
        """Lets in whom the store cannot count: an outage of it must not become one of ours."""
        if self._shared is None:
            return
        try:
            await self._shared.take(who, rows)
        except StoreError as error:
            self._metrics.rate_unknown()
            now = self._clock.now()
            if self._told_at is None or now >= self._told_at + LOG_SECONDS:
                self._told_at = now
                _log.warning("rates unknown, nobody is refused for them", exc_info=error)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        call = state["call"]
        call.route = door_of(scope).route
        await retold(state["refused"], call.id, call.facts, self._retry_after)(scope, receive, send)

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            self.count()

    def count(self) -> None:
        """Hands what was let in to the metrics: a lock for each row would cost more than the rest of the guard."""
        counts, self._counts = self._counts, {}
        for name, rows in counts.items():
            self._metrics.key_rows(name, rows)


def presented_in(scope: Scope) -> bytes:
    """The key that a request shows: as a bearer token, else as ``X-API-Key``; empty where it shows none."""
    other = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                return bytes(token.strip())
        elif name == b"x-api-key" and not other:
            other = value.strip()
    return other


def is_needed(settings: Settings) -> bool:
    """Whether anybody is ever refused."""
    return settings.keys.are_set or settings.limits.has_rates or _has_room(settings)


def _has_room(settings: Settings) -> bool:
    return settings.limits.rows is not None or settings.limits.rows_per_key is not None


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
