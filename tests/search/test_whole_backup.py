"""A whole installation in a folder, and out of it into empty stores: by command line, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.golden import GoldenQuery, GoldenSet, Thresholds
from latent_core.domain.manifest.model import Acl, Manifest, Roles, SearchMode
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import SearchRequest
from tests.conftest import running
from tests.search.test_transfers import WORDS, fill, quiet
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

MODES: Final = (SearchMode.HYBRID, SearchMode.SEMANTIC, SearchMode.LEXICAL)
GOLDEN: Final = GoldenSet(
    queries=[GoldenQuery(query="lamp", expect=["lamp"])],
    thresholds=Thresholds.model_validate({"ndcg@10": 0.5}),
)


async def answers(client: AsyncClient, names: list[str], queries: int) -> list[Any]:
    """Ids and scores of many different queries, in every mode, over one container or both."""
    found: list[Any] = []
    for n in range(queries):
        words = WORDS[n % 10], WORDS[(n // 10) % 10], str(n // 17)
        request = SearchRequest(
            containers=[names, names[:1], names[1:]][n // 3 % 3],
            query=" ".join(words),
            top_k=10,
            mode=MODES[n % 3],
        )
        answer = await client.search(request)
        assert not answer.partial
        found.append([(h.chunk_id, h.doc_id, h.score, h.relevance) for h in answer.hits])
    return found


async def described(client: AsyncClient, names: list[str]) -> list[Any]:
    """Manifests with their roles, and the ids of synced folders."""
    return [
        (
            (await client.describe(name)).manifest,
            [(one.source_id, one.root, one.folder) for one in await client.sources(name)],
        )
        for name in names
    ]


@pytest.mark.parametrize("queries", [60, pytest.param(1000, marks=pytest.mark.slow)])
async def test_empty_stores_get_back_all_containers_tokens_saved_searches_and_the_audit_log(
    queries: int, install_root: Path, embedding_server: EmbeddingServer, tmp_path: Path
) -> None:
    async with (
        running(install_root, f"whole-{queries}", embedding_server.base_url) as one,
        one.client() as client,
    ):
        await back_up_and_restore(client, one, queries, install_root, embedding_server, tmp_path)


async def back_up_and_restore(
    client: AsyncClient,
    installation: Installation,
    queries: int,
    install_root: Path,
    embedding_server: EmbeddingServer,
    tmp_path: Path,
) -> None:
    names = ["coast", "harbour"]
    for name in names:
        await fill(client, name, tmp_path / name)
    coast = await client.describe("coast")
    shared = Manifest.model_validate(coast.manifest).model_copy(
        update={"acl": Acl(roles=Roles(reader=["agent:guide"]))}
    )
    await client.update(shared, if_match=coast.etag)
    await client.replace_golden("coast", GOLDEN, if_match="0")
    log = tmp_path / "log"
    log.mkdir()
    (log / "day.md").write_text("The keeper writes the log.", encoding="utf-8")
    code, _, err = await installation.cli("ingest", str(log), "-c", "coast")
    assert code == 0, err
    await quiet(client, "coast")
    reader = await client.create_token("agent:guest", scopes=[Scope.READ], containers=["coast"])
    await client.set_state("harbour", ContainerState.READONLY)
    await client.save_search("Light", SearchRequest(query="lamp", top_k=5, containers=names))
    async with AsyncClient(installation.url, reader.secret) as guest:
        await guest.save_search("Mine", SearchRequest(query="sea", top_k=3, containers=["coast"]))
    searches = await client.saved_searches()
    before = await answers(client, names, queries)
    assert sum(bool(hits) for hits in before) > queries // 2
    known = await described(client, names)
    assert len(known[0][1]) == 1
    trail = [(a.at, a.action, a.object) async for a in client.audit()]
    folder = tmp_path / "backup"
    code, out, err = await installation.cli("backup", "all", "--to", str(folder), "--json")
    assert code == 0, err
    assert orjson.loads(out)["containers"] == names
    assert {file.stat().st_mode & 0o077 for file in folder.rglob("*") if file.is_file()} == {0}
    code, _, err = await installation.cli("restore", "all", str(folder))
    assert code != 0
    assert "coast, harbour exist here" in err

    async with (
        running(install_root, f"restored-{queries}", embedding_server.base_url) as other,
        other.client() as restored,
    ):
        code, out, err = await other.cli("restore", "all", str(folder), "--json")
        assert code == 0, err
        assert orjson.loads(out)["containers"] == names
        assert orjson.loads(out)["sources"] == 1
        assert await answers(restored, names, queries) == before
        assert await described(restored, names) == known
        golden = await restored.golden_list("coast")
        assert [(one.id, one.query, one.expect) for one in golden.queries] == [
            ("q1", "lamp", ["lamp"])
        ]
        assert golden.thresholds == GOLDEN.thresholds
        assert {c.id: c.state for c in await restored.containers()} == {
            "coast": ContainerState.ACTIVE,
            "harbour": ContainerState.READONLY,
        }
        again = [(a.at, a.action, a.object) async for a in restored.audit()]
        assert [line for line in again if line in set(trail)] == trail
        async with AsyncClient(other.url, reader.secret) as guest:
            assert [c.id for c in await guest.containers()] == ["coast"], "its token is valid again"
            (mine,) = await guest.saved_searches()
            assert (mine.name, mine.request.query) == ("Mine", "sea")
        (light,) = await restored.saved_searches()
        assert light.model_copy(update={"id": searches[0].id}) == searches[0]
        await restored.save_search("Light", SearchRequest(query="changed", top_k=5))
        code, out, err = await other.cli("restore", "all", str(folder), "--skip-existing", "--json")
        assert code == 0, err
        twice = orjson.loads(out)
        assert (twice["skipped"], twice["tokens"], twice["audit"]) == (names, 0, 0)
        assert (twice["sources"], twice["saved_searches"]) == (0, 0)
        assert [one.request.query for one in await restored.saved_searches()] == ["changed"]
        code, _, err = await other.cli("ingest", str(log), "-c", "coast")
        assert code == 0, f"the folder is known, so it needs no --take-over: {err}"
        assert await described(restored, names) == known
        assert (await restored.doctor()).clean
