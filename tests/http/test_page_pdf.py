"""Single pages of a PDF as files of their own, over real HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import httpx
import pymupdf
import pytest

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.search import SearchRequest
from latent_gateway.api.page_pdfs import MAX_WAIT_MS
from tests.conftest import DIMS
from tests.support.harness.installation import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True


def book(pages: int, word: str = "gull") -> bytes:
    document = pymupdf.open()
    for number in range(1, pages + 1):
        document.new_page().insert_text((72, 300), f"Sheet {number} tells of the {word}.")
    return bytes(document.tobytes())


async def ingested(client: AsyncClient, container: str, name: str, data: bytes) -> UUID:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        upload = await client.upload(container, path)
    added = await client.add(container, file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    return added.doc_id


async def created(client: AsyncClient, container: str) -> None:
    await client.create(Manifest(id=container, name=container, embedder="openai/test", dims=DIMS))


async def request_page_pdf(
    http: httpx.AsyncClient, doc_id: UUID, page: int, **query: Any
) -> tuple[int, dict[str, Any]]:
    query = {"wait_ms": MAX_WAIT_MS} | query  # a busy machine needs longer than the default
    answer = await http.get(f"/v1/documents/{doc_id}/pages/{page}/pdf", params=query)
    return answer.status_code, answer.json()


async def test_a_page_is_made_on_request_and_opens_without_a_token(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await created(client, "sheets")
    doc_id = await ingested(client, "sheets", "book.pdf", book(5))
    status, body = await request_page_pdf(http, doc_id, 4)
    assert (status, body["page"], body["page_pdf"], body["job_id"]) == (200, 4, "ready", None)
    async with httpx.AsyncClient(trust_env=False) as anybody:
        file = await anybody.get(body["pdf_uri"])
    assert file.status_code == 200
    assert file.headers["content-type"] == "application/pdf"
    assert file.headers["content-disposition"] == "inline"
    assert "book" not in str(file.url)
    single = pymupdf.open(stream=file.content, filetype="pdf")
    assert [page.get_text().strip() for page in single] == ["Sheet 4 tells of the gull."]


async def test_a_page_that_is_there_is_answered_without_a_job(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await created(client, "twice")
    doc_id = await ingested(client, "twice", "book.pdf", book(2))
    answers = await asyncio.gather(*(request_page_pdf(http, doc_id, 1) for _ in range(6)))
    assert {status for status, _ in answers} == {200}
    before = len([job async for job in client.jobs(container_id="twice")])
    status, _ = await request_page_pdf(http, doc_id, 1, wait_ms=0)
    assert status == 200
    assert len([job async for job in client.jobs(container_id="twice")]) == before
    report = await client.doctor("twice")
    assert report.clean, report


async def test_who_does_not_wait_gets_the_job(client: AsyncClient, http: httpx.AsyncClient) -> None:
    await created(client, "hasty")
    doc_id = await ingested(client, "hasty", "book.pdf", book(2))
    status, body = await request_page_pdf(http, doc_id, 2, wait_ms=0)
    assert (status, body["page_pdf"], body["pdf_uri"]) == (202, "pending", None)
    (job,) = await client.wait([body["job_id"]], timeout_seconds=60)
    assert (job.kind.value, job.state) == ("page_pdf", JobState.DONE)
    assert (await request_page_pdf(http, doc_id, 2, wait_ms=0))[0] == 200


async def test_a_changed_document_has_pages_of_its_new_state(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await created(client, "newer")
    doc_id = await ingested(client, "newer", "book.pdf", book(3))
    _, old = await request_page_pdf(http, doc_id, 1)
    assert await ingested(client, "newer", "book.pdf", book(2, "whale")) == doc_id
    status, new = await request_page_pdf(http, doc_id, 1)
    assert status == 200
    assert new["pdf_uri"].partition("?")[0] != old["pdf_uri"].partition("?")[0]
    file = await http.get(new["pdf_uri"])
    assert "whale" in pymupdf.open(stream=file.content, filetype="pdf")[0].get_text()
    assert (await request_page_pdf(http, doc_id, 3))[0] == 404


async def test_what_is_no_page_of_a_pdf_is_not_found_and_says_why(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await created(client, "none")
    pdf = await ingested(client, "none", "book.pdf", book(1))
    for page in (0, 2, 2**40):
        status, body = await request_page_pdf(http, pdf, page)
        assert (status, body["issues"][0]["code"]) == (404, "NOT_FOUND")
        assert f"no page {page}" in body["issues"][0]["message"]
    unknown = uuid4()
    status, body = await request_page_pdf(http, unknown, 1)
    assert (status, f"'{unknown}' does not exist" in body["issues"][0]["message"]) == (404, True)
    text = await ingested(client, "none", "notes.md", b"# Lamp\n\nTrim the wick.\n")

    async def drawn() -> bool:
        found = await client.search(SearchRequest(containers=["none"], query="wick", top_k=1))
        return found.hits[0].page_image == "ready"

    await eventually(drawn, what="the page image")
    status, body = await request_page_pdf(http, text, 1)
    assert status == 404
    assert "not from a PDF" in body["issues"][0]["message"]
