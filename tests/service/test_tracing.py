"""What OpenTelemetry is told of a request: its route, its stages and its log line's facts, and nothing else."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from fastapi.telemetry import TelemetryConfig
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.databases import Sqlite
from support.publish import publish
from support.servers import wait_until
from support.services import ready_process, service_settings, serving

from shared.encode import Encoded
from shared.scorer import Scorer
from shared.testing.store import MemoryStore

ROW = {"visits": 1, "returns": 0, "basket": 2}
MARKER = "T4INT"
NUMBER = 918273.5
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class Observatory:
    """All that OpenTelemetry hears, of every kind."""

    _spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    _logs: InMemoryLogRecordExporter = field(default_factory=InMemoryLogRecordExporter)
    _metrics: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def telemetry(self) -> TelemetryConfig:
        tracers, loggers = TracerProvider(), LoggerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        meters = MeterProvider(metric_readers=[self._metrics])
        return {"tracer_provider": tracers, "logger_provider": loggers, "meter_provider": meters}

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def everything(self) -> str:
        """Each span, record and metric as it would be exported."""
        records = [record.log_record.to_json() for record in self._logs.get_finished_logs()]
        metrics = self._metrics.get_metrics_data()
        return "".join([*(span.to_json() for span in self.spans), *records, metrics.to_json() if metrics else ""])


class Faulty:
    """A scorer whose pass raises, with an error that tells the value, when ``visits`` is the marked number."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, encoded: Encoded) -> Any:
        if (encoded.numeric[:, 0] == NUMBER).any():
            raise ValueError(f"{MARKER} {NUMBER}")
        return self._scorer.score(encoded)


@pytest.fixture
def observatory() -> Observatory:
    return Observatory()


def _told(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("forescore."): value for name, value in (span.attributes or {}).items()}


def _requests(log: io.StringIO) -> list[dict[str, Any]]:
    return [one for one in map(orjson.loads, log.getvalue().splitlines()) if one["event"] == "request"]


def test_a_request_is_one_span_that_its_route_names(
    scorer: Scorer, memory: MemoryStore, observatory: Observatory
) -> None:
    """However many entities are asked for, there is one name: method and route, with the status beside it."""
    publish(memory.store, scorer, {"a": ROW, "b": ROW})
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        for path in ("/score/a", "/score/b", "/score/nobody"):
            client.get(path)

    assert [(span.name, span.kind) for span in observatory.spans] == [("GET /score/{entity_id}", SpanKind.SERVER)] * 3
    assert [_told(span)["http.response.status_code"] for span in observatory.spans] == [200, 200, 404]
    assert {_told(span)["http.route"] for span in observatory.spans} == {"/score/{entity_id}"}


def test_a_span_says_what_the_log_line_says(
    scorer: Scorer, memory: MemoryStore, observatory: Observatory, log: io.StringIO
) -> None:
    """The facts of the line, its id, and the seconds of each stage; the line has the id of the trace."""
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        client.put("/features/new", json={"features": ROW})
        answer = client.get("/score/new", headers={"traceparent": PARENT})

    told = _told(observatory.spans[-1])
    (line,) = [one for one in _requests(log) if one["method"] == "GET" and one["level"] == "info"]
    assert (told["request_id"], told["entity_id"], told["source"]) == (answer.headers["x-request-id"], "new", "online")
    stages = {name.removesuffix(".seconds") for name in told if name.endswith(".seconds")}
    assert stages == {"lookup", "features", "encode", "queue", "forward"}
    assert all(0 <= told[f"{stage}.seconds"] < 30 for stage in stages)
    assert line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_trace_goes_on_from_the_callers(scorer: Scorer, memory: MemoryStore, observatory: Observatory) -> None:
    """The span's parent is the one that the request names (W3C trace context)."""
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        client.get("/model", headers={"traceparent": PARENT})

    (span,) = observatory.spans
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == tuple(PARENT.split("-")[1:3])


def test_an_address_is_not_told(scorer: Scorer, memory: MemoryStore, observatory: Observatory) -> None:
    """Whatever a caller writes into path and query, by mistake or not, neither is in the span."""
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        client.get(f"/nothing/{MARKER}", params={"visits": MARKER})
        client.get("/model", params={MARKER: "1"})

    assert [span.name for span in observatory.spans] == ["GET", "GET /model"]
    assert MARKER not in observatory.everything()


def test_probes_have_no_spans(scorer: Scorer, memory: MemoryStore, observatory: Observatory) -> None:
    """What machines ask every few seconds would be most of what is exported."""
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        for path in ("/livez", "/readyz", "/readyz?verbose", "/healthz", "/metrics"):
            client.get(path)

    assert observatory.spans == []


def test_a_failure_is_told_by_its_kind(scorer: Scorer, memory: MemoryStore, observatory: Observatory) -> None:
    """500 is an error with the name of its class: no message, no stack, no event."""
    publish(memory.store, scorer, {"a": ROW})
    with serving(scorer, memory, telemetry=observatory.telemetry()) as client:
        memory.async_store.reader.lookup = _raise  # type: ignore[method-assign]
        assert client.get("/score/a").status_code == 500

    (span,) = observatory.spans
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert (_told(span)["error.type"], _told(span)["error"]) == ("500", "ValueError")


def test_no_feature_value_is_in_a_trace(
    scorer: Scorer, memory: MemoryStore, observatory: Observatory, sqlite: Sqlite, log: io.StringIO
) -> None:
    """A marked value by PUT, by POST and from a row of SQL, fine, broken or fatal: nowhere but in the store."""
    sqlite.run("create table t (customer_id text, visits text, returns double precision, basket double precision)")
    sqlite.run(f"insert into t values ('s1', '{MARKER}', 0, 2), ('s2', '{NUMBER}', 0, 2)")
    settings = service_settings(scorer, features=f"store,{sqlite.url('t').replace(',', '%2C')}")
    told: list[str] = []
    with serving(Faulty(scorer), memory, settings, telemetry=observatory.telemetry()) as client:  # type: ignore[arg-type]
        for value in (NUMBER, MARKER, [MARKER], {MARKER: 1}):
            row = {**ROW, "visits": value}
            told.append(client.put("/features/e", json={"features": row}).text)
            told.append(client.post("/score", json={"items": [{"entity_id": "e", "features": row}]}).text)
        for entity in ("e", "s1", "s2"):
            told.append(client.get(f"/score/{entity}").text)
            told.append(client.post("/score", json={"items": [{"entity_id": entity}]}).text)
        told.append(client.post("/score", content=f'{{"items": [{{"{MARKER}": ').text)
        told.append(client.get("/metrics").text)
        codes = [client.get(f"/score/{entity}").json()["code"] for entity in ("e", "s1", "s2")]

    assert codes == ["forward_failed", "not_a_number", "forward_failed"]
    assert len(observatory.spans) >= 17
    everything = "".join(told) + log.getvalue() + observatory.everything()
    assert MARKER not in everything
    assert str(int(NUMBER)) not in everything


def test_without_an_address_to_send_to_nothing_is_traced(scorer: Scorer, memory: MemoryStore, log: io.StringIO) -> None:
    """Off unless set up: no trace, no id of one in the log."""
    with serving(scorer, memory) as client:
        client.get("/model")

    assert all("trace_id" not in line for line in _requests(log))


def test_the_standard_variable_turns_it_on(scorer: Scorer, tmp_path: Path) -> None:
    """With OTEL_EXPORTER_OTLP_ENDPOINT the real process sends its spans there, by OTLP over HTTP."""
    with (
        collector() as (url, received),
        ready_process(
            tmp_path,
            str(scorer.bundle.path),
            warm=False,
            FORESCORE_HOME=str(tmp_path / "home"),
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_METRICS_EXPORTER="none",
            OTEL_BSP_SCHEDULE_DELAY="50",
        ) as client,
    ):
        client.get("/model")
        wait_until(lambda: any(path == "/v1/traces" and b"GET /model" in body for path, body in received), 30)


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A collector that takes whatever comes, and what it took."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            plain = httpx2.Response(200, headers=dict(self.headers), content=body).content  # undoes gzip
            received.append((self.path, plain))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _raise(*_: object) -> Any:
    raise ValueError(MARKER)
