"""MCP over stdio for clients that start a command: forwards each line to the gateway's ``/mcp`` and writes the answer.

The bridge has no knowledge of tools. Its only state is the protocol version that an older client negotiated. Clients
start one bridge each, so it is a process with few imports: ``latent mcp`` reads the settings and becomes
``python -m latent_cli.mcp_bridge <url> <token file> <proxy> <parent>``, with a token of the settings in its environment.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import orjson

MAX_OPEN: Final = 32
"""Concurrent requests. Further lines wait."""
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 90.0
"""Read timeout. The gateway sends something at least every 15 s."""
LAST_SECONDS: Final = 10.0
"""Time for open requests after the input ends."""
SECONDS_BETWEEN_LOOKS: Final = 1.0
"""At the parent process: its end does not close our input if another process has inherited it."""
PARSE_ERROR: Final = -32700
SERVER_ERROR: Final = -32000
TOKEN: Final = "LLC_MCP_TOKEN"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method to the parameter that is repeated in a header (MCP 2026-07-28)."""
PLAIN: Final = re.compile(r"(?!=\?base64\?)(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")

Message = dict[str, Any]
Write = Callable[[bytes], None]
"""Writes one message, given without its line end."""


@dataclass(frozen=True, slots=True)
class Gateway:
    url: str
    token_file: Path
    token: str | None
    """None: the token file has it, which may be created after the bridge starts."""
    proxy: str = ""

    def headers(self) -> Mapping[str, str]:
        token = self.token or self._stored_token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _stored_token(self) -> str:
        try:
            return self.token_file.read_text("utf-8").strip()
        except OSError:
            return ""

    def connection(self) -> tuple[HTTPConnection, str]:
        """A new connection, not open yet, and the target of its requests."""
        parts, proxy = urlsplit(self.url), urlsplit(self.proxy)
        first = proxy if proxy.hostname else parts
        if parts.scheme != "https":
            plain = HTTPConnection(first.hostname or "", first.port, timeout=CONNECT_SECONDS)
            return plain, self.url if proxy.hostname else parts.path
        encrypted = HTTPSConnection(first.hostname or "", first.port, timeout=CONNECT_SECONDS)
        if proxy.hostname:
            encrypted.set_tunnel(parts.hostname or "", parts.port, _proxy_headers(proxy))
        return encrypted, parts.path


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


@dataclass(slots=True)
class OpenRequest:
    message: Message
    line: bytes
    connected: socket.socket | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """The closed connection tells the gateway to stop."""
        self.cancelled.set()
        if self.connected is not None:
            try:
                self.connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has just ended


class Bridge:
    def __init__(self, gateway: Gateway, write: Write) -> None:
        self._gateway = gateway
        self._write = write
        self._version: str | None = None
        self._open: dict[str | int, OpenRequest] = {}
        self._free = threading.Semaphore(MAX_OPEN)

    def run(self, lines: Iterable[bytes]) -> None:
        """Forward lines until the input ends, then wait for open requests."""
        threads: list[threading.Thread] = []
        for line in lines:
            request = self._request(line)
            if request is None:
                continue
            self._free.acquire()
            threads = [thread for thread in threads if thread.is_alive()]
            thread = threading.Thread(target=self._answered, args=(request,), daemon=True)
            threads.append(thread)
            thread.start()
        until = time.monotonic() + LAST_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _request(self, line: bytes) -> OpenRequest | None:
        """The request to forward, registered so that a cancellation on the next line finds it."""
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            self._fail(None, PARSE_ERROR, f"the line is not valid JSON: {exc}")
            return None
        if not isinstance(message, dict):
            self._fail(None, PARSE_ERROR, "a message must be a JSON object on one line")
            return None
        if message.get("method") == "notifications/cancelled":
            self._cancel(message)
            return None
        request = OpenRequest(message, line)
        if "method" in message and isinstance(identity := message.get("id"), str | int):
            self._open[identity] = request
        return request

    def _cancel(self, message: Message) -> None:
        params = message.get("params")
        request_id = params.get("requestId") if isinstance(params, dict) else None
        request = self._open.get(request_id) if isinstance(request_id, str | int) else None
        if request is not None:
            request.cancel()

    def _answered(self, request: OpenRequest) -> None:
        identity, url = request.message.get("id"), self._gateway.url
        try:
            self._forward(request)
        except TimeoutError:
            self._fail_open(request, f"{url} did not answer in time; try again")
        except (OSError, HTTPException) as exc:
            why = str(exc) or type(exc).__name__
            error_text = (
                f"no gateway answers at {url} ({why}); start it with `latent up` or set LLC_URL"
            )
            self._fail_open(request, error_text)
        finally:
            if isinstance(identity, str | int) and self._open.get(identity) is request:
                del self._open[identity]
            self._free.release()

    def _fail_open(self, request: OpenRequest, error_text: str) -> None:
        if not request.cancelled.is_set():
            self._fail(request.message.get("id"), SERVER_ERROR, error_text)

    def _forward(self, request: OpenRequest) -> None:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._gateway.headers(),
            **self._protocol_headers(request.message),
        }
        connection, target = self._gateway.connection()
        try:
            connection.connect()
            connection.sock.settimeout(SILENCE_SECONDS)
            request.connected = connection.sock
            if request.cancelled.is_set():
                return
            connection.request("POST", target, request.line, headers)
            self._answer(request, connection.getresponse())
        finally:
            connection.close()

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

    def _answer(self, request: OpenRequest, response: HTTPResponse) -> None:
        if response.headers.get_content_type() == "text/event-stream":
            for data in events(response):
                self._pass(request, data)
            return
        body = response.read()
        if response.status == 202 or not body:
            return
        if not self._pass(request, body):
            self._fail_open(request, _issue(response.status, body))

    def _pass(self, request: OpenRequest, data: bytes) -> bool:
        """Write ``data`` if it is a message of the protocol. Returns whether it was one."""
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError:
            return not data  # an event without data is not an error
        if not isinstance(answer, dict) or "jsonrpc" not in answer:
            return False
        result = answer.get("result")
        if request.message.get("method") == "initialize" and isinstance(result, dict):
            agreed = result.get("protocolVersion")
            self._version = agreed if isinstance(agreed, str) else None
        if answer.get("id", ...) is None:  # the gateway refused the request before it read the id
            answer["id"] = request.message.get("id")
        if not request.cancelled.is_set():
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


def events(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The data of server-sent events (WHATWG HTML). An incomplete event at the end is dropped."""
    data: list[bytes] = []
    for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not name and not value and data:
            yield b"\n".join(data)
            data = []


def _issue(status: int, body: bytes) -> str:
    """The first message in the gateway's envelope."""
    try:
        error_text = orjson.loads(body)["issues"][0]["message"]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return f"the gateway answered with status {status}"
    return f"the gateway refused: {error_text}"


def _lines() -> Iterator[bytes]:
    while line := sys.stdin.buffer.readline(MAX_LINE_BYTES):
        if not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
            sys.exit(f"a message is larger than {MAX_LINE_BYTES} bytes; send a smaller one")
        if line.strip():
            yield line


def _write() -> Write:
    """Writes whole lines to the output, one at a time. The process ends if its reader is gone."""
    lock = threading.Lock()

    def write(message: bytes) -> None:
        with lock:
            try:
                sys.stdout.buffer.write(message + b"\n")
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                os._exit(0)

    return write


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(0)


def main() -> None:
    url, token_file, proxy, parent = sys.argv[1:]
    token = os.environ.get(TOKEN)  # noqa: TID251 - from `latent mcp`, which has read the settings
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    try:
        Bridge(Gateway(url, Path(token_file), token, proxy), _write()).run(_lines())
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)  # open requests have had their time


if __name__ == "__main__":
    main()
