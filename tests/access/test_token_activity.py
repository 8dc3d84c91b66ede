"""What a token did, as its owner sees it: calls per tool and route, and what it wrote, superseded and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import httpx
import orjson
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden, NotFound
from latent_core.domain.token import Api, ChangedState, ChangeKind, Scope, TokenChange
from tests.http.test_http_surface import manifest, settled
from tests.mcp.test_mcp import answered, connected
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

SHELF = "activity-shelf"
OTHER = "activity-other"


@dataclass
class Agent:
    """A token that searched, failed, wrote, replaced, superseded and deleted."""

    token_id: int
    secret: str
    kept: UUID
    superseded: UUID
    deleted: UUID


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(installation: Installation) -> Agent:
    async with installation.client() as owner:
        await owner.create(manifest(SHELF))
        await owner.create(manifest(OTHER))
        scopes = (Scope.READ, Scope.WRITE, Scope.DELETE)
        made = await owner.create_token(
            "agent:busy", name="activity", scopes=scopes, containers=[SHELF, OTHER]
        )
    async with connected(installation, "legacy", made.secret) as mcp:
        first = await answered(mcp, "documents_add", container_id=SHELF, text="Oil.", name="lamp")
        old = await answered(mcp, "documents_add", container_id=SHELF, text="Old oil.")
        bad = await answered(mcp, "documents_add", container_id=SHELF, text="Bad oil.")
        await answered(mcp, "documents_add", container_id=OTHER, text="Elsewhere.")
    async with installation.client(made.secret) as client:
        await settled(client, SHELF)
    async with connected(installation, "legacy", made.secret) as mcp:
        await answered(mcp, "documents_add", container_id=SHELF, text="New oil.", name="lamp")
        await answered(
            mcp, "documents_add", container_id=SHELF, text="Newer.", supersedes=old["doc_id"]
        )
        await answered(mcp, "documents_delete", doc_id=bad["doc_id"])
        failed = await mcp.call_tool("containers_describe", {"container_id": "no-such"})
        assert failed.is_error
    async with installation.client(made.secret) as client:
        await settled(client, SHELF)
        with pytest.raises(NotFound):
            await client.document(SHELF, UUID(int=1))
    ids = [UUID(one["doc_id"]) for one in (first, old, bad)]
    return Agent(made.token.id, made.secret, *ids)


async def changes(client: AsyncClient, agent: Agent, kind: ChangeKind) -> list[TokenChange]:
    return [one async for one in client.token_changes(agent.token_id, kind)]


async def test_calls_are_counted_by_tool_and_by_route_with_their_failures(
    installation: Installation, agent: Agent
) -> None:
    async with installation.client() as owner:
        calls = await owner.token_calls(agent.token_id)
    counted = {(one.api, one.operation): (one.calls, one.failures) for one in calls}
    assert counted[Api.MCP, "documents_add"] == (6, 0)
    assert counted[Api.MCP, "documents_delete"] == (1, 0)
    assert counted[Api.MCP, "containers_describe"] == (1, 1)
    route = "GET /v1/containers/{container_id}/documents/{doc_id}"
    assert counted[Api.HTTP, route] == (1, 1)
    assert not [operation for _, operation in counted if operation.endswith("/mcp")]


async def test_what_it_wrote_superseded_and_deleted_is_listed_as_it_is_now(
    installation: Installation, agent: Agent
) -> None:
    async with installation.client() as owner:
        written = await changes(owner, agent, ChangeKind.WRITTEN)
        assert len(written) == 6
        assert [one.at for one in written] == sorted((one.at for one in written), reverse=True)
        states = {one.doc_id: one.state for one in written}
        assert states[agent.kept] is ChangedState.LIVE
        assert states[agent.superseded] is ChangedState.SUPERSEDED
        superseded = await changes(owner, agent, ChangeKind.SUPERSEDED)
        assert superseded[0].doc_id == agent.superseded
        assert superseded[0].superseded_by == written[0].doc_id
        assert superseded[1].source_uri == "note:///agent:busy/lamp?version=1"
        assert superseded[1].superseded_by == agent.kept
        (deleted,) = await changes(owner, agent, ChangeKind.DELETED)
        assert (deleted.doc_id, deleted.state) == (agent.deleted, ChangedState.DELETED)
        assert deleted.restorable_until is not None
    headers = {"Authorization": f"Bearer {installation.token}"}
    address = f"{installation.url}/v1/tokens/{agent.token_id}/changes"
    async with httpx.AsyncClient(headers=headers, params={"limit": 4}, timeout=30) as http:
        first = (await http.get(address)).json()
        rest = (await http.get(address, params={"cursor": first["next_cursor"]})).json()
    assert [one["id"] for one in first["changes"] + rest["changes"]] == [one.id for one in written]
    assert (len(first["changes"]), rest["next_cursor"]) == (4, None)


async def test_the_command_line_shows_it_and_a_deleted_document_comes_back(
    installation: Installation, agent: Agent
) -> None:
    number = str(agent.token_id)
    code, out, err = await installation.cli("token", "show", number)
    assert (code, err) == (0, "")
    assert "agent:busy" in out
    assert "documents_add" in out
    code, out, _ = await installation.cli("token", "changes", number, "--kind", "deleted", "--json")
    assert code == 0
    (deleted,) = orjson.loads(out)["changes"]
    code, _, err = await installation.cli("documents", "restore", "-c", SHELF, deleted["doc_id"])
    assert code == 0, err
    async with installation.client() as owner:
        await settled(owner, SHELF)
        (change,) = await changes(owner, agent, ChangeKind.DELETED)
        assert (change.state, change.restorable_until) == (ChangedState.LIVE, None)
        document = await owner.document(SHELF, agent.deleted)
    assert document.written_by == "agent:busy"


async def test_a_token_sees_itself_and_no_other_and_only_containers_it_may_read(
    installation: Installation, agent: Agent
) -> None:
    async with installation.client() as owner:
        small = await owner.create_token("agent:busy", name="small", containers=[SHELF])
    async with installation.client(agent.secret) as itself:
        assert (await itself.token(agent.token_id)).principal == "agent:busy"
        assert await itself.token_calls(agent.token_id)
        containers = {c.container_id for c in await changes(itself, agent, ChangeKind.WRITTEN)}
        assert containers == {SHELF, OTHER}
    async with installation.client(small.secret) as other:
        assert (await other.token(small.token.id)).name == "small"
        for call in (other.token(agent.token_id), other.token_calls(agent.token_id)):
            with pytest.raises(Forbidden):
                await call
        with pytest.raises(Forbidden):
            await changes(other, agent, ChangeKind.WRITTEN)
    async with installation.client() as owner:
        await owner.delete(OTHER)
        containers = {c.container_id for c in await changes(owner, agent, ChangeKind.WRITTEN)}
        assert containers == {SHELF}
