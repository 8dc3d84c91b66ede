"""The HTTP surface of a running installation: what is asked, what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pymupdf
import pytest

from latent_client import AsyncClient
from latent_core.domain.job import JobKind, JobState, JobView
from latent_core.domain.manifest.model import Dedup, Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

SETTLE_SECONDS = 240.0
WAIT_FOR_THEIR_TIME = (JobKind.PURGE, JobKind.COMPACT)
"""Some of them, until no search can be at work that began before a deletion."""
"""A job of a large or hostile file may stand before those of a test."""

pytestmark = pytest.mark.asyncio(loop_scope="module")

HANDBOOK = """# Keeper's handbook

Trim the wick at dusk and wind the clockwork.

## Fog signal

| Signal | Seconds |
|---|---|
| Horn | 30 |
| Bell | 15 |

Set `LAMP_ROTATION_SECONDS` before lighting.
"""


def manifest(container_id: str, **more: Any) -> Manifest:
    """Texts of these tests are short and much alike: only what is the same counts as a duplicate."""
    given = {"embedder": "openai/test", "dims": DIMS, "dedup": Dedup(semantic_threshold=1.0)} | more
    return Manifest(id=container_id, name=container_id.title(), **given)


async def add(client: AsyncClient, container: str, name: str, data: bytes, **more: Any) -> Any:
    """Upload and add."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        upload = await client.upload(container, path)
    return await client.add(container, file_ref=upload.file_ref, **more)


async def ingest(client: AsyncClient, container: str, name: str, data: bytes, **more: Any) -> int:
    """Upload and add; answers the job when it has ended well."""
    added = await add(client, container, name, data, **more)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    return added.job_id


async def search(client: AsyncClient, container: str, query: str, **more: Any) -> Any:
    return await client.search(
        SearchRequest(containers=[container], query=query, top_k=more.pop("top_k", 5), **more)
    )


async def settled(client: AsyncClient, container: str) -> None:
    """Wait until no job of the container is open but those that wait for their time."""

    busy: list[JobView] = []

    async def quiet() -> bool:
        busy[:] = [
            j
            async for j in client.jobs(container_id=container)
            if j.state is JobState.RUNNING
            or (j.state is JobState.QUEUED and j.kind not in WAIT_FOR_THEIR_TIME)
        ]
        return not busy

    try:
        await eventually(quiet, seconds=SETTLE_SECONDS, what="the queue to be empty")
    except AssertionError as error:
        raise AssertionError(f"{error}: {busy}") from None


async def test_a_document_is_found_by_meaning_by_words_and_by_both(client: AsyncClient) -> None:
    await client.create(manifest("modes"))
    await ingest(client, "modes", "handbook.md", HANDBOOK.encode())
    for mode in (SearchMode.LEXICAL, SearchMode.SEMANTIC, SearchMode.HYBRID):
        answer = await search(client, "modes", "fog horn seconds", mode=mode)
        assert answer.hits, mode
        assert not answer.partial
    hit = answer.hits[0]
    assert hit.source_uri == "file:///handbook.md"
    assert hit.provenance.embedder == "openai/test"
    assert {reason.channel for reason in hit.why} == {"bm25", "vector"}
    assert HANDBOOK[hit.offsets[0] : hit.offsets[1]].strip() in HANDBOOK


async def test_an_identifier_is_found_whole_and_by_its_parts(client: AsyncClient) -> None:
    await client.create(manifest("names"))
    await ingest(client, "names", "handbook.md", HANDBOOK.encode())
    for query in ("LAMP_ROTATION_SECONDS", "rotation"):
        answer = await search(client, "names", query, mode=SearchMode.LEXICAL)
        assert any("LAMP_ROTATION_SECONDS" in hit.text for hit in answer.hits), query


async def test_every_hit_links_a_page_image_that_opens_without_a_token(client: AsyncClient) -> None:
    await client.create(manifest("pages"))
    await ingest(client, "pages", "handbook.md", HANDBOOK.encode())
    await settled(client, "pages")
    answer = await search(client, "pages", "clockwork")
    hit = answer.hits[0]
    assert hit.page_image == "ready"
    assert hit.uri == hit.page_uri
    async with httpx.AsyncClient(trust_env=False) as anybody:
        image = await anybody.get(hit.page_uri)
        assert image.status_code == 200
        assert image.headers["content-type"] == "image/webp"
        assert image.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in image.headers["content-security-policy"]
        assert (
            await anybody.get(hit.page_uri.replace("type=image", "type=text"))
        ).status_code == 403
        part = await anybody.get(hit.page_uri, headers={"Range": "bytes=0-3"})
        assert (part.status_code, part.content) == (206, b"RIFF")


async def test_a_pdf_is_found_on_its_page(client: AsyncClient) -> None:
    book = pymupdf.open()
    for number in range(1, 6):
        book.new_page().insert_text(
            (72, 72), f"Chapter {number} tells of the {'whale' if number == 4 else 'gull'}."
        )
    await client.create(manifest("books"))
    await ingest(client, "books", "book.pdf", book.tobytes())
    hit = (await search(client, "books", "whale", mode=SearchMode.LEXICAL)).hits[0]
    assert hit.place.page == 4
    page = await client.page(hit.doc_id, 4)
    assert "whale" in page.text
    assert page.pages == 5


async def test_adding_the_same_bytes_again_embeds_nothing(client: AsyncClient) -> None:
    await client.create(manifest("again"))
    await ingest(client, "again", "handbook.md", HANDBOOK.encode())
    before = await _embedded(client)
    await ingest(client, "again", "handbook.md", HANDBOOK.encode())
    assert await _embedded(client) == before


async def _embedded(client: AsyncClient) -> float:
    lines = (await client.metrics()).splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("latent_embedded_texts_total")
    )


async def test_changed_content_replaces_the_old_and_the_chunk_that_stayed_keeps_its_id(
    client: AsyncClient,
) -> None:
    await client.create(manifest("change", chunker={"size": 16}))
    first = "# Wicks\n\nTrim the wick at dusk, every single evening of the year.\n\n# Horns\n\nSound the horn in fog, twice a minute, until it lifts.\n"
    await ingest(client, "change", "a.md", first.encode())
    kept = (await search(client, "change", "wick", mode=SearchMode.LEXICAL)).hits[0].chunk_id
    await ingest(
        client, "change", "a.md", first.replace("horn", "siren").replace("Horns", "Sirens").encode()
    )
    assert (await search(client, "change", "horn", mode=SearchMode.LEXICAL)).hits == []
    assert (await search(client, "change", "siren", mode=SearchMode.LEXICAL)).hits
    assert (await search(client, "change", "wick", mode=SearchMode.LEXICAL)).hits[
        0
    ].chunk_id == kept


async def test_a_deleted_document_is_gone_from_every_answer_at_once(client: AsyncClient) -> None:
    await client.create(manifest("gone"))
    await ingest(client, "gone", "a.txt", b"The lamp is lit at dusk.")
    hit = (await search(client, "gone", "lamp")).hits[0]
    queued = await client.delete_document("gone", hit.doc_id, now=True)
    assert (await search(client, "gone", "lamp")).hits == []
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE
    report = await client.doctor("gone")
    assert report.clean, report


async def test_a_corpus_becomes_one_document_a_record(client: AsyncClient) -> None:
    lines = [
        f'{{"_id": "r{n}", "title": "Record {n}", "text": "Gull number {n} was ringed.", "year": {n}}}'
        for n in range(700)
    ]
    lines.insert(5, "this is no record")
    await client.create(manifest("corpus"))
    job_id = await ingest(client, "corpus", "gulls.jsonl", "\n".join(lines).encode())
    job = await client.job(job_id)
    assert any("line 6" in warning.message for warning in job.warnings)
    hit = (await search(client, "corpus", "Record 512", mode=SearchMode.LEXICAL)).hits[0]
    assert hit.external_id == "r512"
    assert hit.meta["year"] == 512
    described = await client.describe("corpus")
    assert described.sizes.chunks == 700
    corpus = [d async for d in client.documents("corpus") if d.external_id is None]
    await client.delete_document("corpus", corpus[0].doc_id)
    assert (await search(client, "corpus", "gull ringed")).hits == []
    await settled(client, "corpus")


async def test_the_remaining_documents_are_found_after_many_were_replaced_and_deleted(
    client: AsyncClient,
) -> None:
    """The join refuses what is stale; both channels widen until all the rest is found."""
    await client.create(manifest("refill"))
    texts = [f"Gull {n} was ringed on the north cliff." for n in range(300)]
    await ingest(client, "refill", "a.jsonl", _jsonl(texts))
    await ingest(client, "refill", "a.jsonl", _jsonl([t.replace("north", "south") for t in texts]))
    ids = {d.external_id: d.doc_id async for d in client.documents("refill") if d.external_id}
    await asyncio.gather(*(client.delete_document("refill", ids[f"r{n}"]) for n in range(295)))
    for mode in (SearchMode.LEXICAL, SearchMode.SEMANTIC, SearchMode.HYBRID):
        answer = await search(client, "refill", "gull ringed cliff", mode=mode, top_k=50)
        assert {h.external_id for h in answer.hits} == {f"r{n}" for n in range(295, 300)}, mode
        assert answer.exhausted == ["refill"]


def _jsonl(texts: list[str]) -> bytes:
    return "\n".join(
        f'{{"_id": "r{n}", "title": "", "text": "{t}"}}' for n, t in enumerate(texts)
    ).encode()


async def test_filters_hold_on_every_channel(client: AsyncClient) -> None:
    await client.create(manifest("filters"))
    await ingest(client, "filters", "a.md", b"# Lamps\n\nThe lamp is lit.\n")
    await ingest(client, "filters", "b.txt", b"The lamp is out.\n")
    for mode in (SearchMode.LEXICAL, SearchMode.SEMANTIC, SearchMode.HYBRID):
        answer = await search(
            client,
            "filters",
            "lamp",
            mode=mode,
            filters={"source_type": "markdown"},
            diagnostics=True,
        )
        assert {h.source_type for h in answer.hits} == {"markdown"}, mode
        assert answer.diagnostics.applied_filters == {"source_type": ["markdown"]}


async def test_diagnostics_tell_scores_timings_and_candidates(client: AsyncClient) -> None:
    await client.create(manifest("diagnosed", retrieval={"debug": {"return_diagnostics": True}}))
    await ingest(client, "diagnosed", "a.txt", b"The lamp is lit at dusk.")
    answer = await search(client, "diagnosed", "lamps")
    shown_diagnostics = answer.diagnostics
    assert {"bm25", "vector"} <= set(shown_diagnostics.stage_scores)
    assert {"embed", "vector", "bm25", "fuse", "rerank"} <= set(shown_diagnostics.timings_ms)
    assert shown_diagnostics.candidates_before_rerank == 1
    assert shown_diagnostics.terms == {"diagnosed": ["lamp"]}


async def test_several_containers_answer_in_one_list(client: AsyncClient) -> None:
    for name in ("east", "west"):
        await client.create(manifest(name))
        await ingest(client, name, f"{name}.txt", f"The {name} lamp is lit.".encode())
    answer = await client.search(
        SearchRequest(containers=["east", "west", "east"], query="lamp", top_k=10)
    )
    assert sorted(h.container_id for h in answer.hits) == ["east", "west"]


async def test_a_channel_that_fails_makes_the_answer_partial_and_the_other_answers(
    client: AsyncClient, embedding_server: EmbeddingServer
) -> None:
    await client.create(manifest("failing"))
    await ingest(client, "failing", "a.txt", b"The lamp is lit at dusk.")
    embedding_server.misbehave(EmbeddingFault.REFUSED, times=5, only_with="astray")
    answer = await search(client, "failing", "astray lamp")
    assert [h.why[0].channel for h in answer.hits] == ["bm25"]
    assert answer.partial
    assert "vector" in answer.issues[0].message
    assert answer.exhausted == []
    await client.delete("failing")


async def test_a_channel_that_is_late_is_left_out_and_the_other_still_answers(
    client: AsyncClient, embedding_server: EmbeddingServer
) -> None:
    await client.create(manifest("late"))
    await ingest(client, "late", "a.txt", b"The lamp is lit at dusk.")
    embedding_server.misbehave(EmbeddingFault.SILENT, times=5, only_with="tardy")
    answer = await search(client, "late", "tardy lamp")
    assert [h.why[0].channel for h in answer.hits] == ["bm25"]
    assert answer.partial
    assert answer.issues[0].code.value == "TIMEOUT"
    assert answer.exhausted == []


async def test_a_few_long_documents_are_found_without_looking_at_everything(
    client: AsyncClient,
) -> None:
    """Two documents fill every list; no third is looked for."""
    await client.create(manifest("tomes", chunker={"size": 16}))
    for name in ("one", "two"):
        book = "\n\n".join(
            f"The {name} keeper wrote page {n} about the lamp and the sea." for n in range(400)
        )
        await ingest(client, "tomes", f"{name}.txt", book.encode())
    answer = await search(client, "tomes", "keeper lamp", top_k=10, diagnostics=True)
    assert {h.source_path for h in answer.hits} == {"one.txt", "two.txt"}
    assert not answer.partial
    assert answer.diagnostics.container_status[0].rounds <= 3
    assert answer.hits[0].also_in_document


async def test_a_containers_manifest_is_changed_only_by_who_names_its_version(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await client.create(manifest("tagged"))
    described = await client.describe("tagged")
    changed = manifest("tagged", theme="lamps")
    body = {"manifest": changed.model_dump(mode="json")}
    assert (await http.put("/v1/containers/tagged", json=body)).status_code == 428
    assert (
        await http.put("/v1/containers/tagged", json=body, headers={"If-Match": '"stale"'})
    ).status_code == 412
    written = await client.update(changed, if_match=described.etag)
    assert written.etag != described.etag
    refused = await http.put(
        "/v1/containers/tagged",
        json={"manifest": changed.model_dump(mode="json") | {"dims": 32}},
        headers={"If-Match": f'"{written.etag}"'},
    )
    assert refused.status_code == 409
    assert "dims" in refused.json()["issues"][0]["message"]


async def test_a_deleted_container_can_be_made_again_and_holds_nothing_of_its_former_life(
    client: AsyncClient,
) -> None:
    await client.create(manifest("phoenix"))
    await ingest(client, "phoenix", "a.txt", b"The old lamp is lit.")
    queued = await client.delete("phoenix")
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE
    await client.create(manifest("phoenix"))
    assert (await search(client, "phoenix", "lamp")).hits == []
    await ingest(client, "phoenix", "a.txt", b"The new lamp is lit.")
    assert [h.text for h in (await search(client, "phoenix", "lamp")).hits] == [
        "The new lamp is lit."
    ]
    assert (await client.doctor("phoenix")).clean


async def test_job_events_tell_the_whole_story_and_end(client: AsyncClient) -> None:
    await client.create(manifest("story"))
    job_id = await ingest(client, "story", "a.txt", b"The lamp is lit.")
    names = [news.event async for news in client.events(job_id)]
    assert names[0] == "enqueued"
    assert "done" in names


async def test_a_file_below_an_ingest_root_is_ingested_by_its_path(
    client: AsyncClient, installation: Installation, http: httpx.AsyncClient
) -> None:
    inbox = Path(installation.environment()["LLC_INGEST_ROOTS"])
    (inbox / "sub").mkdir(exist_ok=True)
    (inbox / "sub" / "lamp.txt").write_text("The inbox lamp is lit.")
    (inbox / "way-out").symlink_to("/etc")
    await client.create(manifest("inbox"))
    added = await client.add("inbox", file_ref="sub/lamp.txt")
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    assert added.source_uri == f"file:///{inbox.name}/sub/lamp.txt"
    for outside in ("../../etc/passwd", "/etc/passwd", "way-out/passwd", "absent.txt", "sub"):
        refused = await http.post(
            "/v1/containers/add", json={"container_id": "inbox", "file_ref": outside}
        )
        assert refused.status_code == 404, outside
        assert "/etc" not in refused.json()["issues"][0]["message"].replace(outside, "")


@pytest.mark.parametrize(
    ("name", "data", "shown_diagnostics"),
    [
        ("empty.txt", b"", "empty"),
        ("blank.md", b" \n\n\t\n", "empty|blank|nothing|no text"),
        ("picture.md", b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "damaged image"),
        ("broken.pdf", b"%PDF-1.7\nnonsense", "PDF"),
        ("noise.bin", random.Random(1).randbytes(4096), "binary"),
        ("none.jsonl", b"not json\n", "record"),
    ],
)
async def test_what_cannot_be_ingested_fails_with_its_reason_and_leaves_nothing(
    client: AsyncClient, name: str, data: bytes, shown_diagnostics: str
) -> None:
    container = "bad-" + name.partition(".")[0]
    await client.create(manifest(container))
    added = await add(client, container, name, data)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert re.search(shown_diagnostics, job.cause.message, re.IGNORECASE), job.cause.message
    described = await client.describe(container)
    assert described.sizes.chunks == 0
    assert (await client.doctor(container)).clean


async def test_an_encrypted_pdf_is_refused_by_name(client: AsyncClient) -> None:
    book = pymupdf.open()
    book.new_page().insert_text((72, 72), "secret")
    data = book.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="o", user_pw="u")
    await client.create(manifest("locked"))
    added = await add(client, "locked", "locked.pdf", data)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert "password" in job.cause.message or "encrypted" in job.cause.message


REFUSALS: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/v1/containers/describe?container_id=nowhere", None, 404, "NOT_FOUND"),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["nowhere"], "query": "x", "top_k": 1},
        404,
        "NOT_FOUND",
    ),
    ("POST", "/v1/containers/search", {"containers": [], "query": "x", "top_k": 1}, 400, "INVALID"),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 0},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 101},
        400,
        "INVALID",
    ),
    ("POST", "/v1/containers/search", {"containers": ["bad"], "query": "x"}, 400, "INVALID"),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "  ", "top_k": 1},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x" * 9000, "top_k": 1},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 1, "mode": "magic"},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 1, "mode": "multivector"},
        403,
        "POLICY",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 1, "surprise": 1},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/search",
        {"containers": ["bad"], "query": "x", "top_k": 1, "filters": {"no": 1}},
        400,
        "INVALID",
    ),
    ("POST", "/v1/containers", {"manifest": {"id": "Bad Id", "name": "x"}}, 400, "INVALID"),
    ("POST", "/v1/containers", {"manifest": {"id": "bad", "name": "x"}}, 409, "CONFLICT"),
    (
        "POST",
        "/v1/containers",
        {"manifest": {"id": "odd", "name": "x", "embedder": "unheard-of"}},
        400,
        "INVALID",
    ),
    ("POST", "/v1/containers/add", {"container_id": "bad"}, 400, "INVALID"),
    (
        "POST",
        "/v1/containers/add",
        {"container_id": "bad", "uri": "file:///etc/passwd"},
        400,
        "INVALID",
    ),
    (
        "POST",
        "/v1/containers/add",
        {"container_id": "bad", "uri": "https://example.com:8443/"},
        403,
        "POLICY",
    ),
    (
        "POST",
        "/v1/containers/add",
        {"container_id": "bad", "file_ref": "00000000-0000-0000-0000-000000000000"},
        404,
        "NOT_FOUND",
    ),
    ("GET", "/v1/jobs/999999999", None, 404, "NOT_FOUND"),
    ("GET", "/v1/jobs/99999999999999999999999", None, 404, "NOT_FOUND"),
    ("GET", "/v1/jobs?cursor=nonsense", None, 400, "INVALID"),
    ("GET", "/v1/containers/bad/documents?cursor=!!", None, 400, "INVALID"),
    (
        "GET",
        "/v1/containers/bad/documents/00000000-0000-0000-0000-000000000000",
        None,
        404,
        "NOT_FOUND",
    ),
    ("GET", "/v1/documents/00000000-0000-0000-0000-000000000000/pages/1", None, 404, "NOT_FOUND"),
    ("POST", "/v1/containers/nowhere/uploads?filename=a.txt", None, 404, "NOT_FOUND"),
    ("GET", "/v1/nothing/here", None, 404, "NOT_FOUND"),
    ("PATCH", "/v1/containers/list", None, 405, "INVALID"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), REFUSALS)
async def test_a_request_that_cannot_be_met_is_an_issue_with_its_status_and_code(
    client: AsyncClient,
    http: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any,
    status: int,
    code: str,
) -> None:
    if "bad" not in {c.id for c in await client.containers()}:
        await client.create(manifest("bad"))
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["issues"][0]["code"]) == (status, code), answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"\xff\xfe",
        b'{"containers": ["bad"], "query": "\\ud800", "top_k": 1}',
        b'{"containers": ["bad"], "query": "a\\u0000b", "top_k": 1}',
        b"[" * 100_000,
    ],
)
async def test_a_body_that_is_no_sound_json_is_refused_and_never_a_500(
    client: AsyncClient, http: httpx.AsyncClient, data: bytes
) -> None:
    if "bad" not in {c.id for c in await client.containers()}:
        await client.create(manifest("bad"))
    answer = await http.post(
        "/v1/search", content=data, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (200, 400, 422)
    assert answer.json()["version"] == "v1"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer", "Bearer \u00e4"])
async def test_without_the_token_nothing_is_answered(
    installation: Installation, header: str | None
) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    async with httpx.AsyncClient(base_url=installation.url, trust_env=False) as stranger:
        for path in ("/v1/containers/list", "/v1/jobs", "/metrics"):
            answer = await stranger.get(path, headers=headers)
            assert answer.status_code == 401, path
            assert answer.json()["issues"][0]["code"] == "AUTH"
        assert (await stranger.get("/healthz")).json() == {"status": "ok"}


async def test_readiness_names_every_service(http: httpx.AsyncClient) -> None:
    answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "services": {"postgres": "ok", "qdrant": "ok", "minio": "ok"},
    }


async def test_the_schema_is_openapi_3_1_and_names_every_route_of_the_contract(
    http: httpx.AsyncClient,
) -> None:
    schema = (await http.get("/openapi.json")).json()
    assert schema["openapi"].startswith("3.1")
    for path in (
        "/v1/containers/list",
        "/v1/containers/describe",
        "/v1/containers/add",
        "/v1/containers/search",
        "/healthz",
        "/readyz",
    ):
        assert path in schema["paths"]


async def test_log_lines_are_json_with_request_ids_and_without_signatures(
    client: AsyncClient, installation: Installation, http: httpx.AsyncClient
) -> None:
    await http.get("/v1/containers/list", headers={"X-Request-ID": "seen-in-the-log"})
    lines: list[dict[str, Any]] = []

    async def written() -> bool:  # after the answer
        lines.extend(o for o in installation.logged() if o.get("request_id") == "seen-in-the-log")
        return bool(lines)

    await eventually(written, what="the line of the request")
    assert lines[0]["msg"] == "request"
    assert {"timestamp", "logger", "level", "msg"} <= set(lines[0])
    assert "sig=" not in installation.log.read_text()
    assert installation.token not in installation.log.read_text()
