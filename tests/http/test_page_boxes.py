"""A passage is boxed on the image of its page: PDFs, scans, and pages that have no boxes, over real HTTP."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from uuid import UUID

import httpx
import pymupdf
import pytest
from PIL import Image, ImageDraw, ImageFont

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound
from latent_core.domain.job import JobKind
from latent_core.domain.token import Scope
from latent_core.wire.pages import BoxView
from tests.http.test_http_surface import ingest, manifest, settled
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

BOX = "boxes"
LINES = [
    "Annual report of the lighthouse",
    "The keeper trims the wick at dusk.",
    "The horn sounds every thirty seconds.",
    "The keeper trims the wick at dusk.",
]


def report(pages: int = 2, rotation: int = 0) -> bytes:
    document = pymupdf.open()
    for number in range(1, pages + 1):
        page = document.new_page(width=600, height=800)
        for line, text in enumerate(LINES):
            page.insert_text((60, 100 + 120 * line), f"{text} Page {number}.", fontsize=14)
        page.set_rotation(rotation)
    return bytes(document.tobytes())


def scan() -> bytes:
    """A picture of a text, as a PDF."""
    image = Image.new("L", (1200, 900), 255)
    font = ImageFont.load_default(size=40)
    ImageDraw.Draw(image).text((120, 300), "Winding the clockwork before lighting", 0, font)
    ImageDraw.Draw(image).text((120, 600), "The horn sounds in the fog", 0, font)
    drawn = io.BytesIO()
    image.save(drawn, "PNG")
    document = pymupdf.open()
    document.new_page(width=600, height=450).insert_image((0, 0, 600, 450), stream=drawn.getvalue())
    return bytes(document.tobytes())


@pytest.fixture(scope="module")
def made() -> dict[str, UUID]:
    return {}


async def document_of(client: AsyncClient, made: dict[str, UUID], name: str, data: bytes) -> UUID:
    if BOX not in {one.id for one in await client.containers()}:
        await client.create(manifest(BOX))
    if name not in made:
        await ingest(client, BOX, name, data)
        await settled(client, BOX)
        made[name] = (await anext(client.documents(BOX, uri_prefix=f"file:///{name}"))).doc_id
    return made[name]


async def chunk_with(client: AsyncClient, doc_id: UUID, text: str) -> UUID:
    async for chunk in client.chunks(BOX, doc_id=doc_id):
        if text in chunk.text:
            return chunk.chunk_id
    raise AssertionError(f"no chunk has '{text}'")


def lines(boxes: list[BoxView]) -> list[int]:
    """The lines of the report in which boxes are, on a page that is not turned."""
    return [round((box.bottom * 800 - 100) / 120) for box in boxes]


async def test_the_words_of_a_passage_are_boxed_on_its_page(
    client: AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "report.pdf", report())
    chunk = await chunk_with(client, doc_id, "Page 2")
    found = await client.page_boxes(doc_id, 2, chunk_id=chunk, query="horns wick")
    assert (found.state, found.cause, found.chunk_id) == ("ready", None, chunk)
    assert lines(found.passage) == [0, 1, 2, 3]
    assert lines(found.words) == [1, 2, 3]
    assert all(0 <= b.left < b.right <= 1 and 0 <= b.top < b.bottom <= 1 for b in found.words)
    horn = found.words[1]
    assert 0.13 < horn.left < horn.right < 0.25
    whole = await client.page_boxes(doc_id, 1, query="annual")
    assert (whole.chunk_id, whole.passage, lines(whole.words)) == (None, [], [0])


async def test_boxes_of_a_turned_page_are_those_of_its_image(
    client: AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "turned.pdf", report(1, rotation=90))
    found = await client.page_boxes(doc_id, 1, query="report")
    (box,) = found.words
    assert box.bottom - box.top > box.right - box.left, "the line runs down the page"
    assert box.left > 0.8, "the first line is on the right"


async def test_a_page_is_read_once_and_by_an_internal_job(
    client: AsyncClient, http: httpx.AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "once.pdf", report(1))
    path = f"/v1/documents/{doc_id}/pages/1/boxes"
    answers = await asyncio.gather(*(http.get(path) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    jobs = [j async for j in client.jobs(container_id=BOX) if j.kind is JobKind.PAGE_WORDS]
    assert 1 <= sum(job.doc_id == doc_id for job in jobs) <= 5
    before = len(jobs)
    assert (await http.get(path, params={"wait_ms": 0})).json()["state"] == "ready"
    after = [j async for j in client.jobs(container_id=BOX) if j.kind is JobKind.PAGE_WORDS]
    assert len(after) == before


async def test_the_boxes_of_a_scan_are_kept_with_its_text(
    client: AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "scan.pdf", scan())
    chunk = await chunk_with(client, doc_id, "clockwork")
    found = await client.page_boxes(doc_id, 1, chunk_id=chunk, query="clockwork", wait_seconds=0)
    assert found.state == "ready", found.cause
    (word,) = found.words
    assert 0.25 < word.left < word.right < 0.5
    assert 0.33 < word.top < word.bottom < 0.4
    assert len(found.passage) >= 1
    jobs = [j async for j in client.jobs(container_id=BOX) if j.kind is JobKind.PAGE_WORDS]
    assert doc_id not in {job.doc_id for job in jobs}


async def test_a_page_without_boxes_says_why(
    client: AsyncClient, http: httpx.AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "lamp.md", b"# Lamp\n\nThe lamp is lit at dusk.\n")
    found = await client.page_boxes(doc_id, 1, query="lamp")
    assert (found.state, found.words) == ("none", [])
    assert found.cause is not None
    assert "PDF" in found.cause
    for path in (f"{doc_id}/pages/9", f"{UUID(int=4)}/pages/1", f"{doc_id}/pages/{2**40}"):
        answer = await http.get(f"/v1/documents/{path}/boxes")
        assert answer.status_code == 404
    answer = await http.get(
        f"/v1/documents/{doc_id}/pages/1/boxes", params={"chunk": str(UUID(int=3))}
    )
    assert answer.status_code == 404


async def test_who_may_not_read_the_document_gets_no_boxes(
    installation: Installation, client: AsyncClient, made: dict[str, UUID]
) -> None:
    doc_id = await document_of(client, made, "report.pdf", report())
    token = await client.create_token("agent:boxes", name="boxes", scopes=[Scope.READ])
    async with installation.client(token.secret) as stranger:
        with pytest.raises(NotFound, match="may not read"):
            await stranger.page_boxes(doc_id, 1)


async def test_boxes_of_scans_are_in_an_export(
    client: AsyncClient, made: dict[str, UUID], tmp_path: Path
) -> None:
    await document_of(client, made, "scan.pdf", scan())
    file = tmp_path / "boxes.latent.tar.zst"
    queued = (await client.export(BOX)).job_id
    assert queued is not None
    (job,) = await client.wait([queued], timeout_seconds=60)
    assert job.result is not None, job
    archive = await client.exported(job.result["archive_id"])
    file.write_bytes((await client.fetch(archive.url)).content)
    added = await client.import_archive(file, container_id="boxes-again")
    await client.wait([added.job_id], timeout_seconds=60)
    copy = await anext(client.documents("boxes-again", uri_prefix="file:///scan.pdf"))
    found = await client.page_boxes(copy.doc_id, 1, query="clockwork", wait_seconds=0)
    assert (found.state, len(found.words)) == ("ready", 1)
