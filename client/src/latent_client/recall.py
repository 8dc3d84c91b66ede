"""The retrieval functions of the contract, for page memories and tools of agents (CONTRACT "Retrieval")."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel

from latent_client.client import AsyncClient
from latent_core.domain.manifest.model import Fusion, FusionMethod, SearchMode
from latent_core.wire.search import MAX_TOP_K, Hit, Reason, SearchRequest

PAGES: Final = 12
WEIGHTED: Final = Fusion(
    method=FusionMethod.WEIGHTED, weights={"vector": 0.6, "bm25": 0.4, "exact": 0.0}
)
"""Of ``hybrid_search``: exact terms decide what may be found, not its order."""
HITS_PER_RESULT: Final = 4
MAX_REQUESTS: Final = 10
"""Each reads the next page of hits, until there are enough results."""


class PageFound(BaseModel):
    """A document or page, with the place of its best hit and links to the page images."""

    doc_id: UUID
    source_path: str
    score: float
    page: int | None = None
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
    per: Literal["document", "page"] = "document",
) -> list[PageFound]:
    """The ``k`` best documents, or pages, by 0.6 meaning and 0.4 keywords; ties by RRF.

    Every result contains all ``must_terms``, matches one of ``regexes``, and its path matches ``path_like``. Each
    document is one result, or with ``per="page"`` each of its pages. Searches all readable containers by default.
    """
    request = SearchRequest(
        containers=list(containers) or None,
        query=query,
        top_k=min(HITS_PER_RESULT * k, MAX_TOP_K),
        mode=SearchMode.HYBRID,
        fusion=WEIGHTED if query.strip() else Fusion(),
        must_terms=list(must_terms),
        regexes=list(regexes),
        path_like=path_like or None,
        dedup=False,
        detail="brief",
    )
    best: dict[tuple[UUID, int | None], Hit] = {}
    for _ in range(MAX_REQUESTS):
        answer = await client.search(request)
        for hit in answer.hits:
            key = (hit.doc_id, hit.provenance.page if per == "page" else None)
            if key not in best or hit.score > best[key].score:
                best[key] = hit
        if len(best) >= k or answer.next_cursor is None:
            break
        request = request.model_copy(update={"cursor": answer.next_cursor})
    ranked = sorted(best.values(), key=lambda hit: -hit.score)
    return [_page_found(hit, per) for hit in ranked[:k]]


def _page_found(hit: Hit, per: Literal["document", "page"]) -> PageFound:
    own = [hit.page_uri] if hit.page_uri else []
    others = [uri for uri in hit.page_uris if uri not in own] if per == "document" else []
    return PageFound(
        doc_id=hit.doc_id,
        source_path=hit.source_path,
        score=hit.score,
        page=hit.provenance.page,
        page_uris=[*own, *others],
        line_start=hit.place.line_start,
        line_end=hit.place.line_end,
        why=hit.why,
    )


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
        containers=list(containers) or None,
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
        containers=list(containers) or None,
        query=query,
        top_k=limit,
        filters={"source_type": {"in": sorted(source_type)}} if source_type else {},
        mode=SearchMode.LEXICAL if keyword_only else SearchMode.HYBRID,
    )
    return (await client.search(request)).hits


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
