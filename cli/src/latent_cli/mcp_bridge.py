"""MCP over stdio for clients that start a command: forwards each line to the gateway's ``/mcp`` and writes the answer.

The bridge has no knowledge of tools. Its only state is the protocol version that an older client negotiated.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import httpx
import orjson

from latent_client.streams import read_events
from latent_core.domain.errors import LatentError

MAX_OPEN: Final = 32
"""Concurrent requests. Further lines wait."""
CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 90.0
"""Read timeout. The gateway sends something at least every 15 s."""
LAST_SECONDS: Final = 10.0
"""Time for open requests after the input ends."""
PARSE_ERROR: Final = -32700
SERVER_ERROR: Final = -32000
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method to the parameter that is repeated in a header (MCP 2026-07-28)."""
PLAIN: Final = re.compile(r"(?!=\?base64\?)(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")

Message = dict[str, Any]
Write = Callable[[bytes], None]
"""Writes one message, given without its line end."""
Headers = Callable[[], Mapping[str, str]]
"""Called for each request, since the token may be created after the bridge starts."""


class Bridge:
    def __init__(self, http: httpx.AsyncClient, url: str, headers: Headers, write: Write) -> None:
        self._http = http
        self._url = url
        self._headers = headers
        self._write = write
        self._version: str | None = None
        self._open: dict[str | int, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(MAX_OPEN)

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Forward lines until the input ends, then wait for open requests."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for line in lines:
                await self._free.acquire()
                task = asyncio.create_task(self._line(line))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: self._free.release())
                await asyncio.sleep(
                    0
                )  # the task starts before the next line, so that a cancellation finds it
            if tasks:
                await asyncio.wait(tasks, timeout=LAST_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _line(self, line: bytes) -> None:
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            self._fail(None, PARSE_ERROR, f"the line is not valid JSON: {exc}")
            return
        if not isinstance(message, dict):
            self._fail(None, PARSE_ERROR, "a message must be a JSON object on one line")
            return
        if message.get("method") == "notifications/cancelled":
            self._cancel(message)
            return
        identity = message.get("id") if "method" in message else None
        if identity is not None and (task := asyncio.current_task()):
            self._open[identity] = task
        try:
            await self._forward(message, line)
        finally:
            if identity is not None:
                self._open.pop(identity, None)

    def _cancel(self, message: Message) -> None:
        """Cancel the HTTP request. The closed connection tells the gateway to stop."""
        params = message.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) else None
        task = self._open.get(request_id) if isinstance(request_id, str | int) else None
        if task is not None:
            task.cancel()

    async def _forward(self, message: Message, line: bytes) -> None:
        identity = message.get("id")
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._headers(),
            **self._protocol_headers(message),
        }
        try:
            async with self._http.stream(
                "POST", self._url, content=line, headers=headers
            ) as response:
                await self._answer(message, response)
        except httpx.TimeoutException:
            self._fail(identity, SERVER_ERROR, f"{self._url} did not answer in time; try again")
        except httpx.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            error_text = f"no gateway answers at {self._url} ({why}); start it with `latent up` or set LLC_URL"
            self._fail(identity, SERVER_ERROR, error_text)
        except LatentError as exc:
            self._fail(identity, SERVER_ERROR, exc.message)

    def _protocol_headers(self, message: Message) -> dict[str, str]:
        """The headers of the newer protocol; for an older one, only the negotiated version."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(VERSION) if isinstance(meta, dict) else None
        if not isinstance(version, str) or not isinstance(method, str):
            known = self._version if method != "initialize" else None
            return {"MCP-Protocol-Version": known} if known else {}
        mcp_headers = {"MCP-Protocol-Version": header(version), "Mcp-Method": header(method)}
        name = params.get(NAMES.get(method, ""))
        return mcp_headers | ({"Mcp-Name": header(name)} if isinstance(name, str) else {})

    async def _answer(self, message: Message, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if kind == "text/event-stream":
            async for event in read_events(response.aiter_bytes()):
                self._pass(message, event.data.encode())
            return
        body = await response.aread()
        if response.status_code == 202 or not body:
            return
        if not self._pass(message, body):
            self._fail(message.get("id"), SERVER_ERROR, _issue(response, body))

    def _pass(self, message: Message, data: bytes) -> bool:
        """Write ``data`` if it is a message of the protocol. Returns whether it was one."""
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError:
            return not data  # an event without data is not an error
        if not isinstance(answer, dict) or "jsonrpc" not in answer:
            return False
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            agreed = result.get("protocolVersion")
            self._version = agreed if isinstance(agreed, str) else None
        if answer.get("id", ...) is None:  # the gateway refused the request before it read the id
            answer["id"] = message.get("id")
        self._write(orjson.dumps(answer))
        return True

    def _fail(self, identity: object, code: int, error_text: str) -> None:
        """Answer a request with an error. A notification gets no answer."""
        if identity is None and code != PARSE_ERROR:
            return
        error = {"code": code, "message": error_text}
        self._write(orjson.dumps({"jsonrpc": "2.0", "id": identity, "error": error}))


def header(value: str) -> str:
    """``value`` encoded for a header (MCP 2026-07-28, "Streamable HTTP")."""
    if PLAIN.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _issue(response: httpx.Response, body: bytes) -> str:
    """The first message in the gateway's envelope."""
    try:
        error_text = orjson.loads(body)["issues"][0]["message"]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return f"the gateway answered with status {response.status_code}"
    return f"the gateway refused: {error_text}"
