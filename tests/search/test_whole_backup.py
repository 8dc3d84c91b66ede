"""A whole installation in a folder, and out of it into empty stores: by command line, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.manifest.model import SearchMode
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import SearchRequest
from tests.conftest import running
from tests.search.test_transfers import WORDS, fill
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.slow,
]

MODES: Final = (SearchMode.HYBRID, SearchMode.SEMANTIC, SearchMode.LEXICAL)
QUERIES: Final = 1000


async def answers(client: AsyncClient, names: list[str]) -> list[Any]:
    """Ids and scores of many different queries, in every mode, over one container or both."""
    found: list[Any] = []
    for n in range(QUERIES):
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


async def test_empty_stores_get_back_all_containers_tokens_and_the_audit_log(
    client: AsyncClient,
    installation: Installation,
    install_root: Path,
    embedding_server: EmbeddingServer,
    tmp_path: Path,
) -> None:
    names = ["coast", "harbour"]
    for name in names:
        await fill(client, name, tmp_path / name)
    (installation.manifests / "coast.eval.json").write_text('{"queries": []}')
    reader = await client.create_token("agent:guest", scopes=[Scope.READ], containers=["coast"])
    await client.set_state("harbour", ContainerState.READONLY)
    before = await answers(client, names)
    assert sum(bool(hits) for hits in before) > QUERIES // 2
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
        running(install_root, "restored", embedding_server.base_url) as other,
        other.client() as restored,
    ):
        code, out, err = await other.cli("restore", "all", str(folder), "--json")
        assert code == 0, err
        assert orjson.loads(out)["containers"] == names
        assert await answers(restored, names) == before
        assert {c.id: c.state for c in await restored.containers()} == {
            "coast": ContainerState.ACTIVE,
            "harbour": ContainerState.READONLY,
        }
        again = [(a.at, a.action, a.object) async for a in restored.audit()]
        assert [line for line in again if line in set(trail)] == trail
        async with AsyncClient(other.url, reader.secret) as guest:
            assert [c.id for c in await guest.containers()] == ["coast"], "its token is valid again"
        code, out, err = await other.cli("restore", "all", str(folder), "--skip-existing", "--json")
        assert code == 0, err
        twice = orjson.loads(out)
        assert (twice["skipped"], twice["tokens"], twice["audit"]) == (names, 0, 0)
        assert (await restored.doctor()).clean
