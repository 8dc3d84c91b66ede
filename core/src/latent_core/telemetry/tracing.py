"""OpenTelemetry traces if an address is set; otherwise every call here does nothing.

There is one provider per process, because libraries (the MCP SDK) look it up globally. OpenTelemetry is imported
only when needed; its SDK is installed by ``latent-containers[otel]``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

from pydantic import SecretStr

from latent_core.domain.errors import Invalid
from latent_core.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

logger = logging.getLogger(__name__)

SCOPE: Final = "latent"
TRACES_PATH: Final = "/v1/traces"
INSTALL: Final = "pip install 'latent-containers[otel]'"
CLOSE_SECONDS: Final = 2.0

_provider: TracerProvider | None = None


class ShutdownProvider(Protocol):
    """The part of the SDK's provider that shuts it down."""

    def shutdown(self) -> None: ...


@asynccontextmanager
async def tracing(settings: Settings, service: str) -> AsyncIterator[None]:
    """Send the spans of this process during the block, if an address is set. ``Invalid`` without the SDK.

    Its name is ``service``, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES set another.
    """
    address = _address(settings)
    if address is None:
        yield
        return
    provider = _exporting(address, settings.otel_headers, service)
    with recording(provider):
        try:
            yield
        finally:
            await closed(provider, within=CLOSE_SECONDS)


async def closed(provider: ShutdownProvider, *, within: float) -> None:
    """Send the last spans in a thread and wait at most ``within`` seconds, so that an unreachable collector does not
    delay the end of the process."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def send_the_last() -> None:
        try:
            provider.shutdown()
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

    # Not a pool thread: the process waits for those when it ends.
    Thread(target=send_the_last, name="last spans", daemon=True).start()
    try:
        async with asyncio.timeout(within):
            await done.wait()
    except TimeoutError:
        logger.warning("trace_export_failed")


@contextmanager
def recording(provider: TracerProvider) -> Iterator[None]:
    """Send spans to ``provider`` during the block."""
    global _provider
    before, _provider = _provider, provider
    try:
        yield
    finally:
        _provider = before


@contextmanager
def span(
    name: str, *, headers: Mapping[str, str] | None = None, **attributes: str | float | None
) -> Iterator[TraceSpan]:
    """A span around the block; ``headers`` of a request may name the trace it belongs to (W3C traceparent)."""
    if _provider is None:
        yield SILENT
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract(headers) if headers is not None else None
    tracer = _provider.get_tracer(SCOPE)
    with tracer.start_as_current_span(name, context=parent) as started:
        opened = TraceSpan(started)
        opened.set(**attributes)
        yield opened


class TraceSpan:
    """What a caller may set on its span."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def rename(self, name: str) -> None:
        """For a name known only later, such as the route of a request."""
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


SILENT: Final = TraceSpan()


def _address(settings: Settings) -> str | None:
    """The address for spans, as OpenTelemetry defines it: the traces address unchanged, any other plus the path."""
    if settings.otel_traces_endpoint is not None:
        return settings.otel_traces_endpoint
    if settings.otel_endpoint is None:
        return None
    base = settings.otel_endpoint.rstrip("/")
    return base if base.endswith(TRACES_PATH) else base + TRACES_PATH


def _headers(given: SecretStr | None) -> dict[str, str]:
    """Parse OpenTelemetry's format; ``Invalid`` does not quote values, since they contain keys."""
    header_text = given.get_secret_value() if given is not None else ""
    pairs = [pair.partition("=") for pair in header_text.split(",") if pair.strip()]
    headers = {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
    for name, value in headers.items():
        if not (name and value and (name + value).isascii() and (name + value).isprintable()):
            raise Invalid("LLC_OTEL_HEADERS: write name=value, separated by commas, %-encoded")
    return headers


def _exporting(address: str, headers: SecretStr | None, service: str) -> Any:
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        raise Invalid(
            f"an address for traces is set (LLC_OTEL_ENDPOINT, LLC_OTEL_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_…),"
            f" but OpenTelemetry is not installed: {INSTALL}, or unset the address"
        ) from exc
    exporter = OTLPSpanExporter(endpoint=address, headers=_headers(headers))
    # Arguments here would override the environment.
    named = OTELResourceDetector().detect().attributes.get(SERVICE_NAME, service)
    resource = Resource.create({SERVICE_NAME: named})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # ``closed`` does that
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider
