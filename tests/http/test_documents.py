"""Documents whose ingest failed, and their originals, on every surface of one running installation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import orjson
import pymupdf
import pytest

from latent_client import AsyncClient
from latent_core.domain.chunk import SourceType
from latent_core.domain.document_order import DocumentOrder
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind
from latent_core.wire.search import Hit, SearchRequest
from tests.http.test_http_surface import add, ingest, manifest, settled
from tests.support.harness.installation import Installation
from tests.support.office_files import docx, p, pptx, rows, shape, styled, tree, xlsx

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

BOX = "box"
TORN, LOCKED, LAMP = "torn.pdf", "locked.pdf", "lamp.md"


def locked() -> bytes:
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "Nobody reads this page.")
    encrypted: bytes = document.tobytes(
        encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="o", user_pw="u"
    )
    return encrypted


async def agent(http: httpx.AsyncClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a tool answers over MCP."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    answer = await http.post(
        "/mcp", json=body, headers={"Accept": "application/json, text/event-stream"}
    )
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    message = orjson.loads(lines[-1].removeprefix("data: ") if lines else answer.content)
    content: dict[str, Any] = message["result"]["structuredContent"]
    return content


@asynccontextmanager
async def signed_in(installation: Installation) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without scripts."""
    async with httpx.AsyncClient(
        base_url=installation.url, trust_env=False, timeout=30, headers={"Origin": installation.url}
    ) as browser:
        await browser.post("/login", data={"token": installation.token})
        yield browser


async def filled(client: AsyncClient) -> dict[str, UUID]:
    """The ids of a container's documents: one is searchable, two failed, one is live and its newest content failed."""
    if BOX not in {one.id for one in await client.containers()}:
        await client.create(manifest(BOX))
        await ingest(client, BOX, LAMP, b"# Lamp\n\nThe lamp is lit at dusk.\n")
        await ingest(client, BOX, "log.md", b"# Log\n\nThe log of the keeper.\n")
        failing = [
            await add(client, BOX, TORN, b"%PDF-1.7 torn"),
            await add(client, BOX, LOCKED, locked()),
            await add(client, BOX, "log.md", b" \n \n"),
        ]
        await client.wait([one.job_id for one in failing], timeout_seconds=60)
        await settled(client, BOX)
    return {one.source_uri[8:]: one.doc_id async for one in client.documents(BOX)}


async def test_a_document_that_failed_says_so_with_cause_and_remedy(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    ids = await filled(client)
    listed = {one.source_uri[8:]: one async for one in client.documents(BOX)}
    assert {name: one.state.value for name, one in listed.items()} == {
        TORN: "failed",
        LOCKED: "failed",
        LAMP: "live",
        "log.md": "live",
    }
    assert listed[LAMP].failure is None
    for name, words in ((TORN, "damaged"), (LOCKED, "encrypted"), ("log.md", "is empty")):
        failure = listed[name].failure
        assert failure is not None
        assert words in failure.cause
        assert f"latent jobs requeue {failure.job_id}" in failure.remedy
        assert (await client.document(BOX, ids[name])).failure == failure
    answer = await http.get(f"/v1/containers/{BOX}/documents", params={"state": "failed"})
    assert {d["doc_id"] for d in answer.json()["documents"]} == {str(ids[TORN]), str(ids[LOCKED])}
    answer = await http.get(f"/v1/containers/{BOX}/documents", params={"state": "pending"})
    assert answer.json()["documents"] == []
    sizes = (await client.describe(BOX)).sizes
    assert (sizes.documents, sizes.failed_documents, sizes.pending_documents) == (2, 2, 0)


async def test_failed_documents_are_listed_first_and_a_cursor_belongs_to_its_order(
    installation: Installation, client: AsyncClient, http: httpx.AsyncClient
) -> None:
    ids = await filled(client)
    listed = [one async for one in client.documents(BOX, order=DocumentOrder.FAILED)]
    assert {one.doc_id for one in listed[:3]} == set(ids.values()) - {ids[LAMP]}
    by_path = [one.source_uri async for one in client.documents(BOX, order=DocumentOrder.PATH)]
    assert by_path == sorted(by_path)
    path = f"/v1/containers/{BOX}/documents"
    first = (await http.get(path, params={"order": "largest", "limit": 1})).json()
    rest = await http.get(path, params={"order": "largest", "cursor": first["next_cursor"]})
    assert len(rest.json()["documents"]) == 3
    refused = await http.get(path, params={"order": "smallest", "cursor": first["next_cursor"]})
    assert refused.status_code == 400
    assert "another order" in refused.json()["issues"][0]["message"]
    code, out, _ = await installation.cli(
        *("documents", "list", "-c", BOX, "--sort", "failed", "--type", "markdown")
    )
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["log.md", LAMP]


async def test_the_command_shows_why_documents_failed(
    installation: Installation, client: AsyncClient
) -> None:
    await filled(client)
    code, out, err = await installation.cli("documents", "list", "-c", BOX)
    assert code == 0
    (row,) = (line for line in out.splitlines() if line.startswith(LOCKED))
    assert " failed " in row
    assert "encrypted" in row
    assert "3 documents failed" in err
    _, out, _ = await installation.cli("container", "describe", BOX)
    assert "2 documents, 2 failed" in out


async def test_agents_read_why_a_document_failed(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    ids = await filled(client)
    listed = await agent(http, "documents_list", {"container_id": BOX, "state": "failed"})
    words = {one["doc_id"]: one["untrusted_content"]["failure"] for one in listed["documents"]}
    assert "encrypted" in words[str(ids[LOCKED])]
    assert len(words) == 2
    read = await agent(http, "documents_get", {"doc_id": str(ids[LOCKED])})
    assert read["state"] == "failed"
    assert "encrypted" in read["untrusted_content"]["failure"]
    assert "failed" in read["advice"]


async def test_the_console_shows_why_a_document_failed(
    installation: Installation, client: AsyncClient
) -> None:
    ids = await filled(client)
    async with signed_in(installation) as browser:
        page = (await browser.get(f"/console/containers/{BOX}")).text
        assert len(re.findall('<span class="state failed">failed</span>', page)) == 2
        assert "is encrypted" in page
        page = (await browser.get(f"/console/documents/{ids[LOCKED]}")).text
        assert "This document was not ingested." in page
        assert "latent jobs requeue" in page
        page = (await browser.get(f"/console/documents/{ids['log.md']}")).text
        assert "The former one stays searchable." in page


async def test_office_files_mail_and_subtitles_are_found_with_their_places_and_page_images(
    client: AsyncClient,
) -> None:
    await client.create(manifest("office"))
    files = {
        "plan.docx": docx(styled("Harbour", "H1") + p("The crane lifts containers at dawn.")),
        "rain.xlsx": xlsx(rows(("Place", "Rain"), ("Bergen", "drizzle")), names=("Weather",)),
        "talk.pptx": pptx(tree(shape("Sails", "title")), notes="Mention the spinnaker."),
        "said.vtt": b"WEBVTT\n\n00:07.250 --> 00:09.500\nThe walrus sings.\n",
        "all.mbox": (
            b"From a@x.org Mon May  6 10:00:00 2024\nSubject: Gulls\nFrom: a@x.org\n\nA heron waits.\n\n"
            b"From here nothing begins.\n\nFrom a@x.org Mon May  6 11:00:00 2024\nSubject: Terns\n\nA puffin dives.\n"
        ),
        "news.eml": b"Subject: News\nFrom: a@x.org\n\nThe octopus escaped.\n",
    }
    for name, data in files.items():
        await ingest(client, "office", name, data)
    await settled(client, "office")

    async def first(query: str) -> Hit:
        answer = await client.search(SearchRequest(containers=["office"], query=query, top_k=3))
        return answer.hits[0]

    found = [
        (hit.source_type, hit.place.heading_path, hit.timestamps)
        for hit in [
            await first(q)
            for q in ("crane", "drizzle", "spinnaker", "walrus", "octopus", "heron", "puffin")
        ]
    ]
    assert found == [
        ("document", "Harbour", []),
        ("sheet", "Sheet 1: Weather", []),
        ("slides", "Slide 1: Sails > Speaker notes", []),
        ("subtitles", "", [7.25, 9.5]),
        ("mail", "News", []),
        ("mail", "Gulls", []),
        ("mail", "Terns", []),
    ]
    hit = await first("crane")
    assert hit.page_image == "ready"
    assert "timestamps" not in (await first("walrus")).meta
    only = SearchRequest(containers=["office"], query="the", top_k=3, source_type=[SourceType.MAIL])
    assert {hit.source_type for hit in (await client.search(only)).hits} <= {"mail"}
    added = await add(client, "office", "all.zip", b"PK\x03\x04 and more")
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.cause is not None
    assert "'all.zip' is a ZIP archive: add the files in it" in job.cause.message


async def test_jobs_that_draw_pages_say_how_many_of_how_many(client: AsyncClient) -> None:
    await filled(client)
    jobs = [job async for job in client.jobs(container_id=BOX) if job.kind is JobKind.RENDER]
    assert jobs
    assert all(job.progress_done == job.progress_total for job in jobs), jobs


async def test_an_original_is_downloaded_by_a_link_without_a_token(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await filled(client)
    content = "# Größe\n\n<script>alert(1)</script>\n".encode()
    added = await add(client, BOX, "größe.html", content)
    await client.wait([added.job_id], timeout_seconds=60)
    link = await client.original(added.doc_id)
    assert (link.filename, link.bytes, link.seconds) == ("größe.html", len(content), 300)
    assert link.sha256 == hashlib.sha256(content).hexdigest()
    async with httpx.AsyncClient(trust_env=False) as stranger:
        answer = await stranger.get(link.url)
        assert answer.content == content
        assert answer.headers["content-type"].partition(";")[0] == "text/html" == link.mime
        assert answer.headers["content-disposition"] == (
            "attachment; filename=\"gr__e.html\"; filename*=UTF-8''gr%C3%B6%C3%9Fe.html"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        changed = link.url.replace("disposition=attachment", "disposition=inline")
        assert (await stranger.get(changed)).status_code == 403


async def test_a_pdf_is_downloaded_as_an_attachment_and_by_its_command(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await filled(client)
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "One lamp.")
    content = bytes(document.tobytes())
    await ingest(client, BOX, "lamp.pdf", content)
    doc_id = document_id(BOX, "file:///lamp.pdf")
    target = tmp_path / "copy.pdf"
    code, out, err = await installation.cli(
        "documents", "download", "lamp.pdf", "-c", BOX, "--to", str(target)
    )
    assert code == 0, err
    assert target.read_bytes() == content
    assert f"sha256 {hashlib.sha256(content).hexdigest()}" in out
    code, _, err = await installation.cli("documents", "download", str(doc_id))
    assert code == 0, err
    assert (installation.folder / "lamp.pdf").read_bytes() == content
    code, _, err = await installation.cli("documents", "download", str(doc_id))
    assert (code, "exists: name the file" in err) == (2, True)
    code, _, err = await installation.cli("documents", "download", "lamp.pdf")
    assert "name its container with -c" in err


async def test_notes_have_an_original_and_records_name_the_file_they_are_from(
    client: AsyncClient, installation: Installation
) -> None:
    await filled(client)
    note = await client.add(BOX, text="The lamp is green.", title="Lamp", wait_seconds=5)
    await client.wait([note.job_id], timeout_seconds=60)
    link = await client.original(note.doc_id)
    assert b"The lamp is green." in (await client.fetch(link.url)).content
    assert link.mime == "text/markdown"
    await ingest(client, BOX, "corpus.jsonl", b'{"_id": "a", "title": "A", "text": "one lamp"}\n')
    corpus = document_id(BOX, "file:///corpus.jsonl")
    assert (await client.original(corpus)).filename == "corpus.jsonl"
    with pytest.raises(NotFound, match=f"record of a JSONL file .* document '{corpus}'"):
        await client.original(document_id(BOX, "file:///corpus.jsonl#a"))
    with pytest.raises(NotFound, match=r"because it failed: .*encrypted"):
        await client.original(document_id(BOX, f"file:///{LOCKED}"))


async def test_agents_and_the_console_get_links_to_the_original(
    client: AsyncClient, http: httpx.AsyncClient, installation: Installation
) -> None:
    ids = await filled(client)
    read = await agent(http, "documents_get", {"doc_id": str(ids[LAMP])})
    async with httpx.AsyncClient(trust_env=False) as stranger:
        assert (await stranger.get(read["original"])).content.startswith(b"# Lamp")
    small = await agent(http, "documents_get", {"doc_id": str(ids[LAMP]), "max_chars": 1000})
    assert "original" not in small
    path = f"/console/documents/{ids[LAMP]}/original"
    async with signed_in(installation) as browser:
        assert f'href="{path}"' in (await browser.get(f"/console/documents/{ids[LAMP]}")).text
        answer = await browser.get(path, follow_redirects=True)
        assert answer.content.startswith(b"# Lamp")
        assert answer.headers["content-disposition"] == 'attachment; filename="lamp.md"'
