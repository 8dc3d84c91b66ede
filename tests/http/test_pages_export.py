"""Page images of every kind of source, exported; and what is said of those that are not there."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import psycopg
import pymupdf
import pytest
from PIL import Image

from latent_client import AsyncClient, export_pages
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Pdf
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import add, ingest, manifest, settled
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

CODE = "\n".join(f"def lamp_{n}():\n    return {n}  # burns" for n in range(200))


async def test_every_source_is_exported_once_and_the_same_each_time(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    book = pymupdf.open()
    for number in range(1, 4):
        book.new_page().insert_text((72, 72), f"Page {number} of the log.")
    await client.create(manifest("shelf", pdf=Pdf(render_dpi=50)))
    await ingest(client, "shelf", "book.pdf", book.tobytes())
    await ingest(
        client,
        "shelf",
        "guide.md",
        b"# Lamp\n\nTrim the wick.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    )
    await ingest(client, "shelf", "lamp.txt", CODE.encode())
    await settled(client, "shelf")

    report = await export_pages(client, "shelf", tmp_path / "out")
    assert (report.documents, report.missing) == (3, [])
    assert report.written == report.pages > 6
    listings = {f: f.read_bytes() for f in (tmp_path / "out").glob("*/pages.jsonl")}
    assert len(listings) == 3
    for listing, content in listings.items():
        lines = [json.loads(line) for line in content.splitlines()]
        assert [line["page"] for line in lines] == list(range(1, len(lines) + 1))
        for line in lines:
            image = (listing.parent / line["uri"]).read_bytes()
            assert line["doc_id"] == listing.parent.name
            assert line["sha256"] == hashlib.sha256(image).hexdigest()
            assert line["bytes"] == len(image)
            assert (line["width"], line["height"]) == Image.open(io.BytesIO(image)).size
            is_pdf = line["source_file"] == "file:///book.pdf"
            assert line["source_pdf"] == (line["source_file"] if is_pdf else None)

    code, out, err = await installation.cli(
        "pages", "export", "-c", "shelf", "--out", str(tmp_path / "out"), "--json"
    )
    assert code == 0, err
    again = json.loads(out)
    assert (again["written"], again["kept"]) == (0, report.pages)
    assert {f: f.read_bytes() for f in listings} == listings
    code, out, _ = await installation.cli(
        "pages", "export", "-c", "shelf", "--out", str(tmp_path / "one"), "-d", "book.pdf"
    )
    assert (code, "3 pages of 1 document " in out) == (0, True)


async def test_a_page_is_exported_as_a_pdf_with_both_hashes_and_listings_have_absolute_addresses(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    doc_id = document_id("shelf", "file:///book.pdf")
    code, out, err = await installation.cli(
        *("pages", "export", str(doc_id), "--page", "2", "--pdf", "--json", "--out", str(tmp_path))
    )
    assert code == 0, err
    written = json.loads(out)
    file = tmp_path / str(doc_id) / "pages" / "0002.pdf"
    assert written["file"] == str(file)
    assert written["page_pdf_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert written["pdf_sha256"] == (await client.document("shelf", doc_id)).sha256
    assert pymupdf.open(file).page_count == 1
    assert "Page 2 of the log." in pymupdf.open(file)[0].get_text()
    code, _, err = await installation.cli("pages", "export", str(doc_id), "--page", "2")
    assert (code, "--page and --pdf" in err) == (2, True)
    code, _, err = await installation.cli(
        *(
            "pages",
            "export",
            str(doc_id),
            "--page",
            "2",
            "--pdf",
            "--base-url",
            "https://example.org/",
        )
    )
    assert (code, "--base-url belongs to pages.jsonl" in err) == (2, True), err
    code, _, err = await installation.cli("pages", "export", str(doc_id), "--page", "9", "--pdf")
    assert (code, "has no page 9" in err) == (1, True), err
    code, _, err = await installation.cli(
        *("pages", "export", "book.pdf", "-c", "shelf", "--out", str(tmp_path / "web")),
        *("--base-url", "https://example.org/pages/"),
    )
    assert code == 0, err
    listing = (tmp_path / "web" / str(doc_id) / "pages.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in listing]
    assert lines[0]["uri"] == f"https://example.org/pages/{doc_id}/pages/0001.webp"
    assert {line["source_pdf"] for line in lines} == {"file:///book.pdf"}


async def test_the_commands_show_which_pdfs_are_processed_and_process_the_others(
    installation: Installation, client: AsyncClient
) -> None:
    torn = await add(client, "shelf", "torn.pdf", b"%PDF-1.7 torn")
    await client.wait([torn.job_id], timeout_seconds=60)
    code, out, err = await installation.cli("pages", "status", "-c", "shelf", "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert shown["totals"]["pages_processed"] == 3
    assert {d["source_uri"]: d["status"] for d in shown["documents"]} == {
        "file:///book.pdf": "drawn",
        "file:///torn.pdf": "failed",
    }
    _, out, _ = await installation.cli("pages", "status", "-c", "shelf", "--status", "failed")
    assert "damaged" in out
    assert "book.pdf" not in out
    assert "2 PDFs, 1 failed; 3 of 3 pages processed" in out
    code, out, _ = await installation.cli("pages", "process", "book.pdf", "-c", "shelf")
    assert (code, "nothing to do" in out) == (0, True)
    code, out, _ = await installation.cli("pages", "process", "--all", "-c", "shelf", "--wait")
    assert (code, f"(job {torn.job_id})" in out) == (4, True), "it fails again"
    code, _, err = await installation.cli("pages", "process", "guide.md", "-c", "shelf")
    assert (code, "is no PDF" in err) == (4, True)
    code, _, err = await installation.cli("pages", "process", "-c", "shelf")
    assert (code, "--all" in err) == (2, True)


async def test_every_chunk_knows_the_pages_its_lines_fall_on(client: AsyncClient) -> None:
    chunks = [c async for c in client.chunks("shelf", source_uri="file:///lamp.txt")]
    shown: dict[int, str] = {}
    for chunk in chunks:
        assert chunk.place.page is not None
        assert chunk.place.page_end is not None
        for number in range(chunk.place.page, chunk.place.page_end + 1):
            if number not in shown:
                shown[number] = (await client.page(chunk.doc_id, number)).text
        on_pages = "\n".join(shown[n] for n in range(chunk.place.page, chunk.place.page_end + 1))
        for line in filter(None, map(str.strip, chunk.text.splitlines())):
            assert line in on_pages


async def test_hits_and_pages_tell_why_an_image_is_not_there_and_that_it_comes(
    client: AsyncClient, installation: Installation
) -> None:
    """A render job that waits is still to come; one that failed tells its cause, until it is tried again."""
    await client.create(manifest("broken"))
    added = await add(client, "broken", "lamp.md", b"# Lamp\n\nThe lamp is lit.\n")
    await client.wait([added.job_id], timeout_seconds=60)
    await settled(client, "broken")
    request = SearchRequest(containers=["broken"], query="lamp", top_k=1)
    assert (await client.search(request)).hits[0].page_image == "ready"
    (render,) = [j async for j in client.jobs(container_id="broken") if j.kind is JobKind.RENDER]
    dsn = installation.dsn
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("UPDATE pages SET image_sha256 = NULL WHERE doc_id = %s", [added.doc_id])
        failed = """UPDATE jobs SET state = 'failed', cause = '{"code": "INGEST_FAIL", "message": "no ink"}' WHERE id = %s"""
        await conn.execute(failed, [render.job_id])
    (hit,) = (await client.search(request)).hits
    assert hit.page_image == "failed"
    assert hit.page_image_cause is not None
    assert hit.page_image_cause.startswith(f"no ink (job {render.job_id};")
    page = await client.page(added.doc_id, 1)
    assert (page.page_image, page.page_image_cause) == ("failed", hit.page_image_cause)
    (listed,) = [one async for one in client.pages(added.doc_id)]
    assert (listed.page_images, listed.pages[0].page_image) == ("failed", "failed")
    code, _, err = await installation.cli(
        "pages", "export", "-c", "broken", "--out", str(installation.folder / "broken")
    )
    assert (code, "no ink" in err) == (4, True)

    await client.requeue(render.job_id)
    (job,) = await client.wait([render.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE
    (hit,) = (await client.search(request)).hits
    assert (hit.page_image, hit.page_image_cause) == ("ready", None)
