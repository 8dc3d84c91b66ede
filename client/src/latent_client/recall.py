"""The retrieval functions of the contract, for page memories and tools of agents (CONTRACT "Retrieval")."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from latent_client.client import AsyncClient
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.search import Hit, Reason, SearchRequest

PAGES: Final = 12


class PageFound(BaseModel):
    """A hit in a source, with links to its page images."""

    doc_id: UUID
    source_path: str
    score: float
    page_uris: list[str]
    line_start: int | None = None
    line_end: int | None = None
    why: list[Reason] = []


class Passage(BaseModel):
    """A chunk with its raw text and its place in the source."""

    raw_text: str
    source_path: str
    heading_path: str
    block_type: str
    score: float
    chunk_id: UUID
    doc_id: UUID
    source_type: str
    page: int | None = None
    line_start: int | None = None
    line_end: int | None = None


async def hybrid_search(
    client: AsyncClient,
    query: str,
    k: int = PAGES,
    must_terms: Sequence[str] = (),
    regexes: Sequence[str] = (),
    path_like: str | None = None,
    *,
    containers: Collection[str] = (),
) -> list[PageFound]:
    """The ``k`` best hits by keywords and meaning that contain all ``must_terms`` and match one of ``regexes``.

    Searches all readable containers by default.
    """
    request = SearchRequest(
        containers=await _named(client, containers),
        query=query,
        top_k=k,
        must_terms=list(must_terms),
        regexes=list(regexes),
        dedup=False,
        **({"path_like": path_like} if path_like else {}),
    )
    return [
        PageFound(
            doc_id=hit.doc_id,
            source_path=hit.source_path,
            score=hit.score,
            page_uris=hit.page_uris,
            line_start=hit.place.line_start,
            line_end=hit.place.line_end,
            why=hit.why,
        )
        for hit in (await client.search(request)).hits
    ]


async def retrieve_top_k(
    client: AsyncClient,
    query: str,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - the contract's name
    k: int = 10,
    *,
    containers: Collection[str] = (),
) -> list[Passage]:
    """The ``k`` best chunks that match the filter, with their whole text."""
    request = SearchRequest(
        containers=await _named(client, containers),
        query=query,
        top_k=k,
        filters=dict(filter or {}),
        dedup=False,
    )
    return [_passage(hit) for hit in (await client.search(request)).hits]


async def search_sources(
    client: AsyncClient,
    query: str,
    source_type: Collection[str] = (),
    limit: int = 10,
    *,
    keyword_only: bool = False,
    containers: Collection[str] = (),
) -> list[Hit]:
    """Source code and documents in one list, limited to ``source_type`` if given."""
    request = SearchRequest(
        containers=await _named(client, containers),
        query=query,
        top_k=limit,
        filters={"source_type": {"in": sorted(source_type)}} if source_type else {},
        mode=SearchMode.LEXICAL if keyword_only else SearchMode.HYBRID,
    )
    return (await client.search(request)).hits


async def _named(client: AsyncClient, containers: Collection[str]) -> list[str]:
    return list(containers) or [container.id for container in await client.containers()]


def _passage(hit: Hit) -> Passage:
    return Passage(
        raw_text=hit.text or "",
        source_path=hit.source_path,
        heading_path=hit.place.heading_path,
        block_type=hit.block_type,
        score=hit.score,
        chunk_id=hit.chunk_id,
        doc_id=hit.doc_id,
        source_type=hit.source_type,
        page=hit.provenance.page,
        line_start=hit.place.line_start,
        line_end=hit.place.line_end,
    )
