"""Searches for what is like a document or a chunk, over HTTP."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.token import Scope
from latent_core.wire.search import LikeReference, SearchRequest, SearchResponse
from tests.http.test_http_surface import ingest, manifest, settled
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHIP: Final = (
    "The schooner Aurora brought colza oil and whale bone to Bergen through the winter storms."
)
VOYAGE: Final = (
    "Whale bone and colza oil came to Bergen, and winter storms held every schooner in port."
)
GARDEN: Final = "Lilies and herbs grow behind the keeper's cottage, where bees hum all summer."
BEES: Final = "Bees hum among lilies, and the beekeeper sells honey to Bergen."
TEXTS: Final = {"ship": SHIP, "copy": SHIP, "voyage": VOYAGE, "garden": GARDEN, "bees": BEES}
LETTER: Final = "openai/other@48"
"""Another embedder, of another width."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ids(installation: Installation) -> dict[str, UUID]:
    """Documents by name; ``archive`` has another embedder, ``secret`` other readers."""
    async with installation.client() as client:
        await client.create(manifest("ships"))
        await client.create(manifest("fleet"))
        await client.create(manifest("books"))
        await client.create(manifest("archive", embedder=LETTER, dims=48))
        await client.create(manifest("secret"))
        for name, text in TEXTS.items():
            await ingest(client, "ships", f"{name}.txt", text.encode())
        parts = "\n\n".join(f"# Part {n}\n\n{text}" for n, text in enumerate((GARDEN, SHIP)))
        await ingest(client, "books", "parts.md", parts.encode())
        await ingest(client, "books", "leaf.txt", f"# Part 0\n\n{GARDEN}".encode())
        for container in ("fleet", "archive"):
            await ingest(client, container, "again.txt", SHIP.encode())
            await ingest(client, container, f"{container}.txt", VOYAGE.upper().encode())
            await ingest(client, container, "garden.txt", GARDEN.encode())
        await ingest(client, "secret", "plans.txt", b"The plans of the lighthouse.")
        for container in ("ships", "fleet", "books", "archive", "secret"):
            await settled(client, container)
        found = [(container, d) for container in ("ships", "fleet", "books", "archive", "secret") async for d in client.documents(container)]  # fmt: skip
    return {
        f"{container}/{str(document.title).partition('.')[0]}": document.doc_id
        for container, document in found
    }


async def like(
    client: AsyncClient, doc_id: UUID, containers: list[str] | None = None, **more: Any
) -> SearchResponse:
    request = {"containers": containers or ["ships"], "top_k": 10, **more}
    for _ in range(20):
        answer = await client.search(SearchRequest(like=LikeReference(doc_id=doc_id), **request))
        if not answer.partial:
            return answer
    raise AssertionError(f"no whole answer: {answer.issues}")


def paths(answer: SearchResponse) -> list[str]:
    return [f"{hit.container_id}/{hit.source_path}" for hit in answer.hits]


@pytest.mark.parametrize("mode", ["lexical", "semantic", "hybrid"])
async def test_what_is_like_a_document_comes_first_without_its_copies_or_an_embedding(
    client: AsyncClient, ids: dict[str, UUID], embedding_server: EmbeddingServer, mode: str
) -> None:
    requests = embedding_server.stats.requests
    answer = await like(client, ids["ships/ship"], ["ships", "fleet"], mode=mode)
    assert set(paths(answer)[:2]) == {"ships/voyage.txt", "fleet/fleet.txt"}
    assert not {"ships/ship.txt", "ships/copy.txt", "fleet/again.txt"} & set(paths(answer))
    assert all(hit.text is not None and SHIP not in hit.text for hit in answer.hits)
    assert embedding_server.stats.requests == requests


async def test_of_a_document_that_repeats_a_part_the_other_parts_are_found(
    client: AsyncClient, ids: dict[str, UUID]
) -> None:
    answer = await like(client, ids["books/leaf"], ["books"], dedup=False, mode="semantic")
    (other,) = answer.hits
    assert other.source_path == "parts.md"
    assert "Aurora" in str(other.text)


async def test_a_chunk_is_compared_alone_and_its_whole_document_is_no_result(
    client: AsyncClient, ids: dict[str, UUID]
) -> None:
    answer = await client.search(
        SearchRequest(containers=["books"], query="Aurora schooner", top_k=9, dedup=False)
    )
    chunk = next(hit for hit in answer.hits if "Aurora" in str(hit.text))
    request = SearchRequest(
        containers=["ships", "books"], like=LikeReference(chunk_id=chunk.chunk_id), top_k=9
    )
    found = paths(await client.search(request))
    assert set(found[:2]) == {"ships/ship.txt", "ships/voyage.txt"}
    assert "books/parts.md" not in found


@pytest.mark.parametrize("mode", ["lexical", "semantic", "hybrid"])
async def test_a_query_counts_as_well_as_the_document(
    client: AsyncClient, ids: dict[str, UUID], mode: str
) -> None:
    alone = paths(await like(client, ids["ships/voyage"], mode=mode))
    with_query = paths(
        await like(client, ids["ships/voyage"], mode=mode, query="lilies herbs cottage")
    )
    assert alone[0].endswith(("ship.txt", "copy.txt"))
    assert with_query.index("ships/garden.txt") < (
        alone.index("ships/garden.txt") if "ships/garden.txt" in alone else len(with_query)
    )


async def test_a_container_of_another_embedder_is_searched_by_the_text(
    client: AsyncClient, ids: dict[str, UUID], embedding_server: EmbeddingServer
) -> None:
    requests = embedding_server.stats.requests
    answer = await like(client, ids["ships/ship"], ["archive"], mode="semantic")
    assert paths(answer) == ["archive/archive.txt", "archive/garden.txt"]
    assert embedding_server.stats.requests == requests + 1


async def test_filters_facets_pages_and_the_plan_hold_for_similar_texts(
    client: AsyncClient, ids: dict[str, UUID]
) -> None:
    answer = await like(
        client,
        ids["ships/ship"],
        filters={"path": "*.txt"},
        facets=["source_type"],
        top_k=1,
        mode="semantic",
        explain=True,
    )
    assert answer.facets["source_type"].documents == 3
    assert paths(answer) == ["ships/voyage.txt"]
    assert answer.diagnostics is not None
    assert "schooner" in answer.diagnostics.plan[0]
    again = await like(
        client,
        ids["ships/ship"],
        filters={"path": "*.txt"},
        top_k=1,
        mode="semantic",
        cursor=answer.next_cursor,
    )
    assert paths(again)[0] in ("ships/garden.txt", "ships/bees.txt")


async def test_a_source_that_may_not_be_read_is_answered_as_one_that_does_not_exist(
    client: AsyncClient, http: httpx.AsyncClient, ids: dict[str, UUID]
) -> None:
    token = await client.create_token("agent:one", scopes=[Scope.READ], containers=["ships"])
    hidden = await client.search(SearchRequest(containers=["secret"], query="plans", top_k=1))
    headers = {"Authorization": f"Bearer {token.secret}"}

    async def refused(reference: dict[str, str]) -> tuple[int, Any]:
        body = {"containers": ["ships"], "like": reference, "top_k": 3}
        answer = await http.post("/v1/search", json=body, headers=headers)
        (issue,) = answer.json()["issues"]
        (named,) = reference.values()
        return answer.status_code, str(issue).replace(named, "ID")

    for key, known in (("doc_id", ids["secret/plans"]), ("chunk_id", hidden.hits[0].chunk_id)):
        unreadable = await refused({key: str(known)})
        assert unreadable == await refused({key: str(uuid4())})
        assert unreadable[0] == 404
    body = {"containers": ["ships"], "like": {"doc_id": str(ids["ships/ship"])}, "top_k": 3}
    answer = await http.post("/v1/search", json=body, headers=headers)
    assert answer.json()["hits"]


async def test_a_reference_names_one_thing(http: httpx.AsyncClient, ids: dict[str, UUID]) -> None:
    one = str(ids["ships/ship"])
    for reference in ({}, {"doc_id": one, "chunk_id": one}, {"doc_id": "x"}, {"id": one}):
        body = {"containers": ["ships"], "like": reference, "top_k": 3}
        answer = await http.post("/v1/search", json=body)
        assert answer.status_code == 400
        assert answer.json()["issues"][0]["code"] == "INVALID"
