"""Uploads on a running gateway whose connection is cut, or that is killed: what was confirmed is never sent twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_client.retry import RetryNotice
from latent_core.domain.errors import NotFound
from tests.conftest import running
from tests.http.test_http_surface import manifest
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.faulty_link import FaultyLink, LinkState

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

BOX: Final = "parcels"
MEGABYTE: Final = 1024 * 1024
PART: Final = 8 * MEGABYTE
DATA: Final = Random(3).randbytes(20 * MEGABYTE)
TUS: Final = {"Tus-Resumable": "1.0.0"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    async with running(install_root, "broken-uploads", embedding_server.base_url) as one:
        async with one.client() as client:
            await client.create(manifest(BOX))
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def link(installation: Installation) -> AsyncIterator[FaultyLink]:
    address = urlsplit(installation.url)
    async with FaultyLink(address.hostname or "", address.port or 0) as one:
        yield one


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_what_was_confirmed_before_a_kill_is_there_after_it(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "parcel.bin"
    file.write_bytes(DATA[: 3 * MEGABYTE])
    async with installation.client() as client:
        begun = await client.create_resumable_upload(BOX, file.name, 3 * MEGABYTE)
        received = await client.append_to_upload(
            BOX, begun.file_ref, file, start=0, length=MEGABYTE
        )
        assert received == MEGABYTE
    await installation.kill()
    await installation.start()
    async with installation.client() as client:
        known = await client.resumable_upload(BOX, begun.file_ref)
        assert (known.received, known.upload) == (MEGABYTE, None)
        rest = await client.append_to_upload(
            BOX, begun.file_ref, file, start=MEGABYTE, length=2 * MEGABYTE
        )
        assert rest == 3 * MEGABYTE
        whole = (await client.resumable_upload(BOX, begun.file_ref)).upload
        assert whole is not None
        assert whole.sha256 == digest(DATA[: 3 * MEGABYTE])


async def test_bytes_of_a_request_that_is_cut_are_kept(
    installation: Installation, link: FaultyLink
) -> None:
    """9 MB arrive: one part of 8 MB is stored while the request goes on, the last MB when the connection is lost."""
    async with installation.client() as client:
        begun = await client.create_resumable_upload(BOX, "cut.bin", len(DATA))
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(_head(installation, begun.file_ref) + DATA[: 9 * MEGABYTE])
        await writer.drain()

        async def has(size: int) -> bool:
            return (await client.resumable_upload(BOX, begun.file_ref)).received >= size

        await eventually(lambda: has(PART), what="the first part")
        link.become(LinkState.KILLED)
        assert await reader.read() == b""
        writer.close()
        await eventually(lambda: has(PART + 1), what="what came before the cut")
        known = (await client.resumable_upload(BOX, begun.file_ref)).received
        assert PART < known <= 9 * MEGABYTE
        await _finish(installation, begun.file_ref, known)
        whole = (await client.resumable_upload(BOX, begun.file_ref)).upload
        assert whole is not None
        assert whole.sha256 == digest(DATA)


def _head(installation: Installation, file_ref: str) -> bytes:
    """Of a request that announces all of the data."""
    head = (
        f"PATCH /v1/containers/{BOX}/resumable-uploads/{file_ref} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {installation.token}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        f"Content-Type: application/offset+octet-stream\r\nContent-Length: {len(DATA)}\r\n\r\n"
    )
    return head.encode()


async def _finish(installation: Installation, file_ref: str, start: int) -> None:
    headers = {
        **TUS,
        "Authorization": f"Bearer {installation.token}",
        "Upload-Offset": str(start),
        "Content-Type": "application/offset+octet-stream",
    }
    path = f"{installation.url}/v1/containers/{BOX}/resumable-uploads/{file_ref}"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.patch(path, content=DATA[start:], headers=headers)
        if answer.status_code == 409:  # more of what came before the cut was stored meanwhile
            start = answer.json()["issues"][0]["details"]["received"]
            headers["Upload-Offset"] = str(start)
            answer = await http.patch(path, content=DATA[start:], headers=headers)
    assert answer.status_code == 204, answer.text


async def test_the_client_goes_on_after_a_cut_in_the_middle_of_a_large_file(
    installation: Installation, link: FaultyLink, tmp_path: Path
) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(DATA)
    sent: list[int] = []

    class CutClient(AsyncClient):
        """Its connection is cut while the second part is sent, and comes back."""

        async def append_to_upload(
            self, container_id: str, file_ref: str, file: Path, *, start: int, length: int
        ) -> int:
            sent.append(start)
            if len(sent) == 2:
                link.become(LinkState.KILLED)
            return await super().append_to_upload(
                container_id, file_ref, file, start=start, length=length
            )

    def back(_: RetryNotice) -> None:
        link.become(LinkState.OPEN)

    url = f"http://127.0.0.1:{link.port}"
    async with CutClient(url, installation.token, on_retry=back) as client:
        upload = await client.upload(BOX, file)
    assert upload.sha256 == digest(DATA)
    assert sent[:2] == [0, PART]
    assert sent.count(0) == 1, "the first part is not sent again"


async def test_a_small_file_needs_one_request_as_before(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "small.bin"
    file.write_bytes(b"small")
    async with installation.client() as client:
        upload = await client.upload(BOX, file)
        assert upload.sha256 == digest(b"small")
        with pytest.raises(NotFound):
            await client.resumable_upload(BOX, "00000000-0000-4000-8000-000000000000")


@pytest.mark.slow
async def test_a_stopping_gateway_keeps_what_arrived_and_does_not_wait_for_the_rest(
    installation: Installation,
) -> None:
    async with installation.client() as client:
        begun = await client.create_resumable_upload(BOX, "stop.bin", len(DATA))
        address = urlsplit(installation.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(_head(installation, begun.file_ref) + DATA[: 9 * MEGABYTE])
        await writer.drain()

        async def stored() -> bool:
            return (await client.resumable_upload(BOX, begun.file_ref)).received >= PART

        await eventually(stored, what="the first part")
    assert await installation.stop() == 0
    assert b" 503 " in await reader.readline()
    writer.close()
    await installation.start()
    async with installation.client() as client:
        known = await client.resumable_upload(BOX, begun.file_ref)
    assert PART < known.received <= 9 * MEGABYTE
