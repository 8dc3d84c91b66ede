"""Just enough of ASGI to stand for a gateway: requests read whole, answers sent whole or as a stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import orjson
import uvicorn
from pydantic import BaseModel

from latent_core.domain.errors import LatentError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class FakeRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = orjson.loads(self.body)
        return loaded


@dataclass(frozen=True)
class FakeResponse:
    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    mime: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


async def read_request(scope: Message, receive: Receive) -> FakeRequest:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return FakeRequest(
        method=scope["method"],
        path=scope["path"],
        query=_query(scope["query_string"].decode()),
        headers={k.decode().lower(): v.decode() for k, v in scope["headers"]},
        body=body,
    )


def _query(text: str) -> dict[str, str]:
    """A name given several times holds its values with commas between."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(text):
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


async def send_answer(answer: FakeResponse, send: Send) -> None:
    headers = {"content-type": answer.mime, **answer.headers}
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": start})
    if isinstance(answer.body, bytes):
        await send({"type": "http.response.body", "body": answer.body})
        return
    async for part in answer.body:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def reply(status: int = 200, /, **content: Any) -> FakeResponse:
    envelope = {"request_id": "r-1", "version": "v1", "partial": False, "timings": {}, "issues": []}
    headers = {"etag": content["etag"]} if "etag" in content else {}
    return FakeResponse(
        status, orjson.dumps({**envelope, **content}, default=_plain), headers=headers
    )


def failure(exc: LatentError) -> FakeResponse:
    return reply(exc.status, issues=[exc.issue()])


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(type(value).__name__)


@dataclass
class ServedStage:
    """A served address whose application changes: a server starts slowly, a test world does not."""

    url: str = ""
    app: App | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self.app is None:
            raise RuntimeError("no application is on stage")
        await self.app(scope, receive, send)


@contextmanager
def staged() -> Iterator[ServedStage]:
    stage = ServedStage()
    with served(stage) as stage.url:
        yield stage


@contextmanager
def served(app: App) -> Iterator[str]:
    """The address of ``app``, served on a free port of this machine by a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
