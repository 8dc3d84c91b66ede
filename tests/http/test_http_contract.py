"""The finer points of the HTTP contract on a running installation: repeated writes, tags, quotas, pages, compression."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.manifest.model import Debug, Manifest
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from tests.conftest import DIMS
from tests.support.contracts.http_v1 import (
    ADD,
    CONTAINER,
    DESCRIBE,
    DIAGNOSTICS,
    ENVELOPE,
    EXPORT,
    HEALTH,
    HIT,
    ISSUE,
    ISSUE_CODES,
    LIST,
    MCP_TOOLS,
    PDF_STATUS,
    PDF_STATUSES,
    PROVENANCE,
    READINESS,
    REFRESH,
    SEARCH,
    STAGE_SCORES,
    TIMINGS_MS,
    TOOL,
    Call,
    answer_differences,
    tool_differences,
)
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENT = "agent:guest"
CAPACITY = 4000
"""Bytes a day that a guest may upload."""
REQUESTS = 30
WICK = b"# Lamp\n\nThe wick is trimmed at dusk.\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_QUOTA_REQUESTS_PER_MIN": str(REQUESTS),
        "LLC_QUOTA_UPLOAD_BYTES_PER_DAY": str(CAPACITY),
    }
    one = Installation(install_root / "contract", settings)
    await one.start()
    try:
        async with one.client() as client:
            await client.create(manifest("notes"))
            await add(client, "notes", WICK)
            await client.create(with_diagnostics(manifest("tables")))
            await add(client, "tables", WICK)
        yield one
    finally:
        await one.stop()


def manifest(container_id: str) -> Manifest:
    return Manifest.model_validate(
        {
            "id": container_id,
            "name": container_id.title(),
            "embedder": "openai/test",
            "dims": DIMS,
            "acl": {"roles": {"owner": ["local:you", AGENT], "reader": ["*"]}},
        }
    )


def with_diagnostics(plain: Manifest) -> Manifest:
    retrieval = plain.retrieval.model_copy(update={"debug": Debug(return_diagnostics=True)})
    return plain.model_copy(update={"retrieval": retrieval})


async def add(client: AsyncClient, container_id: str, data: bytes) -> Any:
    """The document, once it is live and its pages are drawn."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lamp.md"
        path.write_bytes(data)
        upload = await client.upload(container_id, path)
    added = await client.add(container_id, file_ref=upload.file_ref)
    await client.wait([added.job_id], timeout_seconds=60)
    drawing = [j.job_id async for j in client.jobs(container_id=container_id) if j.kind == "render"]
    await client.wait(drawing, timeout_seconds=60)
    return added


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def guest(
    client: AsyncClient, installation: Installation
) -> tuple[httpx.AsyncClient, dict[str, str]]:
    created = await client.create_token(
        AGENT, name=uuid4().hex, scopes=(Scope.READ, Scope.WRITE), containers=["notes"]
    )
    headers = {"Authorization": f"Bearer {created.secret}"}
    return httpx.AsyncClient(base_url=installation.url, trust_env=False, timeout=30), headers


async def test_a_container_created_again_after_a_lost_answer_is_a_conflict_and_unchanged(
    http: httpx.AsyncClient,
) -> None:
    body = {"manifest": manifest("once").model_dump(mode="json", exclude_unset=True)}
    answers = await asyncio.gather(*[http.post("/v1/containers", json=body) for _ in range(3)])
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
    stored = await http.get("/v1/containers/describe", params={"container_id": "once"})
    [created] = [answer for answer in answers if answer.status_code == 201]
    assert stored.json()["etag"] == created.json()["etag"]


async def test_an_upload_and_an_add_sent_again_after_a_lost_answer_make_one_document(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    await client.create(manifest("repeats"))

    async def upload() -> Any:
        path, query = "/v1/containers/repeats/uploads", {"filename": "a.md"}
        return (await http.post(path, params=query, content=b"# Lens")).json()["upload"]

    async def add_it(file_ref: str) -> Any:
        body = {"container_id": "repeats", "file_ref": file_ref}
        return (await http.post("/v1/containers/add", json=body)).json()

    uploads = [await upload() for _ in range(2)]
    assert uploads[0]["sha256"] == uploads[1]["sha256"]
    added = [await add_it(one["file_ref"]) for one in (*uploads, uploads[1])]
    await client.wait([one["job_id"] for one in added], timeout_seconds=60)
    first = await client.document("repeats", added[0]["doc_id"])
    late = await add_it(uploads[0]["file_ref"])
    await client.wait([late["job_id"]], timeout_seconds=60)
    assert {one["doc_id"] for one in (*added, late)} == {added[0]["doc_id"]}
    assert [one.doc_id async for one in client.documents("repeats")] == [first.doc_id]
    again = await client.document("repeats", added[0]["doc_id"])
    assert again.generation == first.generation


async def test_what_has_not_changed_is_not_sent_again_and_what_has_is(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    document = await anext(client.documents("notes"))
    describe = "/v1/containers/describe?container_id=notes"
    paths = [
        describe,
        "/v1/containers/notes/documents",
        f"/v1/containers/notes/documents/{document.doc_id}",
        f"/v1/documents/{document.doc_id}/pages/1",
        f"/v1/documents/{document.doc_id}/pages",
    ]
    for path in paths:
        for attempt in range(3):  # of a page only within the minute
            known = (await http.get(path)).headers["etag"]
            again = await http.get(path, headers={"If-None-Match": known})
            if again.status_code == 304 or attempt == 2:
                break
        assert (again.status_code, again.content) == (304, b""), path
        assert (await http.get(path, headers={"If-None-Match": '"old"'})).status_code == 200
    known = (await http.get(describe)).headers["etag"]
    await client.set_state("notes", ContainerState.READONLY)
    changed = await http.get(describe, headers={"If-None-Match": known})
    await client.set_state("notes", ContainerState.ACTIVE)
    assert changed.status_code == 200


async def test_the_tag_of_describe_is_what_a_change_names(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    await client.create(manifest("tagged"))
    described = await http.get("/v1/containers/describe", params={"container_id": "tagged"})
    body = {"manifest": {**manifest("tagged").model_dump(mode="json", exclude_unset=True)}}
    body["manifest"]["name"] = "Renamed"
    headers = {"If-Match": described.headers["etag"]}
    assert (await http.put("/v1/containers/tagged", json=body, headers=headers)).status_code == 200
    assert (await http.put("/v1/containers/tagged", json=body, headers=headers)).status_code == 412


async def test_a_page_image_is_known_by_its_hash(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    document = await anext(client.documents("notes"))
    link = (await client.page(document.doc_id, 1)).page_uri
    assert link is not None
    image = await http.get(link)
    known = {"If-None-Match": image.headers["etag"], "Accept-Encoding": "gzip"}
    assert image.headers["etag"].strip('"') in link
    assert "content-encoding" not in image.headers
    assert (await http.get(link, headers=known)).status_code == 304


async def test_containers_are_listed_whole_or_in_pages(http: httpx.AsyncClient) -> None:
    path, seen = "/v1/containers/list", []
    whole = (await http.get(path)).json()
    assert whole["next_cursor"] is None
    cursor: str | None = ""
    while cursor is not None:
        page = (
            await http.get(path, params={"limit": 1, **({"cursor": cursor} if cursor else {})})
        ).json()
        seen += page["containers"]
        cursor = page["next_cursor"]
        assert len(seen) <= len(whole["containers"])
    assert seen == whole["containers"]


async def test_a_long_answer_is_compressed_for_who_asks(http: httpx.AsyncClient) -> None:
    body = {"containers": ["notes"], "query": "wick", "top_k": 5, "explain": True}
    for encoding, message in (("gzip", "gzip"), ("identity", None)):
        headers = {"Accept-Encoding": encoding}
        answer = await http.post("/v1/containers/search", json=body, headers=headers)
        assert answer.headers.get("content-encoding") == message
        assert answer.json()["hits"]


async def test_a_rate_limited_request_returns_429_with_retry_after(
    client: AsyncClient, installation: Installation
) -> None:
    http, headers = await guest(client, installation)
    async with http:
        answers = [await http.get("/v1/jobs", headers=headers) for _ in range(REQUESTS + 5)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["issues"][0]["code"] == "RATE_LIMIT"
    assert int(refused[0].headers["retry-after"]) > 0
    assert await client.healthy()
    assert [job async for job in client.jobs()]  # the owner goes on


async def test_a_token_uploads_as_much_as_its_day_allows(
    client: AsyncClient, installation: Installation
) -> None:
    http, headers = await guest(client, installation)

    async def send(content: bytes | AsyncIterator[bytes]) -> httpx.Response:
        return await http.post(
            "/v1/containers/notes/uploads",
            params={"filename": "a.md"},
            content=content,
            headers=headers,
        )

    async with http:
        assert (await send(b"x" * (CAPACITY - 10))).status_code == 201
        declared = await send(b"x" * 11)
        assert declared.status_code == 429
        assert "LLC_QUOTA_UPLOAD_BYTES_PER_DAY" in declared.json()["issues"][0]["message"]
        assert (await send(b"x" * 9)).status_code == 201
        assert (await send(_pieces(b"x" * 11))).status_code == 429
        # What was refused came all the same: it counts.
        assert (await send(b"x")).status_code == 429


async def test_the_served_schema_says_what_the_routes_do(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/openapi.json")).json()
    assert schema["openapi"].startswith("3.1")
    add_source = schema["paths"]["/v1/containers/add"]["post"]
    assert {"401", "413", "429", "507"} <= set(add_source["responses"])


async def contracted(
    http: httpx.AsyncClient, call: Call, given: dict[str, Any] | None = None, status: int = 200
) -> dict[str, Any]:
    """The answer of a call, which has what the contract's table names."""
    if call.method == "GET":
        answer = await http.get(call.path, params=given)
    else:
        answer = await http.post(call.path, json=given)
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    expected = {**(ENVELOPE if call.is_enveloped else {}), **call.answers[status]}
    assert answer_differences(body, expected, call.path) == []
    for issue in body.get("issues", ()):
        assert answer_differences(issue, ISSUE) == []
        assert issue["code"] in ISSUE_CODES
    return body


async def test_every_call_of_the_contract_answers_what_its_table_names(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lamp.md"
        path.write_bytes(WICK)
        upload = await client.upload("tables", path)
    source = {"container_id": "tables", "file_ref": upload.file_ref, "modality": "text"}
    added = await contracted(http, ADD, source, 202)
    assert added["status"] == "queued"
    await client.wait([added["job_id"]], timeout_seconds=60)

    for one in (await contracted(http, LIST))["containers"]:
        assert answer_differences(one, CONTAINER) == []
    await contracted(http, DESCRIBE, {"container_id": "tables"})
    assert (await contracted(http, HEALTH))["status"] == "ok"
    ready = await contracted(http, READINESS)
    assert set(ready["services"]) >= {"postgres", "qdrant", "minio"}
    for tool in (tools := (await contracted(http, MCP_TOOLS))["tools"]):
        assert answer_differences(tool, TOOL) == []
    assert tool_differences(tools) == []
    for pdf in (await contracted(http, PDF_STATUSES))["documents"]:
        assert answer_differences(pdf, PDF_STATUS) == []


async def test_a_search_answers_what_the_contract_s_tables_name(http: httpx.AsyncClient) -> None:
    defaults = {
        name: parameter.default
        for name, parameter in SEARCH.parameters.items()
        if parameter.default is not None
    }
    request = {"containers": ["tables"], "query": "wick", "top_k": 5}
    found = await contracted(http, SEARCH, {**request, **defaults})
    assert (found["partial"], found["issues"]) == (False, [])
    assert found["hits"]
    for hit in found["hits"]:
        assert answer_differences(hit, HIT) == []
        assert answer_differences(hit["provenance"], PROVENANCE) == []
        assert (len(hit["offsets"]), hit["timestamps"]) == (2, [])
    diagnostics = found["diagnostics"]
    assert answer_differences(diagnostics, DIAGNOSTICS) == []
    assert answer_differences(diagnostics["stage_scores"], STAGE_SCORES) == []
    assert answer_differences(diagnostics["timings_ms"], TIMINGS_MS) == []
    bare = await contracted(http, SEARCH, request)
    assert [hit["chunk_id"] for hit in bare["hits"]] == [hit["chunk_id"] for hit in found["hits"]]
    quiet = await contracted(http, SEARCH, {**request, "containers": ["notes"]})
    assert quiet["diagnostics"] is None
    nothing = await contracted(http, SEARCH, {**request, "filters": {"path": "none"}})
    assert [issue["code"] for issue in nothing["issues"]] == ["NO_HITS"]


async def test_jobs_of_the_contract_have_ids_as_strings_and_a_refresh_is_parallel(
    http: httpx.AsyncClient, client: AsyncClient
) -> None:
    container = {"container_id": "tables"}
    dry = await http.post(REFRESH.path, json={**container, "dry_run": True})
    assert (dry.status_code, dry.json()["plan"]["strategy"]) == (200, "parallel")
    queued = await contracted(http, REFRESH, container, 202)
    await client.wait([queued["job_id"]], timeout_seconds=120)
    exporting = await contracted(http, EXPORT, container, 202)
    (job,) = await client.wait([exporting["job_id"]], timeout_seconds=120)
    listed = (await http.get(f"/v1/jobs/{exporting['job_id']}")).json()["job"]
    assert listed["job_id"] == exporting["job_id"] == str(job.job_id)
    ready = await contracted(http, EXPORT, container)
    assert ready["url"].startswith("http")
