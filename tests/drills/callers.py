"""Threads that ask a service all the while and write down what it said. Whether it was right is judged afterwards."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2

from drills.world import FEW, KNOWN, UNSEEN, live_row

PATIENCE_SECONDS = 15.0
PAUSE_SECONDS = 0.004


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer; ``status`` 0: there was none. ``entities``: those whom it is about, none for a probe."""

    path: str
    entities: tuple[str, ...]
    status: int
    body: Any
    retry_after: str | None
    seconds: float


class Unseen:
    """Names unseen customers; each is named once, until all were."""

    def __init__(self) -> None:
        self._numbers = count()

    def next(self) -> str:
        return f"U{next(self._numbers) % UNSEEN}"


class Callers:
    """They ask for the known, the unseen, lists and probes, in turns. ``retries``: as a client asks again, once."""

    def __init__(self, url: str, unseen: Unseen, *, retries: bool = False) -> None:
        self._url = url
        self._unseen = unseen
        self._retries = retries
        self.cut = 0
        """Calls that were cut off and asked again."""
        self._over = threading.Event()
        self.answers: list[Answer] = []

    @contextmanager
    def asking(self, callers: int = 2) -> Iterator[None]:
        """So many at once, for as long as the block runs."""
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(2 * PATIENCE_SECONDS)

    def _ask(self, number: int) -> None:
        headers = {} if number % 2 else {"connection": "close"}
        with httpx2.Client(base_url=self._url, timeout=PATIENCE_SECONDS, headers=headers) as client:
            for turn in count(number):
                if self._over.wait(PAUSE_SECONDS):
                    return
                self._turn(client, turn)

    def _turn(self, client: httpx2.Client, turn: int) -> None:
        answer = self._turned(client, turn)
        if answer.status == 0 and self._retries:
            self.cut += 1
            answer = self._turned(client, turn)
        self.answers.append(answer)

    def _turned(self, client: httpx2.Client, turn: int) -> Answer:
        known = KNOWN[turn % len(KNOWN)]
        match turn % 8:
            case 0 | 1 | 2 | 3:
                return get(client, known)
            case 4 | 5:
                return get(client, self._unseen.next())
            case 6:
                return post(client, (known, self._unseen.next(), f"E{turn % FEW}"))
            case _:
                return probe(client, ("/livez", "/readyz")[turn // 8 % 2])


def get(client: httpx2.Client, entity: str) -> Answer:
    """Asks for one."""
    return _asked(client, "GET", f"/score/{entity}", (entity,))


def post(client: httpx2.Client, entities: tuple[str, ...]) -> Answer:
    """Asks for several, the unseen by their features."""
    items = [{"entity_id": one} | ({"features": live_row(one)} if one[0] == "U" else {}) for one in entities]
    return _asked(client, "POST", "/score", entities, {"items": items})


def probe(client: httpx2.Client, path: str) -> Answer:
    return _asked(client, "GET", path, ())


def _asked(
    client: httpx2.Client, method: str, path: str, entities: tuple[str, ...], content: object | None = None
) -> Answer:
    started = time.monotonic()
    status, body, retry_after = 0, None, None
    try:
        answer = client.request(method, path, json=content)
    except httpx2.TransportError as error:
        body = type(error).__name__
    else:
        status, body, retry_after = answer.status_code, answer.json(), answer.headers.get("retry-after")
    seconds = time.monotonic() - started
    return Answer(path=path, entities=entities, status=status, body=body, retry_after=retry_after, seconds=seconds)
