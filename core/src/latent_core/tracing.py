"""OpenTelemetry traces, when an address for them is given (LLC_OTEL_ENDPOINT): else every call here does nothing.

One provider a process, as for logs: libraries below us (the MCP SDK) look for it in the same place. Nothing of
OpenTelemetry is imported before; the SDK comes with ``latent-core[otel]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from latent_core.domain.errors import Invalid
from latent_core.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

SCOPE: Final = "latent"
TRACES_PATH: Final = "/v1/traces"
INSTALL: Final = "pip install 'latent-core[otel]'"

_provider: TracerProvider | None = None


@contextmanager
def tracing(settings: Settings, service: str) -> Iterator[None]:
    """Send the spans of this process for the length of the block, if an address is set. ``Invalid`` without the SDK."""
    if settings.otel_endpoint is None:
        yield
        return
    provider = _exporting(settings.otel_endpoint, service)
    with recording(provider):
        try:
            yield
        finally:
            provider.shutdown()  # sends what is left, within the exporter's own deadline


@contextmanager
def recording(provider: TracerProvider) -> Iterator[None]:
    """Spans go to ``provider`` for the length of the block."""
    global _provider
    before, _provider = _provider, provider
    try:
        yield
    finally:
        _provider = before


@contextmanager
def span(
    name: str, *, headers: Mapping[str, str] | None = None, **attributes: str | float | None
) -> Iterator[Span]:
    """A span around the block; ``headers`` of a request may name the trace it belongs to (W3C traceparent)."""
    if _provider is None:
        yield SILENT
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract(headers) if headers is not None else None
    tracer = _provider.get_tracer(SCOPE)
    with tracer.start_as_current_span(name, context=parent) as started:
        opened = Span(started)
        opened.set(**attributes)
        yield opened


class Span:
    """What a caller may say of its span."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def rename(self, name: str) -> None:
        """When it is known late what this is: the route of a request."""
        if self._inner is not None:
            self._inner.update_name(name)

    def set(self, **attributes: str | float | None) -> None:
        if self._inner is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._inner.set_attribute(f"latent.{name}", value)

    def failed(self, why: str) -> None:
        if self._inner is not None:
            from opentelemetry.trace import Status, StatusCode

            self._inner.set_status(Status(StatusCode.ERROR, why))


SILENT: Final = Span()


def _exporting(endpoint: str, service: str) -> Any:
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        raise Invalid(
            f"LLC_OTEL_ENDPOINT is set, but OpenTelemetry is not installed: {INSTALL}, or leave it out"
        ) from exc
    base = endpoint.rstrip("/")
    address = base if base.endswith(TRACES_PATH) else base + TRACES_PATH
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    trace.set_tracer_provider(provider)
    return provider
