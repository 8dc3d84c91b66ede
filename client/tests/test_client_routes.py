"""Every route of docs/api.md, typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, NotFound, PreconditionFailed, Unavailable
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.search import SearchRequest
from tests.support.fake_gateway.gateway import IMAGE, FakeGateway


async def test_containers_are_created_listed_described_changed_and_deleted(
    client: AsyncClient,
) -> None:
    written = await client.create(Manifest(id="art", name="Art", theme="paintings"))
    assert written.files == ["art.yaml"]
    assert [c.id for c in await client.containers()] == ["notes", "art"]
    described = await client.describe("art")
    assert described.manifest["theme"] == "paintings"
    assert described.etag == written.etag

    changed = await client.update(Manifest(id="art", name="Artists"), if_match=described.etag)
    assert changed.changed
    assert (await client.describe("art")).manifest["name"] == "Artists"

    queued = await client.delete("art")
    assert (await client.job(queued.job_id)).kind is JobKind.DELETE_CONTAINER
    assert [c.id for c in await client.containers()] == ["notes"]


async def test_a_manifest_is_sent_with_the_keys_that_were_written(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    await client.create(Manifest(id="art", name="Art"))
    assert gateway.requests[-1].json() == {"manifest": {"id": "art", "name": "Art"}}


async def test_a_container_that_exists_is_not_created_again(client: AsyncClient) -> None:
    with pytest.raises(Conflict, match="container 'notes' exists"):
        await client.create(Manifest(id="notes", name="Notes"))


async def test_a_change_of_another_version_is_refused(client: AsyncClient) -> None:
    with pytest.raises(PreconditionFailed):
        await client.update(Manifest(id="notes", name="New"), if_match="of-yesterday")


async def test_an_identifier_is_one_part_of_the_path_whatever_it_holds(client: AsyncClient) -> None:
    with pytest.raises(NotFound, match=r"a/\.\./b"):
        await client.delete("a/../b?c=d")


async def test_an_upload_becomes_a_document_that_is_found_and_opened(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "lamp oil & wick.md"
    file.write_bytes("The lamp burns colza oil — always.".encode() * 20_000)
    upload = await client.upload("notes", file)
    assert (upload.filename, upload.mime) == ("lamp oil & wick.md", "application/octet-stream")
    assert upload.bytes == file.stat().st_size

    added = await client.add("notes", file_ref=upload.file_ref, source_uri="file:///lamp.md")
    [job] = await client.wait([added.job_id], timeout_seconds=10)
    assert job.state is JobState.DONE
    document = await client.document("notes", added.doc_id)
    assert document.source_uri == "file:///lamp.md"

    answer = await client.search(
        SearchRequest(containers=["notes"], query="colza", top_k=3, diagnostics=True)
    )
    assert [hit.doc_id for hit in answer.hits] == [added.doc_id]
    assert answer.diagnostics is not None
    assert answer.hits[0].page_uri is not None
    blob = await client.fetch(answer.hits[0].page_uri)
    assert (blob.mime, blob.content) == ("image/webp", IMAGE)
    assert (await client.page(added.doc_id, 1)).page_image == "ready"

    await client.delete_document("notes", added.doc_id)
    with pytest.raises(NotFound):
        await client.document("notes", added.doc_id)


async def test_the_token_is_not_sent_along_a_signed_link(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    await client.fetch(f"{gateway.url}/v1/blobs/{'0' * 64}?sig=x")
    assert "authorization" not in gateway.requests[-1].headers


async def test_lists_are_read_to_their_last_page(client: AsyncClient, gateway: FakeGateway) -> None:
    for number in range(7):
        gateway.put("notes", f"file:///notes/{number}.md", b"text")
    documents = [d.source_uri async for d in client.documents("notes", uri_prefix="file:///notes/")]
    assert sorted(documents) == [f"file:///notes/{n}.md" for n in range(7)]
    assert [j.job_id async for j in client.jobs(container_id="notes")] == [7, 6, 5, 4, 3, 2, 1]
    assert len([c async for c in client.chunks("notes")]) == 7
    some = next(iter(gateway.documents))
    assert [c.doc_id async for c in client.chunks("notes", doc_id=some)] == [some]


async def test_jobs_are_listed_by_their_states(client: AsyncClient, gateway: FakeGateway) -> None:
    gateway.hold_jobs = True
    jobs = [gateway.put("notes", f"file:///{n}", b"text") for n in range(4)]
    gateway.finish(jobs[0].job_id)
    gateway.finish(jobs[1].job_id, JobState.FAILED)
    states = {JobState.DONE, JobState.FAILED}
    assert {j.job_id async for j in client.jobs(states=states)} == {1, 2}


async def test_a_job_is_cancelled_and_tried_again(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    job = gateway.put("notes", "file:///a", b"text")
    assert (await client.cancel(job.job_id)).state is JobState.CANCELLED
    assert (await client.requeue(job.job_id)).state is JobState.QUEUED


async def test_a_comparison_of_the_stores_is_waited_for_longer_than_other_answers(
    client: AsyncClient, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, float] = {}
    real = httpx.AsyncClient.send

    async def send(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        sent[request.url.path] = request.extensions["timeout"]["read"]
        return await real(self, request, **more)

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    await client.doctor()
    await client.healthy()
    assert sent["/v1/admin/doctor"] >= 3600 > sent["/healthz"]


async def test_doctor_health_and_metrics_are_read(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    assert (await client.doctor()).clean
    gateway.differences = [{"kind": "point", "object": "p-1", "message": "no row expects it"}]
    report = await client.doctor("notes")
    assert not report.clean
    assert report.containers["notes"].differences[0].object == "p-1"
    assert await client.healthy()
    assert (await client.readiness()).services["postgres"] == "ok"
    assert "latent_embedded_texts_total 0" in await client.metrics()


async def test_what_does_not_exist_is_not_found(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await client.document("notes", uuid4())
    with pytest.raises(NotFound):
        await client.job(99)


async def test_a_call_is_not_sent_again_when_it_may_have_been_received(
    client: AsyncClient, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = httpx.AsyncClient.send

    async def breaking(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        await send(http, request)
        raise httpx.RemoteProtocolError("the answer was lost")

    monkeypatch.setattr(httpx.AsyncClient, "send", breaking)
    with pytest.raises(Unavailable, match="was lost"):
        await client.create(Manifest(id="art", name="Art"))
    assert len(gateway.requests_to("POST .*")) == 1
