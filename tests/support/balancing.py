"""Instances of the service, and a load balancer as operators have it: it calls those that say they are ready, once."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx2
from support.servers import free_port, wait_until
from support.services import ServeProcess

PROBE_SECONDS = 0.05
PAUSE_SECONDS = 0.002
READY_SECONDS = 300


@dataclass
class Balancer:
    """Asks each instance whether it is ready, and keeps callers busy with those that are."""

    urls: Sequence[str]
    expected: dict[str, float]
    """The score of each entity."""
    ready: dict[str, bool] = field(default_factory=dict)
    sources: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def busy(self, callers: int) -> Iterator[None]:
        """So many callers at once, for as long as the block runs: half of them on connections that are kept alive."""
        threads = [threading.Thread(target=self._probe, args=(url,)) for url in self.urls]
        threads += [threading.Thread(target=self._call, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(60)

    def wait_answered(self, by: str, calls: int) -> None:
        """Returns when that instance has answered so many more calls."""
        until = self.answered[by] + calls
        wait_until(lambda: self.answered[by] >= until, 120)

    def _probe(self, url: str) -> None:
        with httpx2.Client(timeout=30, headers={"connection": "close"}) as client:
            while not self._over.wait(PROBE_SECONDS):
                try:
                    self.ready[url] = client.get(f"{url}/readyz").status_code == 200
                except httpx2.TransportError:
                    self.ready[url] = False

    def _call(self, number: int) -> None:
        headers = {} if number % 2 else {"connection": "close"}
        wait_until(lambda: any(self.ready.values()) or self._over.is_set(), 60)
        with httpx2.Client(timeout=30, headers=headers) as client:
            for turn, entity in enumerate(cycle(self.expected), start=number):
                if self._over.wait(PAUSE_SECONDS):
                    return
                if chosen := [url for url in self.urls if self.ready.get(url)]:
                    self._ask(client, chosen[turn // len(self.expected) % len(chosen)], entity)
                else:
                    self.failed.append("no instance is ready")

    def _ask(self, client: httpx2.Client, url: str, entity: str) -> None:
        try:
            answer = client.get(f"{url}/score/{entity}")
        except httpx2.TransportError as error:
            self.failed.append(f"{url}: {type(error).__name__}")
            return
        body = answer.json()
        if answer.status_code != 200 or body["scores"]["buys"] != self.expected[entity]:
            self.failed.append(f"{url}: {answer.status_code} {body}")
        self.sources[body.get("source")] += 1
        self.answered[url] += 1


class Instance:
    """One service on one port, that can be restarted there."""

    def __init__(self, folder: Path, bundle: Path, environment: dict[str, str]) -> None:
        self.port = str(free_port())
        self.url = f"http://127.0.0.1:{self.port}"
        self._start = lambda: ServeProcess(folder, [str(bundle), "--port", self.port], environment, warm=True)
        folder.mkdir()
        self.process = self._start()

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=30).status_code == 200
        except httpx2.TransportError:
            return False

    def restart(self) -> int:
        """Ends it as an orchestrator does, and returns its exit code when the next one is ready."""
        self.process.process.terminate()
        code = self.process.process.wait(60)
        self.process = self._start()
        wait_until(self.is_ready, READY_SECONDS)
        return code
