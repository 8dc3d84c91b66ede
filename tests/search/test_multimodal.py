"""A container whose embedder reads pictures: words find what pictures show, and pictures find words.

The stand-in for the embedder sees one thing in a picture, its colour, and no text here is read by OCR.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import psycopg
import pymupdf
import pytest
import pytest_asyncio
from psycopg.rows import dict_row

from latent_client import AsyncClient
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import IssueCode
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.refresh import RefreshRequest, RefreshTarget, Strategy
from latent_core.wire.search import Hit, SearchRequest, SearchResponse
from latent_gateway.mcp.reading import read
from tests.conftest import DIMS
from tests.http.test_http_surface import add, ingest, manifest
from tests.support.colours import COLOURS, colour_of, picture
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="programs are started so on Linux"
    ),
]
BOTH = [Modality.TEXT, Modality.IMAGE]
WIDE = 96


def plates() -> bytes:
    """Page 1 has words, page 2 is green and has none."""
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "Ledger of the harbour office.")
    page = document.new_page()
    page.draw_rect(page.rect, fill=[part / 255 for part in COLOURS["green"]], width=0)
    return bytes(document.tobytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(dims=DIMS, see=colour_of) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(install_root: Path, server: EmbeddingServer) -> AsyncIterator[Installation]:
    one = Installation(
        install_root / "multimodal",
        {
            "LLC_EMBED_BASE_URL": server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_OCR": "off",
            "LLC_LEASE_SECONDS": "5",
        },
    )
    await one.start()
    try:
        async with one.client() as client:
            await stock(client, "seen")
        yield one
    finally:
        await one.stop()


async def stock(client: AsyncClient, container: str) -> None:
    await client.create(manifest(container, embedder="vllm/test", modalities=BOTH))
    await ingest(client, container, "first.png", picture("red"))
    await ingest(client, container, "second.jpg", picture("blue", "JPEG"))
    await ingest(client, container, "plates.pdf", plates())
    await ingest(client, container, "notes.md", b"# Notes\n\nA red barn by the water.")


@pytest_asyncio.fixture(loop_scope="module")
async def client(stocked: Installation) -> AsyncIterator[AsyncClient]:
    async with stocked.client() as opened:
        yield opened


async def search(client: AsyncClient, container: str = "seen", **options: Any) -> SearchResponse:
    return await client.search(SearchRequest(containers=[container], **{"top_k": 20, **options}))


async def pictured(client: AsyncClient, words: str, container: str = "seen") -> list[Hit]:
    found = await search(
        client, container, query=words, mode=SearchMode.CROSSMODAL, dedup=False, explain=True
    )
    assert not found.issues
    return found.hits


async def upload(client: AsyncClient, data: bytes, name: str = "asked.png") -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return (await client.upload("seen", path)).file_ref


async def documents(client: AsyncClient, container: str = "seen") -> dict[str, UUID]:
    return {d.source_uri.rpartition("/")[2]: d.doc_id async for d in client.documents(container)}


def first(hits: list[Hit]) -> tuple[str, int | None]:
    return hits[0].source_path, hits[0].place.page


async def purged(client: AsyncClient, container: str) -> None:
    async def done() -> bool:
        return not [
            job
            async for job in client.jobs(container_id=container)
            if job.kind is JobKind.PURGE and job.state in (JobState.QUEUED, JobState.RUNNING)
        ]

    await eventually(done, what="both purges")


async def test_words_find_pictures_that_show_and_do_not_say_them(client: AsyncClient) -> None:
    hits = await pictured(client, "red")
    assert first(hits) == ("first.png", 1)
    assert first(await pictured(client, "blue")) == ("second.jpg", 1)
    assert {hit.modality for hit in hits} == {Modality.IMAGE}
    assert "notes.md" not in {hit.source_path for hit in hits}
    assert hits[0].page_uri
    assert (hits[0].provenance.embedder, hits[0].provenance.page) == ("vllm/test", 1)


async def test_each_page_of_a_pdf_is_found_by_how_it_looks(client: AsyncClient) -> None:
    hits = await pictured(client, "green")
    assert first(hits) == ("plates.pdf", 2)
    assert hits[0].read_as == "image"
    assert hits[0].page_uri
    doc_id = (await documents(client))["plates.pdf"]
    listed = [chunk async for chunk in client.chunks("seen", doc_id=doc_id)]
    assert [(c.modality, c.place.page) for c in listed] == [
        (Modality.TEXT, 1),
        (Modality.IMAGE, 1),
        (Modality.IMAGE, 2),
    ]
    renders = {j.doc_id async for j in client.jobs(container_id="seen") if j.kind is JobKind.RENDER}
    assert renders == {(await documents(client))["notes.md"]}  # the others were drawn before


async def test_a_page_does_not_repeat_what_its_text_says_already(
    client: AsyncClient, stocked: Installation
) -> None:
    doc_id = (await documents(client))["plates.pdf"]
    async with await psycopg.AsyncConnection.connect(stocked.dsn, row_factory=dict_row) as conn:
        piece = await read(conn, "seen", doc_id, begin=None, max_bytes=10_000)
    assert piece.text.count("Ledger") == 1
    assert piece.next_place is None
    found = await search(client, query="ledger", neighbours=2, dedup=False, mode=SearchMode.LEXICAL)
    around = {hit.modality: [n.place.page for n in (*hit.before, *hit.after)] for hit in found.hits}
    assert around == {Modality.TEXT: [], Modality.IMAGE: [2]}


async def test_words_and_looks_are_one_space(client: AsyncClient) -> None:
    found = await search(client, query="red", mode=SearchMode.SEMANTIC)
    assert {hit.source_path for hit in found.hits[:2]} == {"first.png", "notes.md"}


async def test_a_picture_finds_words_without_being_read(client: AsyncClient) -> None:
    ref = await upload(client, picture("red", "JPEG"), "asked.jpg")
    found = await search(client, image_ref=ref, mode=SearchMode.CROSSMODAL, explain=True)
    assert first(found.hits)[0] == "notes.md"
    assert {hit.modality for hit in found.hits} == {Modality.TEXT}
    assert not found.issues
    assert found.diagnostics is not None
    assert any("image itself" in step for step in found.diagnostics.plan)
    kinds = {job.kind async for job in client.jobs(container_id="seen")}
    assert JobKind.READ_IMAGE not in kinds


async def test_a_picture_alone_finds_pictures_too(client: AsyncClient) -> None:
    ids = await documents(client)
    blue = await search(client, image_ref=str(ids["second.jpg"]))
    assert first(blue.hits) == ("second.jpg", 1)
    green = await search(client, image_ref=f"page://{ids['plates.pdf']}/2", dedup=False)
    assert first(green.hits) == ("plates.pdf", 2)
    both = await search(client, image_ref=str(ids["second.jpg"]), query="barn water")
    assert {hit.source_path for hit in both.hits[:2]} == {"second.jpg", "notes.md"}


async def test_a_modality_the_embedder_does_not_read_is_reported(client: AsyncClient) -> None:
    found = await search(
        client, image_ref=await upload(client, picture("red", "GIF"), "asked.gif"), query="barn"
    )
    assert found.partial
    assert found.issues[0].code in (IssueCode.INVALID, IssueCode.INGEST_FAIL)
    assert first(found.hits)[0] == "notes.md"


async def test_unchanged_pictures_are_not_embedded_again(
    client: AsyncClient, server: EmbeddingServer
) -> None:
    before = server.stats.images
    await ingest(client, "seen", "first.png", picture("red"))
    await client.create(manifest("twin", embedder="vllm/test", modalities=BOTH))
    await ingest(client, "twin", "other-name.png", picture("red"))
    assert server.stats.images == before
    assert first(await pictured(client, "red", "twin")) == ("other-name.png", 1)


async def test_an_embedder_that_refuses_a_picture_fails_its_document_by_name(
    client: AsyncClient, server: EmbeddingServer
) -> None:
    await client.create(manifest("refused", embedder="vllm/test", modalities=BOTH))
    server.misbehave(EmbeddingFault.REFUSED, only_with="black")
    added = await add(client, "refused", "dark.png", picture("black"))
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert "refuses this input" in job.cause.message
    assert (await client.doctor("refused")).clean


async def test_a_container_of_texts_embeds_no_pages(client: AsyncClient) -> None:
    await client.create(manifest("texts", embedder="vllm/test", modalities=[Modality.TEXT]))
    await ingest(client, "texts", "plates.pdf", plates())
    (chunk,) = [chunk async for chunk in client.chunks("texts")]
    assert chunk.modality == Modality.TEXT


async def test_pages_are_embedded_where_the_embedder_reads_them_unless_the_manifest_says_no(
    client: AsyncClient,
) -> None:
    await client.create(manifest("by-default", embedder="vllm/test"))
    await ingest(client, "by-default", "plates.pdf", plates())
    assert first(await pictured(client, "green", "by-default")) == ("plates.pdf", 2)


async def refreshed(client: AsyncClient, container: str, embedder: str, dims: int) -> None:
    to = RefreshTarget(embedder=embedder, dims=dims)
    begun = await client.refresh(container, RefreshRequest(strategy=Strategy.PARALLEL, to=to))
    assert begun.job_id is not None
    (job,) = await client.wait([begun.job_id], timeout_seconds=120)
    assert job.state is JobState.DONE, job.cause
    assert (await client.doctor(container)).clean


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_refresh_and_deletion_know_pictures(
    client: AsyncClient, server: EmbeddingServer
) -> None:
    await stock(client, "moving")
    before = server.stats.images
    await refreshed(client, "moving", f"vllm/wide@{WIDE}", WIDE)
    assert server.stats.images == before + 4
    assert first(await pictured(client, "green", "moving")) == ("plates.pdf", 2)
    await refreshed(client, "moving", "openai/test", DIMS)  # reads texts only
    assert server.stats.images == before + 4
    answer = await search(client, "moving", query="ledger", mode=SearchMode.CROSSMODAL)
    assert first(answer.hits)[0] == "plates.pdf"
    await refreshed(client, "moving", "vllm/test", DIMS)  # all of it is still known
    assert server.stats.images == before + 4
    assert first(await pictured(client, "red", "moving")) == ("first.png", 1)

    await client.delete_document("moving", (await documents(client, "moving"))["plates.pdf"])
    assert "plates.pdf" not in {h.source_path for h in await pictured(client, "green", "moving")}
    await purged(client, "moving")
    report = await client.doctor("moving")
    assert report.clean
    assert report.containers["moving"].counts["points"] == 3
