"""Log lines, metrics and traces of a process, one by one."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
from hypothesis import given, settings as settings_of_test, strategies as st
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, TracerProvider
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from typing_extensions import override

from latent_core.db.capacity import oldest_transaction_seconds
from latent_core.db.connection import Database
from latent_core.domain.errors import Conflict, Invalid, IssueCode
from latent_core.runtime.probe import main as probe
from latent_core.settings import Settings
from latent_core.telemetry import log_file, metrics_server
from latent_core.telemetry.log_file import LogFile
from latent_core.telemetry.metrics import Metrics, bound, set_up_logs
from latent_core.telemetry.metrics_server import metrics_served
from latent_core.telemetry.resources import ResourceCollector
from latent_core.telemetry.tracing import recording, span, tracing
from latent_core.wire.doctor import ReadinessAnswer
from tests.support.harness.installation import eventually


@pytest.fixture
def lines() -> Iterator[Any]:
    with json_lines() as written:
        yield written


@contextmanager
def json_lines(**given: Any) -> Iterator[Any]:
    """JSON lines of the root logger; its handlers are put back."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    set_up_logs("json", **given)
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    written = io.StringIO()
    if "file" not in given:
        handler.setStream(written)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)


def test_lines_carry_what_is_bound_and_their_own_fields_come_first(lines: Any) -> None:
    logger = logging.getLogger("latent.test")
    with bound(request_id="r1"):
        logger.info("one")
        with bound(job_id=7):
            logger.info("two", extra={"request_id": "own"})
    logger.info("three")
    one, two, three = lines()
    assert (one["request_id"], one["msg"], one["logger"]) == ("r1", "one", "latent.test")
    assert (two["request_id"], two["job_id"]) == ("own", 7)
    assert "request_id" not in three


@pytest.mark.parametrize(
    "payload",
    [
        "cannot connect as LATENTSECRET, giving up",
        {"asked": ["LATENTSECRET"], "api_key": 'a"b', "n": 1},
        OSError("LATENTSECRET"),
    ],
)
def test_own_secrets_stand_in_no_line_whatever_they_look_like(payload: Any) -> None:
    with json_lines(own=[SecretStr("LATENTSECRET"), SecretStr("short")]) as lines:
        logging.getLogger("latent.test").info("a short line", extra={"payload": payload})
    (line,) = lines()
    assert "LATENTSECRET" not in json.dumps(line)
    assert 'a"b' not in str(line)
    assert line["msg"] == "a short line"


@contextmanager
def filed_lines(file: LogFile, **given: Any) -> Iterator[io.StringIO]:
    """Lines of the root logger into ``file``; what stderr gets."""
    with pytest.MonkeyPatch.context() as patch:
        shown = io.StringIO()
        patch.setattr(sys, "stderr", shown)
        with json_lines(file=file, **given):
            yield shown
    file.close()


def test_a_log_file_has_the_lines_from_before_it_was_opened_and_a_terminal_only_warnings(
    tmp_path: Path,
) -> None:
    file, path = LogFile(), tmp_path / "latent.log"
    logger = logging.getLogger("latent.test")
    with filed_lines(file, shown=logging.WARNING, own=[SecretStr("LATENTSECRET")]) as shown:
        with bound(request_id="r1"):
            logger.info("early LATENTSECRET")
        file.open(path)
        logger.info("late")
        logger.warning("wrong")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["msg"] for line in lines] == ["early ********", "late", "wrong"]
    assert lines[0]["request_id"] == "r1"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["msg"] for line in shown.getvalue().splitlines()] == ["wrong"]


def test_a_log_file_is_bounded_and_a_disk_that_refuses_it_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MAX_BYTES", 2_000)
    file, path = LogFile(), tmp_path / "latent.log"
    with filed_lines(file, shown=logging.WARNING) as shown:
        file.open(path)
        for number in range(200):
            logging.getLogger("latent.test").info("line", extra={"number": number})
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["latent.log", "latent.log.1", "latent.log.2", "latent.log.3"]
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= 8_000
    refused = LogFile()
    with filed_lines(refused, shown=logging.WARNING) as shown:
        refused.open(tmp_path / "no folder" / "latent.log")
        logging.getLogger("latent.test").info("line")
    assert shown.getvalue() == ""


@settings_of_test(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_a_log_line_is_json_whatever_its_fields_hold(message: str, field: str) -> None:
    with json_lines() as lines:
        logging.getLogger("latent.test").info(
            "%s", f'password: "{message}', extra={"payload": f'api_key="{field}'}
        )
    (line,) = lines()
    assert set(line) >= {"msg", "payload", "timestamp"}


def test_a_traceback_hides_secrets_too(lines: Any) -> None:
    try:
        raise ValueError("postgresql://latent:hunter2@db/latent refused")
    except ValueError:
        logging.getLogger("latent.test").exception("cannot connect")
    (line,) = lines()
    assert "hunter2" not in json.dumps(line)
    assert "refused" in line["exc_info"]


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def fetched(port: int, path: str = "/metrics") -> tuple[int, str]:
    """Status and body. Blocks."""
    try:
        with build_opener(ProxyHandler({})).open(
            f"http://127.0.0.1:{port}{path}", timeout=5
        ) as got:
            return got.status, got.read().decode()
    except HTTPError as exc:
        return exc.code, exc.read().decode()


async def page(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(fetched, port, path)


async def well() -> tuple[bool, ReadinessAnswer]:
    return True, ReadinessAnswer(status="ok", services={"postgres": "ok"})


async def test_metrics_are_served_on_their_port_while_the_block_lasts() -> None:
    metrics, port = Metrics(), free_port()
    metrics.failed("job", IssueCode.TIMEOUT)
    with metrics_served(settings(metrics_port=port), metrics, well):
        _, text = await page(port, "/metrics")
        assert 'latent_errors_total{code="TIMEOUT",surface="job"} 1.0' in text
        with (
            pytest.raises(Conflict, match="LLC_METRICS_PORT"),
            metrics_served(settings(metrics_port=port), Metrics(), well),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        await page(port, "/metrics")


async def test_without_a_port_nothing_is_served() -> None:
    with metrics_served(settings(), Metrics(), well):
        pass


async def test_the_port_of_metrics_answers_health_and_readiness() -> None:
    ready, port = True, free_port()

    async def readiness() -> tuple[bool, ReadinessAnswer]:
        return ready, ReadinessAnswer(status="degraded", services={"postgres": "read_only"})

    with metrics_served(settings(metrics_port=port), Metrics(), readiness):
        body = '{"status":"degraded","services":{"postgres":"read_only"}}'
        assert await page(port, "/healthz") == (200, '{"status":"ok"}')
        assert await page(port, "/readyz") == (200, body)
        ready = False
        assert await page(port, "/readyz") == (503, body)
        assert (await page(port, "/other"))[0] == 404


async def test_a_process_whose_event_loop_hangs_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "LOOP_SECONDS", 0.05)
    port = free_port()
    with metrics_served(settings(metrics_port=port), Metrics(), well):
        status, text = fetched(port, "/healthz")  # blocks the event loop
    assert (status, "event loop did not answer" in text) == (503, True)


async def test_the_health_check_of_an_image_shows_the_answer_and_ends_accordingly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()

    async def readiness() -> tuple[bool, ReadinessAnswer]:
        return False, ReadinessAnswer(status="degraded", services={"postgres": "down"})

    with metrics_served(settings(metrics_port=port), Metrics(), readiness):
        assert await asyncio.to_thread(probe, [f"http://127.0.0.1:{port}/healthz"]) == 0
        assert await asyncio.to_thread(probe, [f"http://127.0.0.1:{port}/readyz"]) == 1
    assert '"postgres":"down"' in capsys.readouterr().out
    assert probe([f"http://127.0.0.1:{port}/healthz"]) == 1
    assert probe([]) == 1


async def test_connections_are_counted_at_each_scrape(dsn: str, tmp_path: Path) -> None:
    async with await Database.open(dsn, max_size=1) as database:
        registry = CollectorRegistry()
        registry.register(ResourceCollector(database.stats, tmp_path))

        def pool(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"latent_database_pool_{name}", labels)

        async with database.reading():
            assert pool("connections", state="used") == pool("max_connections") == 1
            assert pool("timeouts_total") == 0
            waiting = asyncio.create_task(database.ping())

            async def waits() -> bool:
                return pool("waiting") == 1

            await eventually(waits, what="a statement that waits for the connection")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert pool("timeouts_total") == 1

        async def idle() -> bool:
            return pool("connections", state="idle") == 1

        await eventually(idle, what="the connection's return")


def test_the_time_spent_waiting_for_connections_is_in_seconds_and_a_lost_folder_hides_nothing(
    tmp_path: Path,
) -> None:
    registry, lost = CollectorRegistry(), CollectorRegistry()
    registry.register(ResourceCollector(lambda: {"requests_wait_ms": 1500}, tmp_path))
    lost.register(ResourceCollector(lambda: {"requests_wait_ms": 1500}, tmp_path / "lost"))
    free = registry.get_sample_value("latent_disk_free_bytes") or 0
    assert 0 < free < (registry.get_sample_value("latent_disk_size_bytes") or 0)
    assert lost.get_sample_value("latent_disk_free_bytes") is None
    assert lost.get_sample_value("latent_database_pool_wait_seconds_total") == 1.5


async def test_the_oldest_transaction_is_that_of_somebody_else(database: Database) -> None:
    async with database.reading() as watching:
        assert await oldest_transaction_seconds(watching) == 0.0
        async with database.transaction() as held:
            await held.execute("SELECT 1")
            assert await oldest_transaction_seconds(watching) > 0.0
        assert await oldest_transaction_seconds(watching) == 0.0


class Recorder(TracerProvider, Tracer):
    """Keeps names, attributes and the trace each span belongs to."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    @override
    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        return self

    @override
    def start_span(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @override
    @contextmanager
    def start_as_current_span(self, name: str, context: Any = None, **kwargs: Any) -> Iterator[Any]:  # type: ignore[override]  # the API's own has a decorator of its own
        parent = trace.get_current_span(context).get_span_context()
        trace_id = parent.trace_id or len(self.seen) + 1
        one: dict[str, Any] = {"name": name, "trace": trace_id, "parent": parent.span_id}
        self.seen.append(one)
        own = SpanContext(trace_id, len(self.seen), is_remote=False, trace_flags=TraceFlags(1))
        recorded = RecordedLines(own, one)
        with trace.use_span(recorded):
            yield recorded


class RecordedLines(NonRecordingSpan):
    def __init__(self, context: SpanContext, seen: dict[str, Any]) -> None:
        super().__init__(context)
        self._seen = seen

    @override
    def set_attribute(self, key: str, value: Any) -> None:
        self._seen[key] = value

    @override
    def update_name(self, name: str) -> None:
        self._seen["name"] = name

    @override
    def set_status(self, status: Any, description: str | None = None) -> None:
        self._seen["failed"] = status.description


def test_spans_nest_and_join_the_trace_that_a_request_names() -> None:
    seen = Recorder()
    named = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{named}-00f067aa0ba902b7-01"}
    with recording(seen), span("POST", headers=headers, request_id="r1") as outer:
        outer.rename("POST /v1/containers/search")
        with span("tool containers_search", nothing=None) as inner:
            inner.failed("TIMEOUT")
    with span("after"):
        pass
    outer_seen, inner_seen = seen.seen
    assert outer_seen["name"] == "POST /v1/containers/search"
    assert outer_seen["latent.request_id"] == "r1"
    assert f"{outer_seen['trace']:032x}" == named
    assert inner_seen["trace"] == outer_seen["trace"]
    assert inner_seen["parent"] == 1
    assert inner_seen["failed"] == "TIMEOUT"
    assert "latent.nothing" not in inner_seen


async def test_without_an_address_nothing_is_traced_and_nothing_is_imported() -> None:
    async with tracing(settings(), "latent"):
        with span("request") as silent:
            silent.set(anything=1)
            silent.failed("TIMEOUT")


async def test_an_address_without_the_sdk_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(Invalid, match=r"latent-containers\[otel\]"):
        async with tracing(settings(otel_endpoint="http://127.0.0.1:4318"), "latent"):
            pass
