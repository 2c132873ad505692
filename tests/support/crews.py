"""``forescore serve --workers N`` as a test sees it: its workers, its log, its metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import orjson
from prometheus_client.parser import text_string_to_metric_families
from support.processes import children_of
from support.servers import wait_until
from support.services import ServeProcess, serve_process

READY_SECONDS = 300


class CrewProcess:
    """The command with several workers, once it answers."""

    def __init__(self, server: ServeProcess) -> None:
        self.server = server
        self.url = server.url()

    @property
    def parent(self) -> int:
        return self.server.process.pid

    def pids(self) -> list[int]:
        return children_of(self.parent)

    def log(self, event: str) -> list[dict[str, object]]:
        """The lines of all processes about an event. One that dies writes down where it hangs piece by piece, so that
        a line of another may stand behind such a piece."""
        found = [line[line.index('{"') :] for line in self.server.errors.splitlines() if '{"' in line]
        lines = [orjson.loads(line) for line in found if line.endswith("}")]
        return [line for line in lines if line["event"] == event]

    def wait_ready(self, times: int) -> None:
        """Returns once workers have said so many times, all together, that they are ready."""
        wait_until(lambda: len(self.log("ready")) >= times, READY_SECONDS)

    def counted(self, name: str, **labels: str) -> float:
        """The value of a sample as one scrape, on a connection of its own, has it; 0 if it is not there."""
        text = httpx2.get(f"{self.url}/metrics", timeout=30).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


@contextmanager
def crew_process(
    folder: Path, bundle: Path, workers: int, *, ready: int | None = None, **environment: str
) -> Iterator[CrewProcess]:
    """Starts the command and waits until so many of its workers are ready; all, unless said."""
    given = {"FORESCORE_LOG_FORMAT": "json", **environment}
    with serve_process(folder, str(bundle), "--port", "0", "--workers", str(workers), **given) as server:
        crew = CrewProcess(server)
        crew.wait_ready(workers if ready is None else ready)
        yield crew
