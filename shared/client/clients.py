"""The client, in two kinds: one that blocks and one that awaits. Both do what the core says and decide nothing."""

# ruff: noqa: ASYNC109 - the timeout is of a request and its tries, which a block around the call would not be

import asyncio
from collections.abc import Iterable
from contextlib import closing
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack

try:
    import httpx2
except ImportError:
    raise ImportError(
        "the client of forescore needs httpx2; install it with: pip install 'forescore[client]'"
    ) from None

from shared.client.attempts import Attempts, Call, ClientPolicy, Event, Failed, Machine, Pause, Reply, Send
from shared.client.core import Choice, Core
from shared.client.freshness import Wishes
from shared.client.problems import Problem
from shared.client.results import Model, Readiness, Score, Snapshots
from shared.client.wire import Features, Item
from shared.errors import SettingsError

T = TypeVar("T")
Transport = TypeVar("Transport")

_POLICY = ClientPolicy()
_MACHINE = Machine()
_LONGEST = 999_999_999.0


class _Client(Generic[Transport]):
    """What both kinds have: where the service is, and how to speak to it."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 5.0,
        policy: ClientPolicy = _POLICY,
        transport: Transport | None = None,
        machine: Machine = _MACHINE,
    ) -> None:
        self._url = _checked_url(url)
        self._headers = _headers(api_key)
        self._policy = policy
        self._transport = transport
        self._machine = machine
        where = f"{self._url.scheme}://{self._url.netloc.decode()}"
        self._core = Core(Attempts(where, timeout=timeout, policy=policy, machine=machine), policy)


class ForescoreClient(_Client[httpx2.BaseTransport]):
    """Asks a Forescore service, and waits for the answer. Threads may share it.

    ``url`` is where the service is. ``api_key`` is sent as a bearer token. ``timeout`` is how many seconds one request
    may take, all tries and pauses together; each method takes its own. ``policy`` says how it tries again.
    ``transport`` replaces the way over the network, for TLS of one's own or a Unix socket. Use it in a ``with`` block::

        with ForescoreClient("http://localhost:8000") as client:
            print(client.score("C0042").scores)

    Every method raises a ForescoreProblem where there is no answer; ``shared/client/problems.py`` draws the tree.
    """

    _http: httpx2.Client | None = None

    def __enter__(self) -> Self:
        self._http = httpx2.Client(headers=self._headers, transport=self._transport)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def score(
        self,
        entity_id: str | int,
        *,
        timeout: float | None = None,
        snapshot: str | None = None,
        model_version: str | None = None,
        known: Score | None = None,
        **wishes: Unpack[Wishes],
    ) -> Score:
        """The score of an entity: from the service's cache, or scored now from features that it knows.

        ``snapshot`` or ``model_version`` reads another than the active snapshot. ``known`` is an earlier answer: if it
        still holds, it is returned, as old as it is now. ``wishes`` say how fresh the score is wanted.
        """
        choice = Choice(snapshot=snapshot, model_version=model_version, known=known)
        return self._drive(self._core.score(entity_id, timeout, choice, wishes))

    def score_many(
        self, items: Iterable[str | int | Item], *, timeout: float | None = None, **wishes: Unpack[Wishes]
    ) -> list[Score | Problem]:
        """One result for each id or Item, in order. An item that cannot be scored costs only itself: it is a Problem.

        They are sent in requests of at most ``ClientPolicy.slab_items``, each with the whole timeout; what comes from
        the cache in one request comes from one snapshot. A request that fails as a whole raises.
        """
        return [result for call in self._core.score_many(items, timeout, wishes) for result in self._drive(call)]

    def put_features(self, entity_id: str | int, features: Features, *, timeout: float | None = None) -> None:
        """Tells the service the features of an entity that the batch job has not scored yet."""
        self._drive(self._core.put_features(entity_id, features, timeout))

    def model(self, *, timeout: float | None = None) -> Model:
        """The contract of the model that the service has loaded."""
        return self._drive(self._core.model(timeout))

    def snapshots(self, *, timeout: float | None = None) -> Snapshots:
        """The snapshots in the store, and which of them is served."""
        return self._drive(self._core.snapshots(timeout))

    def ready(self, *, timeout: float | None = None) -> Readiness:
        """Whether the service answers score calls now; asked once, without a second try."""
        return self._drive(self._core.ready(timeout))

    def _drive(self, call: Call[T]) -> T:
        event: Event = None
        while True:
            try:
                step = call.send(event)
            except StopIteration as done:
                result: T = done.value
                return result
            event = self._do(step)

    def _do(self, step: Send | Pause) -> Event:
        match step:
            case Send():
                return self._send(step)
            case Pause(seconds=seconds):
                self._machine.sleep(seconds)
                return None

    def _send(self, send: Send) -> Reply | Failed:
        if self._http is None:
            raise SettingsError("ForescoreClient is not open; use it in: with ForescoreClient(url) as client")
        deadline = self._machine.monotonic.now() + send.seconds
        chunks: list[bytes] = []
        try:
            with closing(self._http.send(_request(self._http, self._url, send), stream=True)) as response:
                for chunk in response.iter_bytes():
                    chunks.append(chunk)
                    if self._machine.monotonic.now() > deadline:  # httpx2 limits each read, not all of them together
                        return _late()
        except httpx2.RequestError as error:
            return _failed(error)
        return _reply(response, b"".join(chunks))


class AsyncForescoreClient(_Client[httpx2.AsyncBaseTransport]):
    """``ForescoreClient`` for asyncio, method by method. Use it in an ``async with`` block; tasks may share it."""

    _http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        self._http = httpx2.AsyncClient(headers=self._headers, transport=self._transport)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def score(
        self,
        entity_id: str | int,
        *,
        timeout: float | None = None,
        snapshot: str | None = None,
        model_version: str | None = None,
        known: Score | None = None,
        **wishes: Unpack[Wishes],
    ) -> Score:
        """As ``ForescoreClient.score``."""
        choice = Choice(snapshot=snapshot, model_version=model_version, known=known)
        return await self._drive(self._core.score(entity_id, timeout, choice, wishes))

    async def score_many(
        self, items: Iterable[str | int | Item], *, timeout: float | None = None, **wishes: Unpack[Wishes]
    ) -> list[Score | Problem]:
        """As ``ForescoreClient.score_many``, with up to ``ClientPolicy.concurrency`` requests under way; in order."""
        calls = enumerate(self._core.score_many(items, timeout, wishes))
        answered: dict[int, list[Score | Problem]] = {}

        async def work() -> None:
            for place, call in calls:
                answered[place] = await self._drive(call)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._policy.concurrency):
                    group.create_task(work())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # it has ended the others
        return [result for place in sorted(answered) for result in answered[place]]

    async def put_features(self, entity_id: str | int, features: Features, *, timeout: float | None = None) -> None:
        """As ``ForescoreClient.put_features``."""
        await self._drive(self._core.put_features(entity_id, features, timeout))

    async def model(self, *, timeout: float | None = None) -> Model:
        """As ``ForescoreClient.model``."""
        return await self._drive(self._core.model(timeout))

    async def snapshots(self, *, timeout: float | None = None) -> Snapshots:
        """As ``ForescoreClient.snapshots``."""
        return await self._drive(self._core.snapshots(timeout))

    async def ready(self, *, timeout: float | None = None) -> Readiness:
        """As ``ForescoreClient.ready``."""
        return await self._drive(self._core.ready(timeout))

    async def _drive(self, call: Call[T]) -> T:
        event: Event = None
        while True:
            try:
                step = call.send(event)
            except StopIteration as done:
                result: T = done.value
                return result
            event = await self._do(step)

    async def _do(self, step: Send | Pause) -> Event:
        match step:
            case Send():
                return await self._send(step)
            case Pause(seconds=seconds):
                await self._machine.sleep_async(seconds)
                return None

    async def _send(self, send: Send) -> Reply | Failed:
        if self._http is None:
            raise SettingsError("AsyncForescoreClient is not open; use it in: async with AsyncForescoreClient(url)")
        try:
            async with asyncio.timeout(send.seconds):
                response = await self._http.send(_request(self._http, self._url, send))
        except TimeoutError:
            return _late()
        except httpx2.RequestError as error:
            return _failed(error)
        return _reply(response, response.content)


def _checked_url(url: str) -> httpx2.URL:
    """SettingsError says what an address is, and does not repeat one that may hold a password."""
    try:
        parsed = httpx2.URL(url.rstrip("/"))
    except httpx2.InvalidURL:
        parsed = httpx2.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise SettingsError("client: the address is http:// or https://, a host, and perhaps a port and a path")
    return parsed


def _headers(api_key: str | None) -> dict[str, str]:
    headers = {"accept": "application/json, application/problem+json"}
    if api_key is None:
        return headers
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise SettingsError("client: a key is printable ASCII without blanks")
    return {**headers, "authorization": f"Bearer {api_key}"}


def _request(http: httpx2.Client | httpx2.AsyncClient, base: httpx2.URL, send: Send) -> httpx2.Request:
    return http.build_request(
        send.ask.method,
        f"{base}{send.ask.path}",
        content=send.ask.body,
        headers={
            **send.ask.headers,
            **({} if send.ask.body is None else {"content-type": "application/json"}),
            "x-request-timeout": _timeout(send.seconds),
        },
        timeout=httpx2.Timeout(send.seconds, connect=send.connect_seconds),
    )


def _timeout(seconds: float) -> str:
    """So that the service gives up a request when nobody waits for it any more."""
    return f"{max(0.001, min(seconds, _LONGEST)):.3f}"


def _reply(response: httpx2.Response, body: bytes) -> Reply:
    return Reply(status=response.status_code, headers=dict(response.headers), body=body)


def _failed(error: httpx2.RequestError) -> Failed:
    """The kind of the error, without its text, which may hold what was sent.

    A connection that takes too long is no late answer: another try may reach another address.
    """
    late = isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout)
    return Failed(why=type(error).__name__, late=late)


def _late() -> Failed:
    return Failed(why="the answer did not end", late=True)
