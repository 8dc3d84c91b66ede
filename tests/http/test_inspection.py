"""Chunks looked at, and near-duplicates, on a running installation."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound
from latent_core.domain.manifest.model import Dedup, SearchMode
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import add, ingest, manifest, settled
from tests.support.harness.installation import Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

GUIDE = """---
author: Ada
tags: [light, sea]
---
# Lamp

The lamp burns colza oil.

## Wick

Trim the wick at DUSK.

| Signal | Seconds |
|---|---|
| Horn | 30 |
"""
TIDES = "The tide tables are printed every spring by the harbour office and hung beside the door."


async def test_chunks_are_found_by_everything_that_is_known_of_them(client: AsyncClient) -> None:
    await client.create(manifest("guides"))
    await ingest(client, "guides", "guide.md", GUIDE.encode(), meta={"year": 1851})
    await ingest(client, "guides", "tides.txt", TIDES.encode(), source_uri="file:///sea/tides.txt")
    await settled(client, "guides")

    async def uris(**selection: object) -> set[str]:
        return {c.source_uri async for c in client.chunks("guides", **selection)}  # type: ignore[arg-type]  # the test's own table

    guide, tides = "file:///guide.md", "file:///sea/tides.txt"
    assert await uris() == {guide, tides}
    assert await uris(source_uri="file:///sea/") == {tides}
    assert await uris(source_type="markdown") == {guide}
    assert await uris(contains="at dusk") == {guide}
    assert await uris(contains="100%_") == set()
    assert await uris(page=1) == {guide, tides}
    assert await uris(page=2) == set()
    assert await uris(meta={"author": "Ada"}) == {guide}
    assert await uris(meta={"year": "1851", "tags": "sea"}) == {guide}
    assert await uris(meta={"year": "1852"}) == set()
    assert await uris(duplicates=True) == set()


async def test_chunks_are_found_by_block_and_section(client: AsyncClient) -> None:
    """In the list and in searches alike."""
    (table,) = [c async for c in client.chunks("guides", block_type="table")]
    assert "Horn" in table.text
    assert table.parent_section == "Lamp"
    assert table.place.heading_path == "Lamp > Wick"
    (found,) = [c async for c in client.chunks("guides", table_id=table.table_id)]
    assert found == table
    selections: list[dict[str, Any]] = [
        {"block_type": "table"},
        {"heading_path": "Lamp > Wick"},
        {"parent_section": "Lamp"},
        {"table_id": table.table_id},
        {"block_type": "table", "heading_path": "Lamp"},
        {"heading_path": "Wick"},
        {"table_id": "none"},
    ]
    for selection in selections:
        listed = {c.chunk_id async for c in client.chunks("guides", **selection)}
        answer = await client.search(
            SearchRequest(
                containers=["guides"], query="horn", top_k=100, dedup=False, filters=selection
            )
        )
        assert {hit.chunk_id for hit in answer.hits} == listed, selection
        assert (table.chunk_id in listed) is (selection in selections[:4]), selection
    below = {"heading_path": {"prefix": "Lamp"}}
    request = SearchRequest(
        containers=["guides"], query="horn", top_k=100, dedup=False, filters=below
    )
    assert table.chunk_id in {hit.chunk_id for hit in (await client.search(request)).hits}


async def test_a_chunk_is_shown_whole_with_its_lineage(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    (table,) = [c async for c in client.chunks("guides", contains="Horn")]
    document = await client.document("guides", table.doc_id)
    assert table.file_hash == document.sha256
    assert "| Horn | 30 |" in table.text
    assert table.place.page == 1
    assert table.provenance["embedder"] == "openai/test"
    assert await client.chunk("guides", table.chunk_id) == table
    with pytest.raises(NotFound):
        await client.chunk("guides", table.doc_id)
    found = await http.get(
        "/v1/containers/guides/chunks", params={"meta": '{"tags": ["sea"]}', "limit": 1}
    )
    assert found.json()["chunks"][0]["source_uri"] == "file:///guide.md"
    for wrong in ({"meta": "[1]"}, {"meta": "{"}, {"source_type": "poem"}, {"page": "0"}):
        refused = await http.get("/v1/containers/guides/chunks", params=wrong)
        assert refused.status_code == 400, wrong


async def test_pages_of_a_filtered_list_follow_each_other(http: httpx.AsyncClient) -> None:
    seen: list[int] = []
    cursor: str | None = None
    while True:
        params = {"limit": "1", "contains": "e"} | ({"cursor": cursor} if cursor else {})
        answer = (await http.get("/v1/containers/guides/chunks", params=params)).json()
        seen += [chunk["chunk_no"] for chunk in answer["chunks"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    everything = (await http.get("/v1/containers/guides/chunks", params={"contains": "e"})).json()
    assert seen == [chunk["chunk_no"] for chunk in everything["chunks"]]
    assert len(seen) > 1


async def test_sizes_are_listed_by_source_type(client: AsyncClient) -> None:
    sizes = await client.chunk_sizes("guides")
    chunks = [c async for c in client.chunks("guides")]
    assert sizes.total is not None
    assert sizes.total.chunks == len(chunks)
    assert set(sizes.by_source_type) == {"markdown", "text"}
    assert sizes.by_source_type["text"].characters.max == len(TIDES)
    assert sizes.total.tokens.max == max(c.token_count for c in chunks)
    assert sum(c.chunks for c in sizes.total.tokens.histogram) == len(chunks)
    only = await client.chunk_sizes("guides", doc_id=chunks[-1].doc_id)
    assert list(only.by_source_type) == ["text"]


async def test_inspect_lists_shows_and_measures(
    installation: Installation, client: AsyncClient
) -> None:
    code, out, _ = await installation.cli("inspect", "-c", "guides", "--type", "text")
    assert code == 0
    assert "sea/tides.txt" in out
    (tides,) = [c async for c in client.chunks("guides", source_type="text")]
    code, out, _ = await installation.cli("inspect", "-c", "guides", "--chunk", str(tides.chunk_id))
    assert code == 0
    assert TIDES in out
    code, out, _ = await installation.cli("inspect", "-c", "guides", "--sizes")
    assert (code, "characters per chunk" in out) == (0, True)


async def test_a_near_duplicate_is_listed_under_the_better_match_until_one_is_deleted(
    client: AsyncClient,
) -> None:
    await client.create(manifest("copies", dedup=Dedup(semantic_threshold=0.9)))
    first = await add(client, "copies", "tides.txt", TIDES.encode())
    await client.wait([first.job_id], timeout_seconds=60)
    await ingest(client, "copies", "copy.txt", (TIDES + " Really.").encode())
    await ingest(client, "copies", "other.txt", b"Herring gulls nest on the roof of the tide mill.")
    await settled(client, "copies")
    request = SearchRequest(containers=["copies"], query="tide tables really", top_k=5)

    answer = await client.search(request)
    assert [hit.source_uri for hit in answer.hits] == ["file:///copy.txt", "file:///other.txt"]
    (duplicate,) = answer.hits[0].duplicates
    assert duplicate.source_uri == "file:///tides.txt"
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    apart = await client.search(request.model_copy(update={"dedup": False}))
    assert len(apart.hits) == 3
    (copy,) = [c async for c in client.chunks("copies", duplicates=True)]
    assert copy.chunk_id == answer.hits[0].chunk_id
    assert copy.duplicate_of == duplicate.chunk_id
    sizes = await client.chunk_sizes("copies")
    assert sizes.total is not None
    assert sizes.total.duplicates == 1

    await client.delete_document("copies", first.doc_id)
    answer = await client.search(request)
    assert {hit.source_uri for hit in answer.hits} == {"file:///copy.txt", "file:///other.txt"}
    await settled(client, "copies")
    assert [c async for c in client.chunks("copies", duplicates=True)] == []


async def test_in_lexical_mode_texts_of_similar_meaning_are_not_merged(
    client: AsyncClient,
) -> None:
    await client.create(manifest("letters", dedup=Dedup(semantic_threshold=0.9)))
    await ingest(client, "letters", "tides.txt", TIDES.encode())
    await ingest(client, "letters", "copy.txt", (TIDES + " Really.").encode())
    await ingest(client, "letters", "same.txt", TIDES.encode())
    await settled(client, "letters")
    request = SearchRequest(containers=["letters"], query="tide tables", top_k=5)
    (together,) = (await client.search(request)).hits
    assert len(together.duplicates) == 2

    words = await client.search(request.model_copy(update={"mode": SearchMode.LEXICAL}))
    uris = [{hit.source_uri, *(d.source_uri for d in hit.duplicates)} for hit in words.hits]
    assert sorted(map(sorted, uris)) == [
        ["file:///copy.txt"],
        ["file:///same.txt", "file:///tides.txt"],
    ]


async def test_another_threshold_is_applied_to_what_is_there(client: AsyncClient) -> None:
    await client.create(manifest("exact", dedup=Dedup(semantic_threshold=1.0)))
    await ingest(client, "exact", "tides.txt", TIDES.encode())
    await ingest(client, "exact", "copy.txt", (TIDES + " Really.").encode())
    await settled(client, "exact")
    assert [c async for c in client.chunks("exact", duplicates=True)] == []
    described = await client.describe("exact")
    lenient = manifest("exact", dedup=Dedup(semantic_threshold=0.9))
    await client.update(lenient, if_match=described.etag)

    async def judged() -> bool:
        return len([c async for c in client.chunks("exact", duplicates=True)]) == 1

    await eventually(judged, what="the verdicts of the new threshold")


async def test_a_corpus_counts_its_bytes_once(client: AsyncClient) -> None:
    await client.create(manifest("corpora"))
    lines = b'{"_id": "a", "text": "one lamp"}\n{"_id": "b", "text": "two lamps"}'
    await ingest(client, "corpora", "c.jsonl", lines)
    assert (await client.describe("corpora")).sizes.bytes == len(lines)
