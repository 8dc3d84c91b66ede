"""A scripted model over real HTTP: it asks for the calls of its script in order and records what it was shown.

``async with ScriptedModel(script) as model: … model.url``. The number of answers in a request says which call is next,
so a client may repeat a request, and requests without our tools (titles, summaries) are answered by a text.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.servers.model_dialects import (
    AnthropicDialect,
    ChatDialect,
    Dialect,
    FunctionCall,
    GeminiDialect,
    ModelRequest,
    OfferedTool,
    PlainDialect,
    Reply,
    ResponsesDialect,
    ShownAnswer,
)

DONE: Final = "The script is done."
_STREAMED_PATH: Final = ":streamGenerateContent"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    tool: str
    arguments: Mapping[str, Any]
    before: Callable[[], Awaitable[None]] | None = None
    """Awaited before the model asks for this call."""


class ScriptedModel:
    def __init__(self, script: Sequence[ScriptedCall]) -> None:
        self._script = tuple(script)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.tools: tuple[str, ...] = ()
        """Names that the client offered, as it spells them."""
        self.answers: tuple[ShownAnswer, ...] = ()
        self.images = 0
        self.unknown_paths: list[str] = []
        self.bodies: list[str] = []
        """All requests, as their clients sent them."""
        self._server = uvicorn.Server(
            uvicorn.Config(self._app(), log_config=None, access_log=False, lifespan="off")
        )
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    @property
    def ended(self) -> bool:
        """Whether each call of the script was answered."""
        return len(self.answers) >= len(self._script)

    def _app(self) -> Starlette:
        def route(path: str, dialect: Dialect) -> Route:
            async def answer(request: Request) -> Response:
                return await self._answer(request, dialect)

            return Route(path, answer, methods=["POST"])

        return Starlette(
            routes=[
                Route("/v1/messages/count_tokens", _count_tokens, methods=["POST"]),
                route("/v1/messages", AnthropicDialect()),
                route("/v1/responses", ResponsesDialect()),
                route("/v1/chat/completions", ChatDialect()),
                route("/v1beta/models/{model}", GeminiDialect()),
                route("/plain", PlainDialect()),
                Route("/{path:path}", self._unknown, methods=["GET", "POST", "HEAD", "PUT"]),
            ]
        )

    async def _answer(self, request: Request, dialect: Dialect) -> Response:
        body = await request.json()
        self.bodies.append((await request.body()).decode())
        streamed = request.url.path.endswith(_STREAMED_PATH) or body.get("stream") is True
        seen = dialect.read(body, streamed=streamed)
        call = await self._next_call(seen)
        if call is None:
            return _response(dialect.say(body, DONE, streamed=streamed))
        return _response(dialect.call(body, call, streamed=streamed))

    async def _next_call(self, seen: ModelRequest) -> FunctionCall | None:
        number = len(seen.answers)
        if number >= len(self.answers):
            self.answers, self.images = seen.answers, max(self.images, seen.images)
        if number >= len(self._script):
            return None
        step = self._script[number]
        tool = _named(seen.tools, step.tool)
        if tool is None:
            return None
        self.tools = tuple(offered.name for offered in seen.tools)
        if step.before is not None:
            await step.before()
        return FunctionCall(tool, step.arguments, number)

    async def _unknown(self, request: Request) -> Response:
        self.unknown_paths.append(f"{request.method} {request.url.path}")
        return JSONResponse({"error": {"message": "not found", "type": "not_found"}}, 404)


def _named(tools: Sequence[OfferedTool], name: str) -> OfferedTool | None:
    """Clients put the server's name before a tool's."""
    return next((tool for tool in tools if tool.name.endswith(name)), None)


async def _count_tokens(request: Request) -> Response:
    return JSONResponse({"input_tokens": len(await request.body()) // 4})


def _response(reply: Reply) -> Response:
    if reply.document is not None:
        return JSONResponse(reply.document)
    return StreamingResponse(iter(reply.events), media_type="text/event-stream")
