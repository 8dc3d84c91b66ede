"""Every answer of every tool against its listed output schema, failures included, and the size of the list itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx2
import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import orjson
import pymupdf
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.note import note_uri
from tests.http.test_http_surface import HANDBOOK, add, ingest, manifest, settled
from tests.support.harness.installation import Installation
from tests.support.harness.node_packages import installed, node
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

Call = tuple[str, dict[str, Any]]

DOOMED: Final = str(document_id("void", note_uri("local:you", "doomed")))
ERA: Final = "<era>"
"""Stands for the id of a container that each run creates."""
NOWHERE: Final = "00000000-0000-0000-0000-000000000000"
SDKS: Final = ("@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0")
MIN_NODE: Final = 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    one = Installation(
        install_root / "mcp-answers",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_MCP_SEARCH_FETCH": "true",
        },
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(stocked: Installation, install_root: Path) -> list[Call]:
    """Calls of every tool: those that work, and those that cannot."""
    async with stocked.client() as client:
        await client.create(manifest("books"))
        await client.create(manifest("void"))
        await ingest(client, "books", "handbook.md", HANDBOOK.encode())
        book = pymupdf.open()
        book.new_page().insert_text((72, 72), "The whale sings.")
        done = await ingest(client, "books", "book.pdf", book.tobytes())
        broken = await add(client, "books", "broken.pdf", b"%PDF-1.7 nothing")
        (failed,) = await client.wait([broken.job_id], timeout_seconds=60)
        assert failed.state is JobState.FAILED
        await settled(client, "books")
        note = install_root / "note.md"
        note.write_text("A note.")
        file_ref = (await client.upload("void", note)).file_ref
        documents = [document async for document in client.documents("books")]
    live = str(next(d.doc_id for d in documents if d.source_uri.endswith("book.pdf")))
    pending = str(broken.doc_id)
    refresh = {"container_id": "books", "strategy": "parallel", "dry_run": True}
    return [
        ("containers_list", {}),
        ("containers_list", {"cursor": "nonsense"}),
        *(("containers_describe", {"container_id": name}) for name in ("books", "void", "none")),
        ("containers_describe", {"container_id": "books", "detail": "full"}),
        *(
            ("containers_search", {"containers": ["books"], "query": "whale", "detail": detail})
            for detail in ("brief", "full", "both")
        ),
        ("containers_search", {"containers": ["void"], "query": "whale"}),
        ("containers_search", {"containers": ["none"], "query": "whale"}),
        ("containers_search", {"containers": ["books"], "query": "x", "filters": {"colour": 1}}),
        *(("doc_search", {"query": "whale", "containers": [name]}) for name in ("books", "none")),
        *(("documents_get", {"doc_id": doc_id}) for doc_id in (live, pending, NOWHERE, "x")),
        ("documents_get", {"doc_id": live, "detail": "brief"}),
        ("documents_get", {"doc_id": live, "page": 1}),
        *(("page_image", {"doc_id": doc_id}) for doc_id in (live, pending, NOWHERE)),
        *(("jobs_get", {"job_id": job_id}) for job_id in (done, broken.job_id, 999_999_999)),
        ("documents_add", {"container_id": "books", "uri": "ftp://example.com/x"}),
        ("documents_add", {"container_id": "void", "file_ref": file_ref}),
        ("documents_add", {"container_id": "void", "text": "A lamp.", "name": "lamp"}),
        ("documents_add", {"container_id": "void", "text": "Two lamps.", "name": "lamp"}),
        ("documents_add", {"container_id": "void", "text": "x", "name": "lamp", "if_version": 9}),
        *(("documents_list", {"container_id": name}) for name in ("books", "void", "none")),
        *(("documents_outline", {"doc_id": doc_id}) for doc_id in (live, pending, NOWHERE)),
        ("documents_add", {"container_id": "void", "text": "Doomed.", "name": "doomed"}),
        *(("documents_delete", {"doc_id": doc_id}) for doc_id in (DOOMED, DOOMED, NOWHERE)),
        ("containers_create", {"id": ERA}),
        ("containers_create", {"id": ERA}),
        ("admin_refresh", refresh),
        ("admin_refresh", {**refresh, "container_id": "none"}),
        ("containers_export", {"container_id": "void"}),
        ("containers_export", {"container_id": "none"}),
        *(("search", {"query": query}) for query in ("whale", "")),
        *(("fetch", {"id": identity}) for identity in (live, NOWHERE, "x")),
    ]


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_every_answer_is_as_its_tool_declares(
    stocked: Installation, calls: list[Call], era: str
) -> None:
    headers = {"Authorization": f"Bearer {stocked.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        transport = streamable_http_client(f"{stocked.url}/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            schemas = {t.name: t.output_schema for t in (await client.list_tools()).tools}
            assert {name for name, _ in calls} == set(schemas)
            outcomes: dict[str, set[bool]] = {name: set() for name in schemas}
            for name, arguments in calls:
                if arguments.get("id") == ERA:
                    arguments = {"id": f"made-{era}"}
                result = await client.call_tool(name, arguments)  # the SDK validates it, too
                outcomes[name].add(bool(result.is_error))
                schema, content = schemas[name], result.structured_content
                if result.is_error or schema is None:
                    assert content is None, (name, arguments)
                else:
                    jsonschema.validate(content, schema)
                    assert b"null" not in orjson.dumps(content), (name, content)
            outcomes.pop("search")  # it has no answer but a list
            assert [name for name, seen in outcomes.items() if seen != {True, False}] == []
            described = await http.get(
                f"{stocked.url}/v1/containers/describe", params={"container_id": f"made-{era}"}
            )
            assert described.json()["manifest"]["retrieval"]["fusion"]["method"] == "auto"
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("containers_explode", {})


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sdk", SDKS)
async def test_the_typescript_sdks_accept_every_answer(
    stocked: Installation, calls: list[Call], sdk: str
) -> None:
    home = await asyncio.to_thread(installed, sdk)
    given = orjson.dumps([*calls, ("containers_explode", {})]).decode()
    script = Path(__file__).parent / "call_tools.mjs"
    process = await asyncio.create_subprocess_exec(
        *(node(MIN_NODE), str(script), str(home), f"{stocked.url}/mcp", stocked.token, given),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(240):
        out, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()
    *answers, unknown = orjson.loads(out)
    assert [a for a in answers if "thrown" in a] == []
    for answer in answers:
        if answer["isError"]:
            code, _, message = answer["text"].partition(": ")
            assert code.isupper(), answer
            assert message
    assert unknown["code"] == -32602
