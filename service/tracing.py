"""OpenTelemetry, as FastAPI brings it: one span for each request, that says what its log line says and no more.

Off until ``OTEL_EXPORTER_OTLP_ENDPOINT`` says where to; then it needs the extra ``otel``. FastAPI would also export
exceptions with their messages, which may repeat a feature, and a request's address as it came: neither leaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace
from starlette.types import Scope

HIDDEN = "REDACTED"
PREFIX = "forescore."


def telemetry_of(given: TelemetryConfig, quiet: frozenset[str]) -> TelemetryConfig:
    """What FastAPI is told of it. ``given`` replaces parts of it; the paths in ``quiet`` have no spans."""
    return {
        "auto_configure": True,
        "logs": False,
        "operation_spans": False,
        "exclude": lambda scope: scope.get("path") in quiet,
        **given,
    }


def is_traced(given: TelemetryConfig) -> bool:
    """Whether requests have spans; known once the application has started."""
    return "tracer_provider" in given or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@dataclass(frozen=True, slots=True)
class Trace:
    """The span of the request that is being answered. FastAPI names it by its route and ends it."""

    span: trace.Span

    @classmethod
    def current(cls) -> Self | None:
        """None where requests are not traced."""
        span = trace.get_current_span()
        return cls(span) if span.get_span_context().is_valid else None

    @property
    def id(self) -> str:
        """As other systems write it."""
        return trace.format_trace_id(self.span.get_span_context().trace_id)

    def begin(self, scope: Scope) -> None:
        """Hides the address: whatever a caller puts into it."""
        self.span.set_attribute("url.path", HIDDEN)
        if scope.get("query_string"):
            self.span.set_attribute("url.query", HIDDEN)

    def tell(self, facts: Mapping[str, str | int | None], seconds: Mapping[str, float]) -> None:
        """What the log line says, and the seconds of each stage."""
        told = {f"{PREFIX}{name}": value for name, value in facts.items() if value is not None}
        self.span.set_attributes(told | {f"{PREFIX}{stage}.seconds": spent for stage, spent in seconds.items()})
