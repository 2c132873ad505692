"""What a process does before it is ready: it goes the ways of requests, and tells nobody."""

import io
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.publish import publish
from support.services import service_settings, serving
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.protocol import HitProtocol
from service.warmup import TIMES
from shared.scorer import Scorer
from shared.testing.store import MemoryStore
from shared.tile import Arrays

SAMPLE = re.compile(r"^(forescore_(?:requests|lookups|forward|scored)\w*)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass
class Counting:
    """A forward pass that counts."""

    scorer: Scorer
    passes: int = 0

    def __call__(self, inputs: Arrays) -> np.ndarray:
        self.passes += 1
        return self.scorer.forward(inputs)


@pytest.mark.parametrize("published", [True, False])
def test_the_way_of_a_row_is_gone_before_the_first_request(
    scorer: Scorer, memory: MemoryStore, log: io.StringIO, *, published: bool
) -> None:
    """Rows were scored by the time it is ready, whether a snapshot is there or not; no request is counted or logged."""
    if published:
        publish(memory.store, scorer, {"0": {"visits": 1, "returns": 0, "basket": 2}})
    forward = Counting(scorer)
    with serving(replace(scorer, forward=forward), memory, service_settings(scorer), warms_up=True) as client:
        assert forward.passes == TIMES
        samples = SAMPLE.findall(client.get("/metrics").text)
    assert samples
    counted = {name: value for name, value in samples if float(value) and not name.endswith("_created")}
    assert not {name for name in counted if "readyz" not in name and "requests" not in name}
    assert '"route":"/score' not in log.getvalue()


@pytest.mark.parametrize("published", [True, False])
def test_the_way_of_a_hit_is_gone_over_a_connection(
    scorer: Scorer, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, *, published: bool
) -> None:
    """From the bytes that come in to those that go out, where there is a snapshot: each answer is a whole hit."""
    if published:
        publish(memory.store, scorer, {"0": {"visits": 1, "returns": 0, "basket": 2}})
    sent: list[tuple[int, bytes]] = []
    send_answer = HitProtocol.send_answer

    def noted(protocol: HitProtocol, cycle: RequestResponseCycle, status: int, head: bytes, body: bytes) -> None:
        sent.append((status, body))
        send_answer(protocol, cycle, status, head, body)

    monkeypatch.setattr(HitProtocol, "send_answer", noted)
    with serving(scorer, memory, service_settings(scorer), warms_up=True) as client:
        assert len(sent) == (TIMES if published else 0)
        assert {status for status, _ in sent} <= {200}
        assert all(b'"scores":{"buys":0.5}' in body for _, body in sent)
        assert client.get("/readyz").status_code == 200
