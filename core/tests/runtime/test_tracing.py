"""Spans that leave the process, as a collector sees them; and the end of a process whose collector is away."""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from latent_core.domain.errors import Invalid
from latent_core.settings import Settings, setting_names
from latent_core.telemetry.tracing import TRACES_PATH, closed, span, tracing

SDK_MISSING = "the OpenTelemetry SDK is not installed: pip install 'latent-containers[otel]'"
OF_THE_SDK = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER")


@dataclass(frozen=True)
class Post:
    """What came in one request."""

    path: str
    headers: dict[str, str]
    resource: dict[str, str]
    spans: list[Any]


class Collector:
    """Takes OTLP over HTTP as a collector does: protobuf, gzip or not, and says so in protobuf."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        self._wire = trace_service_pb2
        self.posts: list[Post] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = collector.take(
                    self.path, {name.lower(): value for name, value in self.headers.items()}, body
                )
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        sent = self._wire.ExportTraceServiceRequest.FromString(body)
        for one in sent.resource_spans:
            resource = {pair.key: pair.value.string_value for pair in one.resource.attributes}
            spans = [found for scope in one.scope_spans for found in scope.spans]
            self.posts.append(Post(path, headers, resource, spans))
        return bytes(self._wire.ExportTraceServiceResponse().SerializeToString())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=SDK_MISSING)
    monkeypatch.setattr("latent_core.telemetry.tracing.CLOSE_SECONDS", 60.0)
    running = Collector()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OF_THE_SDK, *(name for names in setting_names().values() for name in names)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)


async def one_span(given: Settings) -> None:
    async with tracing(given, "latent-gateway"):
        with span("POST /v1/containers/search", request_id="r1") as outer, span("embed"):
            outer.failed("TIMEOUT")


async def test_spans_arrive_as_they_were_nested_under_the_name_of_the_service(
    collector: Collector,
) -> None:
    await one_span(settings(otel_endpoint=f"{collector.url}/"))
    (post,) = collector.posts
    assert post.path == TRACES_PATH
    assert post.headers["content-type"] == "application/x-protobuf"
    assert post.resource["service.name"] == "latent-gateway"
    inner, outer = post.spans
    assert (outer.name, inner.name) == ("POST /v1/containers/search", "embed")
    assert (inner.trace_id, inner.parent_span_id) == (outer.trace_id, outer.span_id)
    assert outer.status.message == "TIMEOUT"
    assert [(a.key, a.value.string_value) for a in outer.attributes] == [
        ("latent.request_id", "r1")
    ]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_SERVICE_NAME", "search-prod"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=search-prod,service.namespace=museum"),
    ],
)
async def test_the_environment_names_the_service_as_opentelemetry_says(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    await one_span(settings(otel_endpoint=collector.url))
    (post,) = collector.posts
    assert post.resource["service.name"] == "search-prod"
    assert ("service.namespace" in post.resource) == ("namespace" in value)


async def test_the_address_of_traces_is_enough_comes_first_and_is_taken_as_it_is(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/ingest/otlp")
    await one_span(settings())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    await one_span(settings())
    assert [post.path for post in collector.posts] == ["/ingest/otlp"] * 2


async def test_the_collector_receives_the_configured_headers(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS", "x-team=otel%20key%2C1, authorization=Bearer k"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")  # the SDK reads the others itself
    given = settings(otel_endpoint=collector.url)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_HEADERS")  # secrets are forgotten once they are read
    assert "otel" not in str(given.otel_headers)
    await one_span(given)
    (post,) = collector.posts
    assert (post.headers["x-team"], post.headers["authorization"]) == ("otel key,1", "Bearer k")
    assert post.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("headers", ["key", "=key", "x=k%0Aey"])
async def test_headers_that_cannot_be_sent_are_refused_and_not_shown(headers: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=SDK_MISSING)
    given = settings(otel_endpoint="http://127.0.0.1:1", otel_headers=headers)
    with pytest.raises(Invalid, match="LLC_OTEL_HEADERS") as caught:
        await one_span(given)
    assert "key" not in caught.value.message


class SlowProvider:
    """Its collector takes the last spans when it may."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()

    def shutdown(self) -> None:
        self.begun.set()
        self.may.wait()


async def test_the_loop_goes_on_while_the_last_spans_are_sent() -> None:
    slow = SlowProvider()
    ending = asyncio.create_task(closed(slow, within=60.0))
    await asyncio.to_thread(slow.begun.wait, 30.0)  # this task waits; the loop does not
    assert slow.begun.is_set()
    assert not ending.done()
    slow.may.set()
    await ending


async def test_an_unreachable_collector_does_not_delay_the_end_of_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = SlowProvider()
    with caplog.at_level(logging.WARNING):
        await closed(slow, within=0.01)
    assert "trace_export_failed" in caplog.text
    waiting = [thread for thread in threading.enumerate() if thread.name == "last spans"]
    assert all(thread.daemon for thread in waiting), "the interpreter does not wait for them"
    slow.may.set()
    for thread in waiting:
        await asyncio.to_thread(thread.join)
