"""Errors of the server and of the way to it."""

from __future__ import annotations

import asyncio
import socket
import ssl

import httpx
import pytest

from latent_client import AsyncClient, GatewayUnreachable
from latent_client.errors import error_class
from latent_client.transport import LateTls, Transport
from latent_core.domain.errors import (
    Conflict,
    Forbidden,
    IngestFailed,
    Invalid,
    IssueCode,
    LatentError,
    NotFound,
    OutOfSpace,
    PreconditionFailed,
    RateLimited,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.web_address import is_loopback
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.fake_gateway.http import FakeResponse, failure

ALL = [
    Invalid, Unauthorized, Forbidden, NotFound, Conflict, PreconditionFailed, TooLarge, IngestFailed,
    RateLimited, Unavailable, OutOfSpace, TimedOut,
]  # fmt: skip


@pytest.mark.parametrize("kind", ALL)
async def test_an_issue_comes_back_as_the_error_it_was(
    kind: type[LatentError], client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("POST .*", failure(kind("what happened; what to do", line=3)))]
    with pytest.raises(kind) as caught:
        await client.create(Manifest(id="more", name="More"))
    assert type(caught.value) is kind
    assert caught.value.message == "what happened; what to do"
    assert caught.value.details["line"] == 3
    assert caught.value.details["request_id"] == "r-1"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (428, "CONFLICT", Conflict),
        (404, None, NotFound),
        (418, None, Invalid),
        (502, None, Unavailable),
        (422, "INVALID", Invalid),
        (500, "A_CODE_OF_TOMORROW", Unavailable),
    ],
)
def test_an_unknown_pair_of_status_and_code_is_the_nearest_known_one(
    status: int, code: str | None, kind: type[LatentError]
) -> None:
    assert error_class(status, code) is kind


def test_every_code_has_a_class() -> None:
    classes = {error_class(400, code) for code in IssueCode if code is not IssueCode.NO_HITS}
    assert len(classes) == len(IssueCode) - 1


async def test_an_answer_without_an_envelope_is_shown_as_it_is(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("GET .*", FakeResponse(502, b"<h1>Bad\ngateway</h1>", "text/html"))]
    with pytest.raises(Unavailable, match="answered 502: <h1>Bad gateway</h1>"):
        await client.containers()


async def test_an_answer_of_another_shape_names_the_releases(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("GET .*", FakeResponse(200, b'{"containers": 7}'))]
    with pytest.raises(Unavailable, match="same release"):
        await client.containers()


async def test_a_rate_limit_tells_when_to_come_back(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    answer = FakeResponse(429, b'{"issues": []}', headers={"retry-after": "7"})
    gateway.failures = [("GET .*", answer)]
    with pytest.raises(RateLimited) as caught:
        await client.containers()
    assert caught.value.details["retry_after"] == 7.0


async def test_when_nothing_listens_the_remedy_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(
            GatewayUnreachable, match=rf"127\.0\.0\.1:{port}; start it with `latent up`"
        ):
            await client.containers()


async def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncClient(url, timeout_seconds=0.2) as client:
            with pytest.raises(TimedOut, match="did not answer in time"):
                await client.containers()


@pytest.mark.parametrize(
    "url", ["", "localhost:7801", "ftp://a", "http://", "http://[::1", "http://a:x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match=r"is not a .*URL"):
        AsyncClient(url)


async def test_a_proxy_from_the_environment_is_not_used_for_localhost(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with AsyncClient(gateway.url, gateway.token) as client:
        assert await client.containers()


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("a.example", False),
    ],
)
def test_the_hosts_of_this_machine_are_known(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize(("repeatable", "attempts"), [(True, 2), (False, 1)])
async def test_only_a_call_that_is_safe_to_repeat_is_tried_again_when_nothing_listens(
    repeatable: bool, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"job_id": 1, "status": "queued"}'
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + body)
        await writer.drain()
        writer.close()

    door = socket.socket()
    door.bind(("127.0.0.1", 0))  # refuses until somebody listens
    servers: list[asyncio.Server] = []
    tried: list[str] = []
    once = Transport._once

    async def noted(self: Transport, request: httpx.Request) -> httpx.Response:
        tried.append(request.method)
        try:
            return await once(self, request)
        except GatewayUnreachable:
            servers.append(await asyncio.start_server(answer, sock=door))
            raise

    monkeypatch.setattr(Transport, "_once", noted)
    async with AsyncClient(f"http://127.0.0.1:{door.getsockname()[1]}") as client:
        if repeatable:
            assert (await client.delete("notes")).job_id == 1
        else:
            with pytest.raises(GatewayUnreachable):
                await client.create(Manifest(id="notes", name="Notes"))
    assert len(tried) == attempts
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("base", ["http://127.0.0.1:7801", "https://127.0.0.1:7801"])
async def test_https_is_checked_also_by_a_client_of_a_loopback_address(base: str) -> None:
    """Its own connection needs no certificates, and a signed link may lead to a server that does."""
    client = AsyncClient(base, "token")
    try:
        for address in ("https://127.0.0.1:9/a", "https://store.example/a"):
            used = client._transport._http._transport_for_url(httpx.URL(address))
            if isinstance(used, LateTls):
                with pytest.raises(httpx.ConnectError):
                    await used.handle_async_request(httpx.Request("GET", "https://127.0.0.1:9/"))
                assert used._checked is not None
                used = used._checked
            assert isinstance(used, httpx.AsyncHTTPTransport)
            context = used._pool._ssl_context
            assert context is not None
            assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    finally:
        await client.close()
