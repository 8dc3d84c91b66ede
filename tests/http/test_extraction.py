"""Page extraction of a running installation: hits, status, live events, permissions, and the commands."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import UUID

import httpx
import orjson
import pymupdf
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden, Invalid, NotFound
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.pdf_status import Action
from latent_core.domain.token import Scope
from latent_core.domain.understanding import DocumentUnderstanding
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS, running
from tests.mcp.test_mcp import ERAS, answered, connected
from tests.support import REPOSITORY
from tests.support.harness.installation import Installation
from tests.support.page_answers import book, described, sides
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.llm_dialects import SeenRequest
from tests.support.servers.llm_server import MODEL, LanguageModelServer, Lie
from tests.support.summary_writer import write_summary

pytestmark = pytest.mark.asyncio(loop_scope="module")

READER: Final = "agent:reader"
PROVIDER: Final = f"pages/{MODEL}"
PAGES: Final = ("Gulls fly over the pier.", "Whales dive for krill.", "Seals sleep on sand.")


def judged(seen: SeenRequest) -> str:
    """Gulls are to be seen, the others read."""
    return described(seen, importance=5 if sides(seen)[0].startswith("Gulls") else 2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model_server() -> AsyncIterator[LanguageModelServer]:
    async with LanguageModelServer(answer=judged) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, model_server: LanguageModelServer
) -> AsyncIterator[Installation]:
    file = install_root / "page-providers.yaml"
    url = f"{model_server.base_url}/v1"
    file.write_text(
        "providers:\n"
        f"- {{name: pages, kind: openai, base_url: '{url}', reads: [images, pdf], price: 1000000}}\n",
        encoding="utf-8",
    )
    settings = {"LLC_PROVIDERS": str(file)}
    async with running(install_root, "extraction", embedding_server.base_url, **settings) as one:
        yield one


def manifest(container: str, *, enabled: bool = True) -> Manifest:
    fields: dict[str, Any] = {
        "id": container,
        "name": container,
        "embedder": "openai/test",
        "dims": DIMS,
        "acl": {"roles": {"owner": ["local:you"], "reader": [READER]}},
    }
    if enabled:
        fields["extraction"] = {"enabled": True, "provider": PROVIDER}
    return Manifest.model_validate(fields)


async def added(client: AsyncClient, container: str, name: str, data: bytes) -> UUID:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        upload = await client.upload(container, path)
    answer = await client.add(container, file_ref=upload.file_ref, source_uri=f"file:///{name}")
    (job,) = await client.wait([answer.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    return answer.doc_id


async def extracted(client: AsyncClient, container: str) -> list[DocumentUnderstanding]:
    """When no job works on pages any more."""
    open_states = (JobState.QUEUED, JobState.RUNNING)
    jobs = [
        job.job_id
        async for job in client.jobs(container_id=container, states=open_states)
        if job.kind is JobKind.EXTRACT
    ]
    await client.wait(jobs, timeout_seconds=60)
    return [one async for one in client.understanding(container)]


async def run(installation: Installation, *arguments: str) -> str:
    """What ``latent …`` prints; it must succeed."""
    code, out, err = await installation.cli(*arguments)
    assert code == 0, (out, err)
    return out


async def test_hits_of_described_pages_say_how_to_read_and_cite_them_over_http_and_mcp(
    client: AsyncClient, installation: Installation, http: httpx.AsyncClient
) -> None:
    await client.create(manifest("sea"))
    doc_id = await added(client, "sea", "sea.pdf", book(*PAGES))
    await extracted(client, "sea")
    request = SearchRequest(containers=["sea"], query="plot of gulls", top_k=10, dedup=False)
    hits = (await client.search(request)).hits
    gulls = [hit for hit in hits if hit.provenance.page == 1]
    assert {hit.text for hit in gulls} == {
        PAGES[0],
        f"Described: {PAGES[0]}",
        "chart: Plot of Gulls.",
    }
    for hit in gulls:
        assert (hit.visual_importance, hit.visual_importance_by) == (5, "model")
        assert (hit.read_as, hit.cite_as) == ("image", "p. 1")
        for uri, text in ((hit.page_pdf_uri, PAGES[0]), (hit.next_page_pdf_uri, PAGES[1])):
            assert uri is not None
            (page,) = pymupdf.open(stream=(await http.get(uri)).content, filetype="pdf")
            assert page.get_text().strip() == text
    whales = next(hit for hit in hits if hit.provenance.page == 2)
    assert (whales.read_as, whales.visual_importance) == ("text", 2)
    for era in ERAS:
        async with connected(installation, era) as agent:
            found = await answered(agent, "containers_search", query="plot of gulls")
            first = next(
                hit for hit in found["hits"] if hit["doc_id"] == str(doc_id) and hit["page"] == 1
            )
            assert (first["read_as"], first["cite_as"], first["visual_importance_by"]) == (
                "image",
                "p. 1",
                "model",
            )
            assert first["page_pdf_uri"]
            assert first["next_page_pdf_uri"]
            assert first["page_uri"]


async def test_a_container_without_a_model_uses_the_measure_and_calls_no_server(
    client: AsyncClient, model_server: LanguageModelServer
) -> None:
    await client.create(manifest("plain", enabled=False))
    doc_id = await added(client, "plain", "sea.pdf", book(*PAGES))
    before = len(model_server.seen)
    (status,) = await extracted(client, "plain")
    assert len(model_server.seen) == before
    found = await client.search(SearchRequest(containers=["plain"], query="gulls", top_k=3))
    assert {hit.visual_importance_by for hit in found.hits} <= {"measure", None}
    assert status.extraction is not None
    assert (status.extraction.total, status.extraction.unprocessed) == (3, 3)
    with pytest.raises(Invalid, match=r"extraction\.provider"):
        await client.extract("plain", [doc_id])


async def test_the_owner_sees_pages_causes_tokens_and_cost_and_repeats_some_by_force(
    client: AsyncClient, model_server: LanguageModelServer
) -> None:
    await client.create(manifest("lies"))
    model_server.rules = [("Eels hide.", Lie.EXTRA_KEY)]
    doc_id = await added(client, "lies", "eels.pdf", book("Carp rest.", "Cod rest.", "Eels hide."))
    await added(client, "lies", "code.py", b"def lamp(): ...\n")
    found = {one.source_uri: one for one in await extracted(client, "lies")}
    code, eels = found["file:///code.py"], found["file:///eels.pdf"]
    assert code.extraction is None
    pages = eels.extraction
    assert pages is not None
    # The page before it has its text in its request, too.
    assert (pages.total, pages.processed, pages.failed, pages.stale) == (3, 1, 2, 0)
    assert pages.failed_pages == [2, 3]
    assert "unexpected" in (pages.cause or "")
    assert pages.cost == pages.input_tokens + pages.output_tokens > 0
    totals = await client.understanding_totals("lies")
    assert (totals.extraction_model, totals.summary_model) == (PROVIDER, None)
    assert (totals.extraction.documents, totals.extraction.failed) == (1, 2)
    (use,) = totals.usage
    assert (use.purpose, use.model, use.calls) == ("extraction", PROVIDER, 3)
    refused = await client.page_extraction(doc_id, 3)
    assert (refused.state, refused.extraction, refused.next_page) == ("failed", None, None)
    assert "unexpected" in (refused.raw or "")

    model_server.rules = []
    model_server.seen.clear()
    steps = [
        one async for one in client.follow_extraction("lies", [doc_id], pages=[2, 3], force=True)
    ]
    assert sorted(sides(seen)[0] for seen in model_server.seen) == ["Cod rest.", "Eels hide."]
    last = steps[-1].extraction
    assert last is not None
    assert (last.processed, last.failed, last.job_state) == (3, 0, JobState.DONE)
    assert (await client.page_extraction(doc_id, 3)).extraction is not None
    refusal = await client.extract("lies", [doc_id], pages=[9])
    assert [one.action for one in refusal.documents] == [Action.REFUSED]


async def test_readers_find_pages_and_read_extractions_and_start_none(
    client: AsyncClient, installation: Installation
) -> None:
    await client.create(manifest("shared"))
    doc_id = await added(client, "shared", "sea.pdf", book(*PAGES))
    await extracted(client, "shared")
    token = await client.create_token(READER, scopes=[Scope.READ])
    stranger = await client.create_token("agent:stranger", scopes=[Scope.READ])
    async with installation.client(token.secret) as reader:
        found = [one async for one in reader.find_pages("shared", text="PLOT OF WHALES")]
        assert [(one.page, one.found_in, one.extraction) for one in found] == [
            (2, ["extraction"], "done")
        ]
        both = [one async for one in reader.find_pages("shared", text="whales dive")]
        assert [one.found_in for one in both] == [["source", "extraction"]]
        assert "Whales dive" in both[0].excerpt
        numbered = [one async for one in reader.find_pages("shared", page=3, doc_ids=[doc_id])]
        assert [
            (one.page, one.visual_importance, one.visual_importance_by) for one in numbered
        ] == [(3, 2, "model")]
        assert (await reader.page_extraction(doc_id, 1)).extraction is not None
        assert [one.page async for one in reader.find_pages("shared", text="e")] == [1, 2, 3]
        with pytest.raises(Forbidden):
            await reader.extract("shared", [doc_id])
        with pytest.raises(Forbidden):
            await reader.understanding_totals("shared")
    async with installation.client(stranger.secret) as outsider:
        for call in (
            lambda: outsider.page_extraction(doc_id, 1),
            lambda: anext(outsider.find_pages("shared", page=1)),
        ):
            with pytest.raises(NotFound):
                await call()


async def test_found_pages_come_in_parts_and_a_strange_cursor_is_refused(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await client.create(manifest("parts", enabled=False))
    await added(client, "parts", "sea.pdf", book(*PAGES))
    path, numbers, cursor = "/v1/containers/parts/pages", [], None
    while True:
        given = {"text": "e", "limit": 1} | ({"cursor": cursor} if cursor else {})
        body = (await http.get(path, params=given)).json()
        numbers += [(page["page"], page["extraction"]) for page in body["pages"]]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert numbers == [(1, "none"), (2, "none"), (3, "none")]
    for query in ({"page": 1, "cursor": "bm9wZQ"}, {}):
        answer = await http.get(path, params=query)
        assert (answer.status_code, answer.json()["issues"][0]["code"]) == (400, "INVALID")


async def test_the_commands_extract_find_export_and_show(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await client.create(manifest("desk"))
    await added(client, "desk", "sea.pdf", book(*PAGES))
    await extracted(client, "desk")
    out = await run(
        installation, "extract", "desk", "sea.pdf", "--pages", "2-3", "--force", "--wait"
    )
    assert "done: job" in out
    status = orjson.loads(await run(installation, "understanding", "desk", "--json"))
    assert status["totals"]["extraction"]["processed"] == 3
    assert [use["calls"] for use in status["totals"]["usage"]] == [5]
    shown = await run(installation, "understanding", "desk")
    assert f"extraction ({PROVIDER}): 3 of 3 pages of 1 document, 0 failed, 0 stale" in shown
    found = orjson.loads(
        await run(installation, "pages", "find", "-c", "desk", "--text", "krill", "--json")
    )
    assert [page["page"] for page in found["pages"]] == [2]
    pdf, extraction = tmp_path / "two.pdf", tmp_path / "two.json"
    exported = await run(
        installation, "pages", "export", "sea.pdf", "-c", "desk", "--page", "2", "--to", str(pdf)
    )
    digest = hashlib.sha256(pdf.read_bytes()).hexdigest()
    assert f"page_pdf_sha256 {digest}" in exported
    exported = await run(
        installation,
        "pages",
        "export",
        "sea.pdf",
        "-c",
        "desk",
        "--page",
        "2",
        "--to",
        str(extraction),
    )
    written = orjson.loads(extraction.read_bytes())
    assert written["page_pdf_sha256"] == digest
    assert written["extraction"]["full_text"] == f"Described: {PAGES[1]}"
    assert written["page_hash"] in exported


async def test_the_pkce_question_is_found_by_summaries_and_exact_queries_by_words_and_patterns(
    client: AsyncClient, installation: Installation, model_server: LanguageModelServer
) -> None:
    model_server.rules.append(("<document-", write_summary))
    fields = manifest("auth", enabled=False).model_dump(mode="json")
    block = {"enabled": True, "provider": PROVIDER}
    await client.create(Manifest.model_validate({**fields, "summaries": block}))
    guides = REPOSITORY / "samples" / "nextjs-auth"
    ids = {
        name: await added(client, "auth", name, (guides / name).read_bytes())
        for name in (
            "guides/pkce.md",
            "guides/troubleshooting.md",
            "guides/logout.md",
            "lib/paths.ts",
        )
    }
    pkce = ids["guides/pkce.md"]
    out = await run(installation, "summarise", "auth", "--wait", "--json")
    assert orjson.loads(out)["jobs"] is not None
    await extracted(client, "auth")
    jobs = [
        job.job_id
        async for job in client.jobs(container_id="auth")
        if job.kind is JobKind.SUMMARISE
    ]
    await client.wait(jobs, timeout_seconds=60)

    async def search(**more: Any) -> Any:
        request = {"containers": ["auth"], "query": "", "top_k": 5, "diagnostics": True, **more}
        return await client.search(SearchRequest(**request))

    question = await search(query="How to configure PKCE in Next.js App Router?")
    stages = question.diagnostics.stage_scores
    assert stages["summaries"][0].doc_id == pkce
    assert question.hits[0].doc_id == pkce
    for exact in ({"must_terms": ["redirect_uri"]}, {"regexes": [r"\bauth\b"]}):
        found = await search(**exact)
        assert found.hits
        assert found.diagnostics.stage_scores["exact"]
        assert not found.diagnostics.stage_scores["summaries"]
        assert all(hit.generated is None for hit in found.hits)

    summary = await client.summary("auth", pkce)
    assert summary.front_matter is not None
    assert summary.front_matter.source_path == "guides/pkce.md"
    shown = await run(installation, "documents", "summary", "guides/pkce.md", "--container", "auth")
    assert shown == summary.file
    assert summary.text[:40] not in str(await client.tools())
    short = await client.summary("auth", ids["guides/logout.md"])
    assert (short.state, short.file) == ("skipped", None)
    async with connected(installation, ERAS[0]) as agent:
        brief = await answered(agent, "documents_get", doc_id=str(pkce), detail="brief")
        assert brief["untrusted_content"]["summary"][:50] == summary.text[:50]
        found = await answered(
            agent,
            "containers_search",
            query="code",
            filters={"summary.source_path": "guides/pkce.md"},
        )
        assert {hit["doc_id"] for hit in found["hits"]} == {str(pkce)}
    token = await client.create_token(READER, scopes=[Scope.READ])
    async with installation.client(token.secret) as reader:
        assert (await reader.summary("auth", pkce)).raw is None
        with pytest.raises(Forbidden):
            _ = [job async for job in reader.summarise("auth")]
    with pytest.raises(NotFound):
        await client.summary("auth", UUID(int=5))
    await client.create(manifest("without-summaries", enabled=False))
    with pytest.raises(Invalid, match="names no language model"):
        _ = [job async for job in client.summarise("without-summaries")]
