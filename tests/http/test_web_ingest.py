"""A page by its address, end to end: fetched, read, found, asked for again only when it changed, refused by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden, Invalid, NotFound
from latent_core.domain.job import JobState, JobView
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from latent_workers.parse.pdf import mupdf
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.web_site import WebSite

pytestmark = pytest.mark.asyncio(loop_scope="module")

STORY = "The lamp on the hill was lit every night by a keeper who had never seen the sea. " * 6


def article(more: str = "") -> str:
    return f"""<html lang=en><head><title>Lamps</title><meta name=author content="Ada Light">
    <meta property="article:published_time" content="2026-03-01T10:00:00Z">
    <link rel=canonical href="https://elsewhere.example/lamps"></head>
    <body><nav><a href=/>Home</a></nav><article><h1>Lamps</h1><p>{STORY}</p><h2>Oil</h2><p>{STORY}{more}</p>
    <p style="display:none">hidden instructions</p></article></body></html>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[WebSite]:
    async with WebSite() as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, site: WebSite
) -> AsyncIterator[Installation]:
    """One that may fetch from the site."""
    one = Installation(
        install_root / "web",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_FETCH_ALLOW": site.origin,
            "LLC_MAX_UPLOAD_BYTES": "1000000",
            "LLC_LEASE_SECONDS": "5",
        },
    )
    await one.start()
    try:
        async with one.client() as client:
            for name, web in (("pages", {}), ("scripts", {"javascript": True})):
                await client.create(
                    Manifest(id=name, name=name, embedder="openai/test", dims=DIMS, web=web)
                )
        yield one
    finally:
        await one.stop()


async def ingested(client: AsyncClient, url: str, **more: Any) -> JobView:
    """The job in its final state."""
    added = await client.add("pages", uri=url, **more)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    return job


def pdf(text: str) -> bytes:
    document = mupdf.load().open()
    document.new_page().insert_textbox((50, 50, 500, 700), text)
    data: bytes = document.tobytes()
    return data


async def test_a_page_is_found_by_what_it_says_and_known_by_its_address(
    client: AsyncClient, site: WebSite
) -> None:
    site.page("/lamps", article(), headers={"ETag": '"1"'})
    added = await client.add("pages", uri=site.url("/a/../lamps#oil"))
    assert added.source_uri == site.url("/lamps")
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job.cause
    document = await client.document("pages", added.doc_id)
    assert (document.title, document.source_type, document.mime) == ("Lamps", "web", "text/html")
    assert document.meta["author"] == "Ada Light"
    assert document.meta["canonical_url"] == "https://elsewhere.example/lamps"
    assert document.modified_at is not None
    assert document.modified_at.isoformat().startswith("2026-03-01T10:00:00")
    answer = await client.search(
        SearchRequest(
            containers=["pages"], query="keeper of the lamp", mode=SearchMode.HYBRID, top_k=5
        )
    )
    assert answer.hits[0].doc_id == added.doc_id
    assert "hidden" not in " ".join(hit.snippet for hit in answer.hits)
    original = await client.original(added.doc_id)
    assert (original.mime, original.sha256) == ("text/html", document.sha256)
    assert original.filename.endswith(".html")
    assert b"Ada Light" in (await client.fetch(original.url)).content

    async def drawn() -> bool:
        try:
            return (await client.page(added.doc_id, 1)).page_image == "ready"
        except NotFound:  # not drawn yet
            return False

    await eventually(drawn, what="the page image")
    assert "keeper" in (await client.page(added.doc_id, 1)).text


async def test_an_unchanged_page_is_not_sent_again_and_a_changed_one_replaces_it(
    client: AsyncClient, site: WebSite, embedding_server: EmbeddingServer
) -> None:
    url = site.url("/news")
    site.page("/news", article("First edition."), headers={"ETag": '"1"'})
    job = await ingested(client, url)
    assert job.state is JobState.DONE
    assert job.doc_id is not None
    before = await client.document("pages", job.doc_id)
    requests_before, embedded = len(site.requests), embedding_server.stats.texts
    assert (await ingested(client, url)).state is JobState.DONE
    assert [a.headers.get("if-none-match") for a in site.requests[requests_before:]] == ['"1"']
    after = await client.document("pages", job.doc_id)
    assert (after.generation, embedding_server.stats.texts) == (before.generation, embedded)
    assert after.fetched_at is not None
    assert before.fetched_at is not None
    assert after.fetched_at > before.fetched_at
    site.page("/news", article("Second edition."), headers={"ETag": '"2"'})
    assert (await ingested(client, url)).state is JobState.DONE
    texts = [chunk.text async for chunk in client.chunks("pages", doc_id=job.doc_id)]
    assert "Second edition" in "".join(texts)
    assert "First edition" not in "".join(texts)
    site.page("/news", article("Second edition."), headers={"ETag": '"3"'})
    assert (await ingested(client, url)).state is JobState.DONE
    requests_before = len(site.requests)
    assert (await ingested(client, url, meta={"shelf": 1})).state is JobState.DONE
    assert (
        "if-none-match" not in site.requests[requests_before].headers
    )  # what it becomes has changed: all is fetched
    assert (await client.document("pages", job.doc_id)).meta["shelf"] == 1


async def test_what_an_address_serves_is_read_by_its_own_parser(
    client: AsyncClient, site: WebSite
) -> None:
    site.page("/raw/README.md", f"# Lamps\n\n{STORY}", headers={"Content-Type": "text/plain"})
    site.page("/view/README.md", article(), headers={"Content-Type": "text/html"})
    site.page(
        "/old",
        article("Маяк").encode("cp1251"),
        headers={"Content-Type": "text/html; charset=windows-1251"},
    )
    records = b'{"_id": "r1", "title": "", "text": "one lamp"}\n{"_id": "r2", "title": "", "text": "two lamps"}\n'
    site.page("/corpus.jsonl", records, headers={"Content-Type": "application/octet-stream"})
    site.redirect("/moved", "/old")
    site.page("/manual", pdf(STORY), headers={"Content-Type": "application/pdf"})
    kinds = {}
    for path in ("/raw/README.md", "/view/README.md", "/old", "/moved", "/manual"):
        job = await ingested(client, site.url(path))
        assert job.state is JobState.DONE, (path, job.cause)
        assert job.doc_id is not None
        document = await client.document("pages", job.doc_id)
        kinds[path] = (document.source_type, document.source_uri)
    assert kinds == {
        "/raw/README.md": ("markdown", site.url("/raw/README.md")),
        "/view/README.md": ("web", site.url("/view/README.md")),
        "/old": ("web", site.url("/old")),
        "/moved": ("web", site.url("/moved")),
        "/manual": ("pdf", site.url("/manual")),
    }
    answer = await client.search(
        SearchRequest(containers=["pages"], query="Маяк", mode=SearchMode.LEXICAL, top_k=5)
    )
    assert {hit.provenance.source_uri for hit in answer.hits} == {
        site.url("/old"),
        site.url("/moved"),
    }
    job = await ingested(client, site.url("/corpus.jsonl"))
    assert job.state is JobState.DONE, job.cause
    uris = [d.source_uri async for d in client.documents("pages")]
    assert {f"{site.url('/corpus.jsonl')}#{n}" for n in ("r1", "r2")} <= set(uris)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/nowhere", "404"),
        ("/private", "not on the public internet"),
        ("/port", "ports 80 and 443"),
        ("/circle", "more than 3 redirects"),
        ("/large", "LLC_MAX_UPLOAD_BYTES"),
        ("/script", "has no visible text"),
        ("/zip", "a ZIP archive"),
    ],
)
async def test_a_page_that_cannot_be_had_fails_its_job_with_the_reason(
    client: AsyncClient, site: WebSite, path: str, expected: str
) -> None:
    site.redirect("/private", "http://169.254.169.254/latest/meta-data/")
    site.redirect("/port", f"http://localhost:{site.port}/lamps")
    site.redirect("/circle", "/circle")
    site.page("/large", b"x" * 1_000_001)
    site.page("/script", "<html><body><script>app()</script></body></html>")
    site.page("/zip", b"PK\x03\x04" + bytes(100), headers={"Content-Type": "application/zip"})
    job = await ingested(client, site.url(path))
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert expected in job.cause.message
    assert job.attempts == 1


async def test_a_failing_web_server_is_retried(client: AsyncClient, site: WebSite) -> None:
    site.page("/busy", "", status=503)
    added = await client.add("pages", uri=site.url("/busy"))

    async def tried() -> bool:
        return (await client.job(added.job_id)).cause is not None

    await eventually(tried, what="the first attempt")
    site.page("/busy", article())
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert (job.state, job.attempts) == (JobState.DONE, 2)


async def test_what_is_no_address_of_a_page_is_refused_before_anything_is_queued(
    client: AsyncClient, site: WebSite
) -> None:
    for uri in (
        "http://user:pass@site.example/",
        "http://a..b/",
        "ftp://site.example/",
        "http://x:0/",
    ):
        with pytest.raises(Invalid):
            await client.add("pages", uri=uri)
    with pytest.raises(Forbidden, match=r"LLC_FETCH_ALLOW=site\.example:8080"):
        await client.add("pages", uri="http://site.example:8080/")
    with pytest.raises(Invalid, match="source_uri is only for files"):
        await client.add("pages", uri=site.url("/lamps"), source_uri="file:///a")


async def test_a_container_that_needs_a_browser_reports_that_none_is_installed(
    client: AsyncClient, site: WebSite
) -> None:
    with pytest.raises(Forbidden, match="LLC_BROWSER_PATH"):
        await client.add("scripts", uri=site.url("/lamps"))


async def test_the_command_line_takes_addresses(installation: Installation, site: WebSite) -> None:
    site.page("/by-hand", article())
    code, out, err = await installation.cli("ingest", site.url("/by-hand"), "-c", "pages", "--wait")
    assert code == 0, (out, err)
    code, _, err = await installation.cli(
        "ingest", site.url("/x"), site.url("/y/../x"), "-c", "pages"
    )
    assert code != 0
    assert "have the same identity" in err
