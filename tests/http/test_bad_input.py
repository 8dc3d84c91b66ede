"""What no sender should send: each is a named issue with its status, never a 503 and never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import orjson
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.manifest.model import OFFERED_MODES, Manifest, SearchMode
from latent_gateway.middleware.auth import MAX_BODY_BYTES
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE: Final = 1024 * 1024
HERE: Final = "door"


def manifest(container_id: str, **more: Any) -> dict[str, Any]:
    return {
        "id": container_id,
        "name": container_id,
        "embedder": "openai/test",
        "dims": DIMS,
        **more,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upload(installation: Installation, embedding_server: EmbeddingServer) -> str:
    """A container and the id of an upload in it."""
    async with installation.client() as client:
        await client.create(Manifest.model_validate(manifest(HERE)))
        path = installation.folder / "lamp.txt"
        path.write_text("The lamp is lit at dusk.", encoding="utf-8")
        return (await client.upload(HERE, path)).file_ref


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_traceback(installation: Installation, upload: str) -> AsyncIterator[None]:
    """Whatever a test sends, the log of the process holds no traceback of it."""
    before = installation.log.stat().st_size
    yield
    assert b"Traceback" not in installation.log.read_bytes()[before:]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def refused(answer: httpx.Response, *statuses: int) -> str:
    """The issue's message, after the status and the envelope were looked at."""
    assert answer.status_code in statuses, answer.text
    body = answer.json()
    assert body["request_id"] == answer.headers["x-request-id"]
    return str(body["issues"][0]["message"])


async def send(
    http: httpx.AsyncClient, method: str, path: str, body: dict[str, Any]
) -> httpx.Response:
    """As JSON with escapes: it carries NUL and lone surrogates."""
    return await http.request(
        method,
        path,
        content=json.dumps(body).encode("ascii"),
        headers={"Content-Type": "application/json"},
    )


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x1f", "\x7f", "\ud800"])
async def test_a_container_whose_name_cannot_be_one_is_refused_in_every_body(
    http: httpx.AsyncClient, name: str
) -> None:
    for path, body in (
        ("/v1/search", {"containers": [HERE, name], "query": "x", "top_k": 1}),
        ("/v1/containers/add", {"container_id": name, "file_ref": str(uuid4())}),
        ("/v1/admin/doctor", {"container_id": name}),
    ):
        refused(await send(http, "POST", path, body), 400)


@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "%1F", "%7F", "%ED%A0%80"])
async def test_a_container_whose_name_cannot_be_one_is_refused_in_paths_and_queries(
    http: httpx.AsyncClient, name: str
) -> None:
    document = f"/v1/containers/{name}/documents/{uuid4()}"
    for method, path in (
        ("GET", f"/v1/containers/describe?container_id={name}"),
        ("GET", f"/v1/jobs?container_id={name}"),
        ("GET", f"/v1/containers/{name}/documents"),
        ("GET", f"/v1/containers/{name}/chunks"),
        ("GET", document),
        ("DELETE", document),
        ("DELETE", f"/v1/containers/{name}"),
    ):
        refused(await http.request(method, path), 400, 404)
    listing = {"root": "a", "files": []}
    refused(await http.post(f"/v1/containers/{name}/listing", json=listing), 400, 404)
    refused(await http.post(f"/v1/containers/{name}/uploads?filename=a", content=b"x"), 400, 404)


async def test_every_route_refuses_a_query_parameter_that_it_does_not_have(
    http: httpx.AsyncClient,
) -> None:
    schema = (await http.get("/openapi.json")).json()
    routes = [(verb, path) for path, item in schema["paths"].items() for verb in item]
    assert len(routes) > 50
    for verb, path in [*routes, ("get", "/openapi.json")]:
        address = re.sub(r"\{\w+\}", "1", path) + "?surprise=1"
        answer = await http.request(verb, address, headers={"Tus-Resumable": "1.0.0"})
        if verb == "head":  # whose answers have no body
            assert answer.status_code == 400, path
            continue
        message = refused(answer, 400)
        assert "'surprise' is not a query parameter of this route" in message, (verb, path)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (f"/v1/containers/{HERE}/chunks?source_typ=pdf", "did you mean 'source_type'?"),
        (f"/v1/containers/{HERE}/chunks?xyz=1", "known are block_type, .*, meta.<name>"),
        ("/v1/containers/describe?container=x", "did you mean 'container_id'?"),
        ("/v1/jobs?containerid=x", "did you mean 'container_id'?"),
        ("/healthz?verbose=1", "'verbose' is not a query parameter of this route; it has none"),
        (f"/v1/blobs/{'0' * 64}?a%00b=1&sig=x", r"'a\\u0000b' is not a query parameter"),
    ],
)
async def test_the_nearest_query_parameter_is_named(
    http: httpx.AsyncClient, address: str, message: str
) -> None:
    assert re.search(message, refused(await http.get(address), 400))


async def test_the_nearest_field_of_a_body_is_named(http: httpx.AsyncClient) -> None:
    body = {"containers": [HERE], "qeury": "x", "top_k": 1, "fusion": {"wieghts": {}}}
    message = refused(await http.post("/v1/containers/search", json=body), 400)
    assert "'qeury' is unknown; did you mean 'query'?" in message
    assert "'fusion.wieghts' is unknown" in message


async def test_a_link_of_the_console_may_have_parameters_of_others(
    http: httpx.AsyncClient,
) -> None:
    """Chat programs append theirs to the addresses that they show."""
    answer = await http.get("/login?utm_source=chat")
    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]


@pytest.mark.parametrize("prefix", ["a%00b", "%01"])
async def test_a_prefix_that_no_uri_has_is_refused(http: httpx.AsyncClient, prefix: str) -> None:
    message = refused(await http.get(f"/v1/containers/{HERE}/documents?uri_prefix={prefix}"), 400)
    assert "uri_prefix: must not contain the control character" in message


@pytest.mark.parametrize(
    "more",
    [
        {"name": "a\x00b"},
        {"theme": "\x01"},
        {"name": "\ud800"},
        {"metadata": {"custom_schema": {"a\x00": 1}}},
        {"metadata": {"custom_schema": {"a": 2**80}}},
        {"metadata": {"custom_schema": nested(80)}},
        {"acl": {"roles": {"owner": ["local:you", "\x00"]}}},
        {"retrieval": {"fusion": {"weights": {"bm25": float("nan")}}}},
        {"retrieval": {"fusion": {"weights": {"magic": 1}}}},
        {"retrieval": {"mode_default": "multivector"}},
    ],
)
async def test_a_manifest_that_cannot_be_kept_or_obeyed_is_refused(
    http: httpx.AsyncClient, more: dict[str, Any]
) -> None:
    body = {"manifest": manifest("odd") | more}
    message = refused(await send(http, "POST", "/v1/containers", body), 400)
    assert next(iter(more)) in message


ADDITIONS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"meta": {"a": "x\x00y"}}, "meta: 'a' must not contain the control character"),
    ({"meta": {"a": "\ud800"}}, "lone surrogate"),
    ({"meta": {"\ud800": 1}}, "lone surrogate"),
    ({"meta": {"a": 2**64}}, "more than 64 bits"),
    ({"meta": nested(65)}, "nested deeper than 64"),
    ({"meta": nested(900)}, "nested deeper than 64"),
    ({"meta": {"a": float("nan")}}, "not finite"),
    ({"meta": {"a": "x" * 70_000}}, "at most 65536 bytes"),
    ({"source_uri": "http://[foo"}, "is not a uri"),
    ({"source_uri": "file:///a\x00b"}, "control character"),
    ({"source_uri": "no-scheme"}, "is not a uri"),
    ({"source_uri": "file:///" + "ä" * 1000}, "at most 2000 bytes"),
    ({"modified_at": "1200-01-01T00:00:00Z"}, "between the years 1900 and 2200"),
    ({"modified_at": "9999-12-31T23:59:59-12:00"}, "between the years 1900 and 2200"),
    ({"mtime_ns": 2**63}, "mtime_ns"),
]


@pytest.mark.parametrize(("more", "message"), ADDITIONS)
async def test_an_addition_that_cannot_be_kept_is_refused_with_the_reason(
    http: httpx.AsyncClient, upload: str, more: dict[str, Any], message: str
) -> None:
    body = {"container_id": HERE, "file_ref": upload, **more}
    assert message in refused(await send(http, "POST", "/v1/containers/add", body), 400)


@pytest.mark.parametrize("uri", ["http://[foo", "//[", "http://\x00/", "file:///etc/passwd", ""])
async def test_a_uri_that_is_none_is_refused(http: httpx.AsyncClient, uri: str) -> None:
    body = {"container_id": HERE, "uri": uri}
    refused(await send(http, "POST", "/v1/containers/add", body), 400)


async def test_a_reference_that_cannot_be_a_file_is_not_found(
    http: httpx.AsyncClient, installation: Installation
) -> None:
    inbox = Path(installation.environment()["LLC_INGEST_ROOTS"])
    closed = inbox / "closed"
    closed.mkdir()
    (closed / "lamp.txt").write_text("The lamp is lit.", encoding="utf-8")
    (inbox / "circle").symlink_to(inbox / "circle")
    closed.chmod(0o600)
    references = ["x" * 300, "x/" * 1500 + "a.txt", "circle", "circle/a.txt"]
    if os.geteuid() != 0:  # nothing is closed to root
        references.append("closed/lamp.txt")
    try:
        for reference in references:
            body = {"container_id": HERE, "file_ref": reference}
            message = refused(await send(http, "POST", "/v1/containers/add", body), 404)
            assert "no such file below LLC_INGEST_ROOTS" in message
    finally:
        closed.chmod(0o700)


async def test_a_manifest_that_would_lock_its_sender_out_is_refused(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    etag = (await client.describe(HERE)).etag
    for owners, message in (
        ([], "at least one owner"),
        (["agent:claude"], "you would lose access"),
    ):
        body = {"manifest": manifest(HERE, acl={"roles": {"owner": owners}})}
        assert message in refused(await http.post("/v1/containers", json=body), 400)
        put = await http.put(f"/v1/containers/{HERE}", json=body, headers={"If-Match": etag})
        assert message in refused(put, 400)
    assert (await client.describe(HERE)).etag == etag


async def test_a_container_without_text_takes_no_text(
    http: httpx.AsyncClient, client: AsyncClient, installation: Installation
) -> None:
    await client.create(Manifest.model_validate(manifest("pictures", modalities=["image"])))
    reference = (await client.upload("pictures", installation.folder / "lamp.txt")).file_ref
    body = {"container_id": "pictures", "file_ref": reference}
    answer = await http.post("/v1/containers/add", json=body)
    assert "accepts no text: 'text' is missing" in refused(answer, 403)
    assert answer.json()["issues"][0]["code"] == "POLICY"


async def test_rerank_k_named_explicitly_is_answered_with_the_hint_that_it_does_nothing(
    http: httpx.AsyncClient,
) -> None:
    search_body = {"containers": [HERE], "query": "lamp", "top_k": 1}
    for more in ({}, {"rerank_k": 50}):
        silent = (await http.post("/v1/search", json={**search_body, **more})).json()
        assert "rerank_k" not in orjson.dumps(silent["issues"]).decode()
    message = (await http.post("/v1/search", json={**search_body, "rerank_k": 20})).json()
    assert "rerank_k has no effect" in message["issues"][-1]["message"]
    assert message["issues"][-1]["code"] == "POLICY"
    assert not message["partial"]


@pytest.mark.parametrize("mode", list(SearchMode))
async def test_the_modes_that_are_offered_answer_and_the_others_are_refused(
    http: httpx.AsyncClient, mode: SearchMode
) -> None:
    search_body = {"containers": [HERE], "query": "lamp", "top_k": 1, "mode": mode.value}
    answer = await http.post("/v1/search", json=search_body)
    assert answer.status_code == (200 if mode in OFFERED_MODES else 403)


async def _answer_to(
    installation: Installation, head: list[str], body: int, *, chunked: bool = False
) -> tuple[int, bytes]:
    """Send a head and then up to ``body`` bytes until answered: how many went out, and the answer.

    A stream of asyncio forgets what came once sending fails; a socket keeps it.
    """
    url, loop = urlsplit(installation.url), asyncio.get_running_loop()
    lines = [*head, "Host: here", "Content-Type: application/json", "", ""]
    piece, sent = b" " * 65536, 0
    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.setblocking(False)
        await loop.sock_sendall(connection, "\r\n".join(lines).encode())
        answered = asyncio.create_task(_whole_answer(connection))
        try:
            while sent < body and not answered.done():
                await loop.sock_sendall(connection, framed)
                sent += len(piece)
                await asyncio.sleep(0)  # a send that need not wait lets nobody else run
        except OSError:  # hung up on, as it should be
            pass
        async with asyncio.timeout(30):
            return sent, await answered


async def _whole_answer(connection: socket.socket) -> bytes:
    """Head and body; what follows it on the connection is not waited for."""
    answer = b""
    while (length := _length(answer)) is None or len(answer) < length:
        received = await asyncio.get_running_loop().sock_recv(connection, 65536)
        assert received, answer[:200]
        answer += received
    return answer


def _length(answer: bytes) -> int | None:
    """Of head and body, once the head is there."""
    head, end, _ = answer.partition(b"\r\n\r\n")
    message = re.search(rb"content-length: (\d+)", head.lower()) if end else None
    return len(head) + len(end) + int(message[1]) if message else None


async def test_a_strangers_large_body_is_answered_without_being_read(
    installation: Installation,
) -> None:
    size = 50 * MEGABYTE
    for token in ([], ["Authorization: Bearer wrong"]):
        head = ["POST /v1/search HTTP/1.1", f"Content-Length: {size}", *token]
        sent, answer = await _answer_to(installation, head, size)
        assert answer.startswith(b"HTTP/1.1 401"), answer[:200]
        assert b'"AUTH"' in answer
        assert sent < size // 2


async def test_a_body_over_its_limit_is_refused_before_it_is_read(
    installation: Installation,
) -> None:
    size = 50 * MEGABYTE
    head = [
        "POST /v1/search HTTP/1.1",
        f"Content-Length: {size}",
        f"Authorization: Bearer {installation.token}",
    ]
    sent, answer = await _answer_to(installation, head, size)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
    assert str(MAX_BODY_BYTES).encode() in answer
    assert sent < size // 2


async def test_a_body_that_does_not_tell_its_length_is_counted(
    installation: Installation,
) -> None:
    head = [
        "POST /v1/search HTTP/1.1",
        "Transfer-Encoding: chunked",
        f"Authorization: Bearer {installation.token}",
    ]
    sent, answer = await _answer_to(installation, head, 50 * MEGABYTE, chunked=True)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
    assert sent < 25 * MEGABYTE


async def test_a_chunked_body_within_the_limit_is_answered_as_any_other(
    http: httpx.AsyncClient,
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"containers": ["door"], '
        yield b'"query": "lamp", "top_k": 1}'

    answer = await http.post(
        "/v1/search", content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200


async def test_a_listing_may_be_larger_than_other_bodies(http: httpx.AsyncClient) -> None:
    files = [{"path": f"{'folder/' * 20}{n}.txt", "bytes": 1, "mtime_ns": 1} for n in range(20_000)]
    body = orjson.dumps({"root": "large", "files": files})
    assert len(body) > MAX_BODY_BYTES
    answer = await http.post(
        f"/v1/containers/{HERE}/listing",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert len(answer.json()["need"]) == 20_000
    refused(await http.post("/v1/search", content=body), 413)


async def test_what_vanished_from_a_listing_is_deleted_with_its_job(
    http: httpx.AsyncClient, client: AsyncClient, upload: str
) -> None:
    expected = 12
    await client.create(Manifest.model_validate(manifest("vanish")))
    path_of = "file:///many/{}.txt".format
    reference = await _upload(http, "vanish")
    for n in range(expected):
        await client.add("vanish", file_ref=reference, source_uri=path_of(n))
    answer = await http.post(
        "/v1/containers/vanish/listing", json={"root": "many", "files": []}, timeout=60
    )
    body = answer.json()
    assert sorted(body["deleted"]) == sorted(path_of(n) for n in range(expected))
    assert len(body["delete_jobs"]) == 1
    assert not body["partial"]
    left = (await http.get("/v1/containers/vanish/documents")).json()["documents"]
    assert left == []


async def _upload(
    http: httpx.AsyncClient, container: str, content: bytes = b"The lamp is lit."
) -> str:
    answer = await http.post(f"/v1/containers/{container}/uploads?filename=a.txt", content=content)
    return str(answer.json()["upload"]["file_ref"])


async def test_event_streams_are_bounded_and_closed_ones_free_their_slots(
    http: httpx.AsyncClient, client: AsyncClient, embedding_server: EmbeddingServer
) -> None:
    embedding_server.misbehave(EmbeddingFault.HUNG_UP, times=1000, only_with="unending")
    await client.create(Manifest.model_validate(manifest("streamed")))
    reference = await _upload(http, "streamed", b"An unending lamp.")
    added = await client.add("streamed", file_ref=reference)  # it is tried again and again
    path = f"/v1/jobs/{added.job_id}/events"
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(
        base_url=http.base_url, headers=http.headers, trust_env=False, limits=limits, timeout=30
    ) as reader:
        opened: list[httpx.Response] = []
        while len(opened) < 100:
            answer = await reader.send(reader.build_request("GET", path), stream=True)
            opened.append(answer)
            if answer.status_code != 200:
                break
        await opened[-1].aread()
        assert "event streams are open" in refused(opened[-1], 429)
        assert int(opened[-1].headers["Retry-After"]) > 0
        assert len(opened) == 65
        for answer in opened:
            await answer.aclose()

    async def stream_is_free() -> bool:
        async with http.stream("GET", path) as answer:
            return answer.status_code == 200

    await eventually(stream_is_free, what="room for a stream")
    await client.cancel(added.job_id)


async def test_a_port_that_cannot_be_one_is_refused_in_one_line(
    installation: Installation,
) -> None:
    with_port = Installation(installation.folder / "portless", {"LLC_PORT": "99999"})
    code, _, err = await with_port.cli("up")
    assert code != 0
    assert "LLC_PORT" in err
    assert "Traceback" not in err
