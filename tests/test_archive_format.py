"""An archive that an earlier commit wrote in format 1 still imports, with the same ids and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.search import SearchRequest, SearchResponse
from tests.support.harness.installation import Installation, eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.slow,
]

FOLDER: Final = Path(__file__).with_name("data") / "archive_format_1"
ARCHIVE: Final = FOLDER / "harbour.latent.tar.zst"
EXPECTED: Final[dict[str, Any]] = orjson.loads((FOLDER / "expected.json").read_bytes())
CONTAINER: Final[str] = EXPECTED["container_id"]


async def stored_ids(client: AsyncClient) -> dict[str, Any]:
    """Ids of documents and their chunks, by source."""
    chunks: dict[str, list[str]] = {}
    async for chunk in client.chunks(CONTAINER):
        chunks.setdefault(chunk.source_uri, []).append(str(chunk.chunk_id))
    return {
        d.source_uri: {"doc_id": str(d.doc_id), "chunk_ids": chunks.get(d.source_uri, [])}
        async for d in client.documents(CONTAINER)
    }


async def hits(client: AsyncClient, query: str, mode: str) -> list[dict[str, Any]]:
    request = SearchRequest(
        containers=[CONTAINER], query=query, top_k=5, mode=SearchMode(mode), dedup=False
    )
    answers: list[SearchResponse] = []

    async def complete() -> bool:
        """Not while the embedder's model is still being loaded: then a channel misses its deadline."""
        answers.append(await client.search(request))
        return not answers[-1].partial

    await eventually(complete, seconds=60, what=f"a complete answer to '{query}'")
    return [
        {"chunk_id": str(hit.chunk_id), "base_score": round(hit.base_score, 6)}
        for hit in answers[-1].hits
    ]


async def test_an_archive_of_format_1_gives_the_ids_and_scores_it_was_exported_with(
    client: AsyncClient, installation: Installation
) -> None:
    code, out, err = await installation.cli("import", str(ARCHIVE), "--json")
    assert code == 0, err
    job = orjson.loads(out)["job"]
    assert (job["warnings"], job["result"]["embedded"], job["result"]["lacking_blobs"]) == (
        [],
        0,
        0,
    )

    assert await stored_ids(client) == EXPECTED["documents"]
    assert (
        len([c async for c in client.chunks(CONTAINER, duplicates=True)]) == EXPECTED["duplicates"]
    )
    for search in EXPECTED["searches"]:
        found = await hits(client, search["query"], search["mode"])
        assert found == search["hits"], search["query"]
    assert (await client.golden_list(CONTAINER)).queries
    report = await client.doctor(CONTAINER, deep=True)
    assert report.clean, report
