"""A stand-in for a Qdrant server: its REST calls as far as we use them, over ``qdrant-client``'s local mode.

For wiring, not for proof: what Qdrant itself does under load, on a full disk or in a cluster is not seen
here. As strict mode does, it refuses a filter by a field that has no index. It keeps everything in memory.

    python -m tests.support.servers.qdrant_server --port 6333 --api-key secret

``POST /misbehave`` with a ``QdrantFaultPlan`` spoils the requests that follow.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import unquote, urlsplit

import orjson
from pydantic import TypeAdapter, ValidationError
from qdrant_client import models
from typing_extensions import override

from latent_core.runtime.lifeline import watch_parent
from tests.support.servers.qdrant_engine import FakeQdrantEngine, FakeRefusal

VERSION: Final = "1.19.0"
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one request, as the server has it."""
_SILENT_SECONDS: Final = 60.0

Answer: TypeAlias = tuple[int, Any]
Route: TypeAlias = Callable[[FakeQdrantEngine, str, bytes], Any]


class QdrantFault(StrEnum):
    SERVER_ERROR = "server_error"
    DISK_FULL = "disk_full"
    SILENT = "silent"
    """Reads the request and does not answer for as long as anybody waits."""
    HUNG_UP = "hung_up"
    NOT_COMPLETED = "not_completed"
    """Writes answer ``wait_timeout``, and are done."""
    LOST = "lost"
    """Writes answer ``completed``, and are not done."""
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class QdrantFaultPlan:
    """What the next ``times`` requests whose path contains ``only`` get instead of a good answer."""

    kind: QdrantFault
    times: int = 1
    only: str = ""


class QdrantServer:
    """Serves from threads of its own. ``api_key``, if given, is the key it wants."""

    def __init__(
        self, *, api_key: str | None = None, port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.engine = FakeQdrantEngine()
        self.api_key = api_key
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

    def answer(self, method: str, path: str, key: str | None, body: bytes) -> Answer | None:
        """Status and JSON; None hangs up."""
        if path in ("/healthz", "/livez", "/readyz"):
            return 200, "healthz check passed"
        if path == "/misbehave":
            plan = orjson.loads(body)
            self.misbehave(QdrantFault(plan.pop("kind")), **plan)
            return 200, {}
        if self.api_key is not None and key != self.api_key:
            return 401, _error("Must provide an API key or an Authorization bearer token")
        if path == "/":
            return 200, {"title": "qdrant - vector search engine", "version": VERSION}
        with self._lock:
            self.requests += 1
            plan = self._next_plan(path)
        if plan is not None and (spoiled := self._spoiled(plan.kind)) is not _GOOD:
            return spoiled
        return self._routed(method, path, body, plan)

    def _next_plan(self, path: str) -> QdrantFaultPlan | None:
        plan = self._plan
        if plan is None or plan.only not in path:
            return None
        self._plan = (
            QdrantFaultPlan(plan.kind, plan.times - 1, plan.only) if plan.times > 1 else None
        )
        return plan

    def _spoiled(self, kind: QdrantFault) -> Answer | None:
        match kind:
            case QdrantFault.SERVER_ERROR:
                return 500, _error("Service internal error: task panicked")
            case QdrantFault.DISK_FULL:
                return 500, _error("Service internal error: No space left on device: WAL buffer")
            case QdrantFault.TOO_MANY:
                return 429, _error("Rate limiting exceeded: Read rate limit exceeded")
            case QdrantFault.SILENT:
                self._ended.wait(_SILENT_SECONDS)
                return None
            case QdrantFault.HUNG_UP:
                return None
        return _GOOD

    def _routed(self, method: str, path: str, body: bytes, plan: QdrantFaultPlan | None) -> Answer:
        for verb, pattern, route in _ROUTES:
            found = pattern.fullmatch(path)
            if verb == method and found:
                name = unquote(found.groupdict().get("name", ""))
                try:
                    with self._lock:
                        result = self._called(route, name, body, plan)
                except FakeRefusal as exc:
                    return exc.status, _error(str(exc))
                except ValidationError as exc:
                    return 400, _error(f"Format error in JSON body: {exc.errors()[0]['msg']}")
                return 200, {"result": result, "status": "ok", "time": 0.001}
        return 404, _error("Not found")

    def _called(self, route: Route, name: str, body: bytes, plan: QdrantFaultPlan | None) -> Any:
        kind = plan.kind if plan is not None else None
        if kind is QdrantFault.LOST and route in _WRITES:
            return {"operation_id": 0, "status": "completed"}
        result = route(self.engine, name, body)
        if kind is QdrantFault.NOT_COMPLETED and route in _WRITES:
            return {"operation_id": 0, "status": "wait_timeout"}
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
        body = self._body()
        if body is None:
            self._send(413, _error("Payload too large"))
            return
        path = urlsplit(self.path).path
        answer = self.server.stand_in.answer(self.command, path, self.headers.get("api-key"), body)
        if answer is None:
            self.close_connection = True
            return
        self._send(*answer)

    def _body(self) -> bytes | None:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length <= MAX_BYTES else None

    def _send(self, status: int, answer: Any) -> None:
        body = answer.encode() if isinstance(answer, str) else orjson.dumps(answer)
        compress = "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status == 429:
            self.send_header("Retry-After", "1")
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


_GOOD: Final[Answer] = (0, None)
_INSERT: Final[TypeAdapter[Any]] = TypeAdapter(models.PointInsertOperations)
_SELECT: Final[TypeAdapter[Any]] = TypeAdapter(models.PointsSelector)


def _upsert(engine: FakeQdrantEngine, name: str, body: bytes) -> Any:
    return engine.upsert(name, _INSERT.validate_json(body))


def _delete(engine: FakeQdrantEngine, name: str, body: bytes) -> Any:
    return engine.delete(name, _SELECT.validate_json(body))


_WRITES: Final[tuple[Route, ...]] = (_upsert, _delete)
_COLLECTION: Final = "/collections/(?P<name>[^/]+)"


def _route(method: str, path: str, route: Route) -> tuple[str, re.Pattern[str], Route]:
    return method, re.compile(path), route


_ROUTES: Final = (
    _route("GET", "/collections", lambda e, _n, _b: e.names()),
    _route("GET", _COLLECTION, lambda e, n, _b: e.info(n)),
    _route("GET", f"{_COLLECTION}/exists", lambda e, n, _b: e.exists(n)),
    _route(
        "PUT",
        _COLLECTION,
        lambda e, n, b: e.create(n, models.CreateCollection.model_validate_json(b)),
    ),
    _route(
        "PATCH",
        _COLLECTION,
        lambda e, n, b: e.update(n, models.UpdateCollection.model_validate_json(b)),
    ),
    _route("DELETE", _COLLECTION, lambda e, n, _b: e.drop(n)),
    _route(
        "PUT",
        f"{_COLLECTION}/index",
        lambda e, n, b: e.index(n, models.CreateFieldIndex.model_validate_json(b)),
    ),
    _route("PUT", f"{_COLLECTION}/points", _upsert),
    _route("POST", f"{_COLLECTION}/points/delete", _delete),
    _route(
        "POST",
        f"{_COLLECTION}/points",
        lambda e, n, b: e.retrieve(n, models.PointRequest.model_validate_json(b)),
    ),
    _route(
        "POST",
        f"{_COLLECTION}/points/count",
        lambda e, n, b: e.count(n, models.CountRequest.model_validate_json(b)),
    ),
    _route(
        "POST",
        f"{_COLLECTION}/facet",
        lambda e, n, b: e.facet(n, models.FacetRequest.model_validate_json(b)),
    ),
    _route(
        "POST",
        f"{_COLLECTION}/points/scroll",
        lambda e, n, b: e.scroll(n, models.ScrollRequest.model_validate_json(b)),
    ),
    _route(
        "POST",
        f"{_COLLECTION}/points/query",
        lambda e, n, b: e.query(n, models.QueryRequest.model_validate_json(b)),
    ),
)


def _error(message: str) -> dict[str, Any]:
    return {"status": {"error": message}, "time": 0.0}


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
