"""What agents reach the gateway with: `latent mcp` over stdio, and the clients and SDKs that others wrote.

Each of those lists, calls, reads an error, writes, finds and looks. A scripted model asks for the calls and records
what it was shown. ``make clients`` runs all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
import psutil
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import LATEST_PROTOCOL_VERSION

from latent_client import AsyncClient
from latent_core.domain.ids import document_id
from latent_core.domain.note import note_uri
from latent_core.domain.token import Scope
from tests.http.test_http_surface import HANDBOOK, ingest, manifest, settled
from tests.mcp.test_mcp import book
from tests.support.harness.agent_clients import (
    CACHE,
    AgentClient,
    ClientTarget,
    clients,
    run_client,
)
from tests.support.harness.installation import LATENT, Installation, eventually
from tests.support.servers.model_server import ScriptedCall, ScriptedModel

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

BRIDGES: Final = 20
MAX_RSS_BYTES: Final = 40_000_000
META: Final = "io.modelcontextprotocol"
SPAWN: Final = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
time.sleep(600)
"""
"""A parent that starts a bridge on its own input and waits."""
WRITER_TOOLS: Final = (
    "containers_list",
    "containers_describe",
    "containers_search",
    "doc_search",
    "documents_list",
    "documents_outline",
    "documents_get",
    "page_image",
    "documents_add",
    "documents_delete",
    "jobs_get",
)
CASES: Final = [
    pytest.param(one, id=one.name, marks=() if one.ci else pytest.mark.slow) for one in clients()
]
"""In `make test` those that are marked so, in `make clients` all."""


async def bridge(one: Installation) -> Process:
    return await asyncio.create_subprocess_exec(
        *(str(LATENT), "mcp"), stdin=PIPE, stdout=PIPE, env=one.environment(), cwd=one.folder
    )


async def answer_to(process: Process, **message: Any) -> dict[str, Any]:
    """The answer to one message."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(orjson.dumps({"jsonrpc": "2.0", "id": 1, **message}) + b"\n")
    async with asyncio.timeout(60):
        answer: dict[str, Any] = orjson.loads(await process.stdout.readline())
    return answer


async def closed(*processes: Process) -> list[int]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    async with asyncio.timeout(60):
        return [await process.wait() for process in processes]


async def test_discovery_before_anything_else_is_answered(installation: Installation) -> None:
    version = "2026-07-28"
    meta = {
        f"{META}/protocolVersion": version,
        f"{META}/clientInfo": {"name": "newest", "version": "1"},
        f"{META}/clientCapabilities": {},
    }
    process = await bridge(installation)
    answer = await answer_to(process, method="server/discover", params={"_meta": meta})
    assert version in answer["result"]["supportedVersions"]
    listed = await answer_to(process, method="tools/list", params={"_meta": meta})
    assert listed["result"]["tools"]
    assert await closed(process) == [0]


async def test_discovery_without_a_version_is_refused_so_that_a_client_falls_back(
    installation: Installation,
) -> None:
    process = await bridge(installation)
    refused = await answer_to(process, method="server/discover", params={})
    assert refused["id"] == 1
    assert refused["error"]["code"] in (-32601, -32602)
    client = {"name": "old", "version": "1"}
    given = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    begun = await answer_to(process, method="initialize", params=given)
    assert begun["result"]["protocolVersion"] == "2025-11-25"
    assert await closed(process) == [0]


async def test_a_client_that_probes_the_era_finds_the_newest(installation: Installation) -> None:
    server = StdioServerParameters(
        command=str(LATENT), args=["mcp"], env=installation.environment(), cwd=installation.folder
    )
    async with Client(server, mode="auto", read_timeout_seconds=60) as client:
        assert client.protocol_version == LATEST_PROTOCOL_VERSION
        assert (await client.list_tools()).tools


async def test_twenty_bridges_at_once_are_small_and_all_answer(installation: Installation) -> None:
    processes = [await bridge(installation) for _ in range(BRIDGES)]
    call = {"name": "containers_list", "arguments": {}}
    answers = await asyncio.gather(
        *(answer_to(process, method="tools/call", params=call) for process in processes)
    )
    assert all("containers" in answer["result"]["structuredContent"] for answer in answers)
    sizes = [psutil.Process(process.pid).memory_info().rss for process in processes]
    assert max(sizes) < MAX_RSS_BYTES, sizes
    assert await closed(*processes) == [0] * BRIDGES


async def test_a_bridge_ends_with_its_parent_although_its_input_stays_open(
    installation: Installation,
) -> None:
    reading, writing = os.pipe()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SPAWN, str(LATENT), "mcp"),
        stdin=reading,
        stdout=PIPE,
        stderr=DEVNULL,
        env=installation.environment(),
        cwd=installation.folder,
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(await parent.stdout.readline()))
        os.write(writing, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        async with asyncio.timeout(60):
            assert "result" in orjson.loads(await parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        await parent.wait()

        async def ended() -> bool:
            return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

        await eventually(ended)
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_module_of_the_working_folder_is_not_imported(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "orjson.py").write_text("raise SystemExit(7)")
    process = await asyncio.create_subprocess_exec(
        *(str(LATENT), "mcp"), stdin=PIPE, stdout=PIPE, env=installation.environment(), cwd=tmp_path
    )
    assert "result" in await answer_to(process, method="ping")
    assert await closed(process) == [0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whale_book(installation: Installation) -> UUID:
    """A book whose fourth page is of the whale, beside a handbook."""
    async with installation.client() as client:
        await client.create(manifest("books"))
        await ingest(client, "books", "handbook.md", HANDBOOK.encode())
        await ingest(client, "books", "book.pdf", book())
        await settled(client, "books")
        documents = [document async for document in client.documents("books")]
    return next(d.doc_id for d in documents if d.source_uri.endswith("book.pdf"))


def script(client: AsyncClient, name: str, doc_id: UUID) -> list[ScriptedCall]:
    async def searchable() -> None:
        await settled(client, name)

    return [
        ScriptedCall("containers_search", {"query": "fog horn seconds", "containers": ["books"]}),
        ScriptedCall("containers_describe", {"container_id": "none"}),
        ScriptedCall(
            "documents_add",
            {
                "container_id": name,
                "name": name,
                "title": f"Whales by {name}",
                "text": f"The whale of {name} sang for 47 minutes.",
            },
        ),
        ScriptedCall(
            "containers_search",
            {"query": f"whale {name} sang", "containers": [name]},
            before=searchable,
        ),
        ScriptedCall("page_image", {"doc_id": str(doc_id), "page": 4}),
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("agent", CASES)
async def test_the_client_calls_reads_errors_writes_finds_and_looks(
    agent: AgentClient,
    installation: Installation,
    client: AsyncClient,
    whale_book: UUID,
    tmp_path: Path,
) -> None:
    await asyncio.to_thread(agent.install)
    principal = f"agent:{agent.name}"
    await client.create(manifest(agent.name))
    created = await client.create_token(
        principal,
        name=agent.name,
        scopes=[Scope.READ, Scope.WRITE],
        containers=["books", agent.name],
    )
    async with ScriptedModel(script(client, agent.name, whale_book)) as model:
        target = ClientTarget(f"{installation.url}/mcp", created.secret, model.url)
        code, output = await run_client(agent, target, tmp_path)
    keep_record(agent, model)
    assert code == 0, output[-4000:]
    assert model.ended, output[-4000:]
    assert [tool for tool in WRITER_TOOLS if not any(t.endswith(tool) for t in model.tools)] == []

    answer, refusal, added, found, page = model.answers
    assert "| Horn | 30 |" in answer.text
    assert "NOT_FOUND: container" in refusal.text
    assert "containers_list names those that can" in refusal.text
    assert refusal.error is not False
    note = str(document_id(agent.name, note_uri(principal, agent.name)))
    assert note in added.text
    assert note in found.text
    assert "sang for 47 minutes" in found.text
    assert f'"written_by":"{principal}"' in found.text.replace('\\"', '"')
    assert "Page 4 of 5 of document" in page.text
    assert model.images == (1 if agent.image == "picture" else 0)


CONNECTED: Final = {
    "claude-code": "claude-code",
    "codex": "codex",
    "gemini-cli": "gemini",
    "opencode": "opencode",
}
"""Clients here by their names in `latent connect`."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CONNECTED)
async def test_a_client_that_latent_connect_configured_searches_and_writes_without_naming_a_container(
    name: str, installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = next(one for one in clients() if one.name == name)
    await asyncio.to_thread(agent.install)
    container = f"connected-{name}"
    monkeypatch.setenv("HOME", str(tmp_path))
    async with installation.client() as owner:
        await owner.create(manifest(container))
        await owner.add(
            container, text="The fog horn sounds every 30 seconds.", meta={"pinned": True}
        )
        await settled(owner, container)

    async def connect() -> None:
        recall = ("--recall",) if name == "claude-code" else ()
        code, _, err = await installation.cli("connect", CONNECTED[name], "-c", container, *recall)
        assert code == 0, err

    calls = [
        ScriptedCall("containers_search", {"query": "fog horn"}),
        ScriptedCall("documents_add", {"text": "Whales sing.", "name": "whales"}),
    ]
    async with ScriptedModel(calls) as model:
        target = ClientTarget("", "", model.url, connects=True)
        code, output = await run_client(agent, target, tmp_path, connect)
    assert code == 0, output[-4000:]
    assert model.ended, output[-4000:]
    found, added = model.answers
    assert "every 30 seconds" in found.text
    note = str(document_id(container, note_uri(f"agent:{CONNECTED[name]}", "whales")))
    assert note in added.text
    if name == "claude-code":
        assert any("<latent-notes container=" in body for body in model.bodies)


def keep_record(agent: AgentClient, model: ScriptedModel) -> None:
    """What the model was shown, for a person to look at."""
    record: dict[str, Any] = {
        "tools": model.tools,
        "answers": [{"text": a.text, "error": a.error} for a in model.answers],
        "images": model.images,
        "other_paths": model.unknown_paths,
    }
    (CACHE / f"{agent.name}.json").write_text(json.dumps(record, indent=1), "utf-8")
