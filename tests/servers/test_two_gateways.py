"""Two gateways on the same servers: what one is given, grants or takes away holds at the other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from latent_client import AsyncClient
from latent_client.resumable import PART_BYTES
from latent_core.domain.errors import Conflict, Forbidden, NotFound, Unauthorized
from latent_core.domain.manifest.model import Acl, Roles
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from tests.http.test_http_surface import ingest, manifest, search, settled
from tests.processes.test_gateway_processes import connections, finds
from tests.support.harness.installation import Installation, eventually
from tests.support.notifications import notifications_cut
from tests.support.on_servers import TOKEN

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

GULLS = "The herring gull nests on the north cliff above the old harbour."
FOG = "When fog comes, the keeper sounds the horn twice a minute until it lifts."
LAMP = "A lens of glass rings turns around the lamp, so that ships see it flash."

SHARED: Final = ("LLC_POSTGRES", "LLC_QDRANT", "LLC_S3", "LLC_MCP_TOKEN")


def stores_of(gateway: Installation) -> dict[str, str]:
    """The settings by which another gateway works on the same servers."""
    return {k: v for k, v in gateway.environment().items() if k.startswith(SHARED)}


async def test_two_gateways_see_the_same_and_honour_each_others_links(
    split: Installation,
    client: AsyncClient,
    install_root: Path,
    settings: dict[str, str],
    addresses: Mapping[str, str],
) -> None:
    await client.create(manifest("shared"))
    await ingest(client, "shared", "gulls.md", GULLS.encode())
    await settled(client, "shared")
    stores = stores_of(split)
    public = {"LLC_S3_PUBLIC_ENDPOINT": stores["LLC_S3_ENDPOINT"]}
    other = Installation(install_root / "other", settings | public, stores=stores)
    await other.start()
    try:
        async with other.client() as second, httpx.AsyncClient(trust_env=False) as http:
            (here,) = (await search(client, "shared", "gull")).hits
            (there,) = (await search(second, "shared", "gull")).hits
            assert here.chunk_id == there.chunk_id
            # The one's link is signed for its own route, the other's leads straight to the S3 server.
            assert urlsplit(there.uri).netloc == urlsplit(stores["LLC_S3_ENDPOINT"]).netloc
            moved = here.uri.replace(split.url, other.url)
            pages = [await http.get(uri) for uri in (here.uri, moved, there.uri)]
            assert len({page.content for page in pages}) == 1
            assert {page.status_code for page in pages} == {200}
    finally:
        await other.stop()


async def test_a_gateway_of_two_processes_answers_by_both(
    split: Installation, client: AsyncClient, install_root: Path, settings: dict[str, str]
) -> None:
    await client.create(manifest("several"))
    await ingest(client, "several", "gulls.md", GULLS.encode())
    two = Installation(
        install_root / "several",
        settings | {"LLC_GATEWAY_PROCESSES": "2"},
        stores=stores_of(split),
    )
    await two.start()
    try:
        async with connections(two) as both:
            for http in both:
                assert await finds(http, "several")
    finally:
        assert await two.stop() == 0


async def test_lost_rights_are_refused_by_the_next_request_at_each_gateway_without_notifications(
    split: Installation, client: AsyncClient, install_root: Path, settings: dict[str, str]
) -> None:
    """Each change is made at one gateway. The next requests go to the other one and to the same one."""
    acl = Acl(roles=Roles(owner=["local:you"], writer=["local:ann"], reader=["local:bob"]))
    for name in ("rights", "closing"):
        await client.create(manifest(name, acl=acl))
        await ingest(client, name, "gulls.md", GULLS.encode())
        await settled(client, name)
    stores = stores_of(split)
    other = Installation(install_root / "fewer", settings, stores=stores)
    await other.start()
    try:
        ann = await client.create_token("local:ann", scopes=[Scope.READ, Scope.WRITE])
        bob = await client.create_token("local:bob", scopes=[Scope.READ])
        async with (
            split.client(ann.secret) as ann_here,
            other.client(ann.secret) as ann_there,
            split.client(bob.secret) as bob_here,
            other.client(bob.secret) as bob_there,
        ):
            for writes in (ann_there, ann_here):
                await ingest(writes, "rights", "fog.md", FOG.encode())
            for reads in (bob_there, bob_here):
                for name in ("rights", "closing"):
                    assert (await search(reads, name, "gull")).hits
            async with notifications_cut(stores["LLC_POSTGRES_DSN"]):
                lowered = Acl(roles=Roles(owner=["local:you"], reader=["local:ann", "local:bob"]))
                etag = (await client.describe("rights")).etag
                await client.update(manifest("rights", acl=lowered), if_match=etag)
                for reads_only in (ann_there, ann_here):
                    with pytest.raises(Forbidden):
                        await ingest(reads_only, "rights", "lamp.md", LAMP.encode())
                    assert (await search(reads_only, "rights", "gull")).hits

                await client.set_state("closing", ContainerState.ARCHIVED)
                for reads in (bob_there, bob_here):
                    with pytest.raises(NotFound):  # only owners see an archived container
                        await search(reads, "closing", "gull")

                await client.revoke_token(bob.token.id)
                for reads in (bob_there, bob_here):
                    with pytest.raises(Unauthorized, match="revoked"):
                        await search(reads, "rights", "gull")
    finally:
        await other.stop()


async def test_an_upload_begun_at_a_gateway_that_is_killed_goes_on_at_another(
    split: Installation,
    client: AsyncClient,
    install_root: Path,
    settings: dict[str, str],
    tmp_path: Path,
) -> None:
    """A few bytes are confirmed, a part is stored while its request goes on; then the first gateway is killed."""
    file = tmp_path / "log.bin"
    file.write_bytes(Random(5).randbytes(PART_BYTES * 5 // 2))
    size, digest = file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()
    await client.create(manifest("moving"))
    first = Installation(install_root / "first", settings, stores=stores_of(split))
    await first.start()
    try:
        async with first.client() as begins:
            begun = await begins.create_resumable_upload("moving", file.name, size, sha256=digest)
            confirmed = await begins.append_to_upload(
                "moving", begun.file_ref, file, start=0, length=1000
            )
        stored = confirmed + PART_BYTES

        async def has_part() -> bool:
            known = await client.resumable_upload("moving", begun.file_ref)
            return known.received >= stored

        part_stored, killed = asyncio.Event(), asyncio.Event()
        rest = file.read_bytes()[confirmed:]
        sending = asyncio.create_task(
            send(first, begun.file_ref, confirmed, rest, part_stored, killed)
        )
        await eventually(has_part, what="the first part, seen at the other gateway")
        part_stored.set()
        assert not sending.done(), "the request waits for its rest"
    finally:
        await first.kill()
    killed.set()
    with pytest.raises(httpx.TransportError):
        await sending
    known = await client.resumable_upload("moving", begun.file_ref)
    assert (known.received, known.upload) == (stored, None)
    with pytest.raises(Conflict):
        await client.append_to_upload("moving", begun.file_ref, file, start=0, length=1000)
    received = await client.append_to_upload(
        "moving", begun.file_ref, file, start=stored, length=size - stored
    )
    assert received == size
    whole = (await client.resumable_upload("moving", begun.file_ref)).upload
    assert whole is not None
    assert (whole.sha256, whole.bytes) == (digest, size)


async def send(
    gateway: Installation,
    file_ref: str,
    start: int,
    data: bytes,
    stored: asyncio.Event,
    killed: asyncio.Event,
) -> None:
    """A request with a part, 1,000 bytes once it is stored, and the rest when the gateway is killed. In one piece with
    the part, the 1,000 bytes could be stored with it."""
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": str(start),
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(len(data)),
    }

    async def body() -> AsyncIterator[bytes]:
        yield data[:PART_BYTES]
        await stored.wait()
        yield data[PART_BYTES : PART_BYTES + 1000]
        await killed.wait()
        yield data[PART_BYTES + 1000 :]

    path = f"{gateway.url}/v1/containers/moving/resumable-uploads/{file_ref}"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        await http.patch(path, content=body(), headers=headers)
