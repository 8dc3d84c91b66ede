"""Agents and SDKs that others wrote against our gateway: each lists, calls, reads an error, writes, finds and looks.

A scripted model asks for the calls and records what it was shown. ``make clients`` runs all of them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
import pytest_asyncio

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
from tests.support.harness.installation import Installation
from tests.support.servers.model_server import ScriptedCall, ScriptedModel

pytestmark = pytest.mark.asyncio(loop_scope="module")

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


def keep_record(agent: AgentClient, model: ScriptedModel) -> None:
    """What the model was shown, for a person to look at."""
    record: dict[str, Any] = {
        "tools": model.tools,
        "answers": [{"text": a.text, "error": a.error} for a in model.answers],
        "images": model.images,
        "other_paths": model.unknown_paths,
    }
    (CACHE / f"{agent.name}.json").write_text(json.dumps(record, indent=1), "utf-8")
