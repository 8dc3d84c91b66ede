"""A stand-in for a Qdrant server: its REST calls as far as we use them, over ``qdrant-client``'s local mode.

For wiring, not for proof: what Qdrant itself does under load, on a full disk or in a cluster is not seen here. It keeps
everything in memory. Refusals have the statuses and texts of the server; each route names the file of Qdrant's source
(1.19) that it follows.

    python -m tests.support.servers.qdrant_server --port 6333 --api-key secret

``POST /misbehave`` with a ``QdrantFaultPlan`` spoils the requests that follow.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import logging
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import orjson
from pydantic import TypeAdapter, ValidationError
from qdrant_client import models
from typing_extensions import override

from latent_core.runtime.lifeline import watch_parent
from tests.support.servers.qdrant_engine import FakeQdrantEngine
from tests.support.servers.qdrant_faults import REFUSALS, QdrantFault, QdrantFaultPlan
from tests.support.servers.qdrant_refusals import (
    FakeRefusal,
    format_error,
    read_only_key,
    service_error,
    unauthorized,
)
from tests.support.servers.qdrant_requests import FakeCall, FakeRequest, RouteKind, read_call

logger = logging.getLogger(__name__)

VERSION: Final = "1.19.0"
_SILENT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """``body`` is text as it is, or the data of a JSON document."""

    status: int
    body: Any
    retry_after: int | None = None


Handler: TypeAlias = Callable[[FakeQdrantEngine, FakeCall], Any]


class QdrantServer:
    """Serves from threads of its own. ``api_key``, if given, is the key it wants; with ``read_only_key`` as the key
    nothing can be changed."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        read_only_key: str | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        self.engine = FakeQdrantEngine()
        self.api_key = api_key
        self.read_only_key = read_only_key
        self.ready = True
        """What ``/readyz`` says."""
        self.requests = 0
        self.compressed = 0
        """Responses that were compressed since the client accepts it; the server sends them in pieces."""
        self._plan: QdrantFaultPlan | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._http = _Http((host, port), _Handler)
        self._http.stand_in = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def misbehave(self, kind: QdrantFault, *, times: int = 1, only: str = "") -> None:
        self._plan = QdrantFaultPlan(kind, times, only)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def answer(self, request: FakeRequest) -> FakeAnswer | None:
        """None hangs up."""
        if request.path == "/misbehave":
            plan = orjson.loads(request.body)
            self.misbehave(QdrantFault(plan.pop("kind")), **plan)
            return FakeAnswer(200, {})
        plan = None
        if request.path not in _OPEN:
            with self._lock:
                self.requests += 1
                plan = self._next_plan(request.path)
        if plan is not None and plan.kind in (QdrantFault.SILENT, QdrantFault.HUNG_UP):
            if plan.kind is QdrantFault.SILENT:
                self._ended.wait(_SILENT_SECONDS)
            return None
        try:
            return self._answer(request, plan)
        except FakeRefusal as refusal:
            return _refused(refusal)
        except Exception:  # the server's own, too, is an answer
            logger.exception("stand_in_failed")
            return _refused(service_error("task panicked"))

    def _answer(self, request: FakeRequest, plan: QdrantFaultPlan | None) -> FakeAnswer:
        if request.path in _OPEN:
            return self._open(request)
        self._check_key(request)
        if plan is not None and plan.kind in REFUSALS:
            raise REFUSALS[plan.kind]
        for route in _ROUTES:
            found = route.pattern.fullmatch(request.path)
            if found and request.method == route.method:
                return self._routed(route, found.groupdict(), request, plan)
        return FakeAnswer(404, "")

    def _open(self, request: FakeRequest) -> FakeAnswer:
        """Needs no key: the whitelist in src/actix/mod.rs, answered by src/actix/api/service_api.rs."""
        if request.method != "GET":
            return FakeAnswer(404, "")
        if request.path == "/":
            return FakeAnswer(200, {"title": "qdrant - vector search engine", "version": VERSION})
        if request.path == "/readyz":
            return (
                FakeAnswer(200, "all shards are ready")
                if self.ready
                else FakeAnswer(503, "some shards are not ready")
            )
        return FakeAnswer(200, "healthz check passed")

    def _check_key(self, request: FakeRequest) -> None:
        """src/actix/auth.rs: also for a path that does not exist."""
        if self.api_key is not None and request.key not in (self.api_key, self.read_only_key):
            raise unauthorized(request.key)

    def _routed(
        self,
        route: _Route,
        found: Mapping[str, str],
        request: FakeRequest,
        plan: QdrantFaultPlan | None,
    ) -> FakeAnswer:
        call = read_call(request, found, route.kind)
        read_only = request.key is not None and request.key == self.read_only_key
        if read_only and route.kind is not RouteKind.READ:
            raise read_only_key()
        with self._lock:
            result = self._called(route, call, plan)
        return FakeAnswer(200, {"result": result, "status": "ok", "time": 0.001})

    def _next_plan(self, path: str) -> QdrantFaultPlan | None:
        plan = self._plan
        if plan is None or plan.only not in path:
            return None
        self._plan = (
            QdrantFaultPlan(plan.kind, plan.times - 1, plan.only) if plan.times > 1 else None
        )
        return plan

    def _called(self, route: _Route, call: FakeCall, plan: QdrantFaultPlan | None) -> Any:
        update = route.kind is RouteKind.UPDATE
        kind = plan.kind if plan is not None and update else None
        if kind is QdrantFault.LOST:
            return {"operation_id": 0, "status": "completed"}
        try:
            result = route.handler(self.engine, call)
        except ValidationError as exc:
            raise format_error(exc.errors()[0]["msg"]) from exc
        if kind is QdrantFault.NOT_COMPLETED and call.wait:
            result["status"] = "wait_timeout"
        return result


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    stand_in: QdrantServer

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is said of a client that was killed before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    server: _Http

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.stand_in.answer(FakeRequest(self.command, self.path, headers, body))
        if answer is None:
            self.close_connection = True
            return
        self._send(answer)

    def _send(self, answer: FakeAnswer) -> None:
        text = isinstance(answer.body, str)
        body = answer.body.encode() if text else orjson.dumps(answer.body)
        compress = "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(answer.status)
        if not text:
            self.send_header("Content-Type", "application/json")
        if answer.retry_after is not None:
            self.send_header("Retry-After", str(answer.retry_after))
        if compress:
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if compress:
            self._send_pieces(gzip.compress(body))
        else:
            self.wfile.write(body)

    def _send_pieces(self, body: bytes) -> None:
        """In chunks that leave one by one, as the server streams a compressed response."""
        self.server.stand_in.compressed += 1
        half = len(body) // 2
        for piece in (body[:half], body[half:], b""):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server calls

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def _refused(refusal: FakeRefusal) -> FakeAnswer:
    error = {"status": {"error": str(refusal)}, "time": 0.0}
    body = str(refusal) if refusal.plain else error
    return FakeAnswer(refusal.status, body, refusal.retry_after)


_INSERT: Final[TypeAdapter[Any]] = TypeAdapter(models.PointInsertOperations)
_SELECT: Final[TypeAdapter[Any]] = TypeAdapter(models.PointsSelector)


def _create(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    """Fields that the server does not know are ignored, as by every version of it."""
    given = orjson.loads(call.body)
    if not isinstance(given, dict):
        raise format_error("expected struct CreateCollection")
    known = {k: v for k, v in given.items() if k in models.CreateCollection.model_fields}
    return engine.create(call.name, models.CreateCollection.model_validate(known))


def _update(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    return engine.update(call.name, models.UpdateCollection.model_validate_json(call.body))


def _index(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.CreateFieldIndex.model_validate_json(call.body)
    return engine.index(call.name, request, wait=call.wait, timeout=call.timeout)


def _drop_index(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    return engine.drop_index(call.name, call.field, wait=call.wait)


def _upsert(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    points = _INSERT.validate_json(call.body)
    return engine.upsert(call.name, points, wait=call.wait, timeout=call.timeout)


def _delete(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    chosen = _SELECT.validate_json(call.body)
    return engine.delete(call.name, chosen, wait=call.wait, timeout=call.timeout)


def _retrieve(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.PointRequest.model_validate_json(call.body)
    return engine.retrieve(call.name, request, timeout=call.timeout)


def _count(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.CountRequest.model_validate_json(call.body)
    return engine.count(call.name, request, timeout=call.timeout)


def _scroll(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.ScrollRequest.model_validate_json(call.body)
    return engine.scroll(call.name, request, timeout=call.timeout)


def _query(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.QueryRequest.model_validate_json(call.body)
    return engine.query(call.name, request, timeout=call.timeout)


def _facet(engine: FakeQdrantEngine, call: FakeCall) -> Any:
    request = models.FacetRequest.model_validate_json(call.body)
    return engine.facet(call.name, request, timeout=call.timeout)


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    pattern: re.Pattern[str]
    kind: RouteKind
    handler: Handler
    source: str
    """The file of Qdrant's source that it follows, below src/actix/api/."""


def _route(method: str, path: str, source: str, kind: RouteKind, handler: Handler) -> _Route:
    pattern = re.sub(r"{(\w+)}", "(?P<\\1>[^/]+)", path)
    return _Route(method, re.compile(pattern), kind, handler, source)


_OPEN: Final = ("/", "/healthz", "/livez", "/readyz")
_AT: Final = "/collections/{name}"
_COLLECTIONS: Final = "collections_api.rs"
_UPDATES: Final = "update_api.rs"
_READS: Final = "retrieve_api.rs"
_READ, _UPDATE, _CHANGE = RouteKind.READ, RouteKind.UPDATE, RouteKind.CHANGE
_ROUTES: Final = (
    _route("GET", "/collections", _COLLECTIONS, _READ, lambda e, _c: e.names()),
    _route("GET", _AT, _COLLECTIONS, _READ, lambda e, c: e.info(c.name)),
    _route("GET", f"{_AT}/exists", _COLLECTIONS, _READ, lambda e, c: e.exists(c.name)),
    _route("PUT", _AT, _COLLECTIONS, RouteKind.CREATE, _create),
    _route("PATCH", _AT, _COLLECTIONS, _CHANGE, _update),
    _route("DELETE", _AT, _COLLECTIONS, _CHANGE, lambda e, c: e.drop(c.name)),
    _route("PUT", f"{_AT}/index", _UPDATES, _UPDATE, _index),
    _route("DELETE", f"{_AT}/index/{{field}}", _UPDATES, _UPDATE, _drop_index),
    _route("PUT", f"{_AT}/points", _UPDATES, _UPDATE, _upsert),
    _route("POST", f"{_AT}/points/delete", _UPDATES, _UPDATE, _delete),
    _route("POST", f"{_AT}/points", _READS, _READ, _retrieve),
    _route("POST", f"{_AT}/points/scroll", _READS, _READ, _scroll),
    _route("POST", f"{_AT}/points/count", "count_api.rs", _READ, _count),
    _route("POST", f"{_AT}/points/query", "query_api.rs", _READ, _query),
    _route("POST", f"{_AT}/facet", "facet_api.rs", _READ, _facet),
)


async def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="a stand-in for a Qdrant server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key", default=None)
    given = parser.parse_args(arguments)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.call_soon_threadsafe(ended.set)

    with QdrantServer(api_key=given.api_key, port=given.port, host=given.host) as server:
        if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            watch_parent(sys.stdin.fileno(), end)  # a test's; else it stays until it is killed
        sys.stdout.write(orjson.dumps({"url": server.url}).decode() + "\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
