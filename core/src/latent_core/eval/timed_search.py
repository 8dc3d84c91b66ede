"""A search of one container as an evaluation sends it, with the time that it took."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from latent_core.search.plan import SearchTarget
from latent_core.search.readable import Readable
from latent_core.search.service import SearchService
from latent_core.wire.evaluation import Setup
from latent_core.wire.search import MAX_TOP_K, SearchRequest, SearchResponse


@dataclass(frozen=True, slots=True)
class TimedSearch:
    """An answer, and the milliseconds it took."""

    response: SearchResponse
    milliseconds: float


async def timed_search(
    service: SearchService,
    container: Readable,
    setup: Setup,
    query: str,
    target: SearchTarget | None = None,
) -> TimedSearch:
    """Search for chunks, not documents: if a long document matches in many places, each counts for recall."""
    request = SearchRequest(
        containers=[container.id],
        query=query,
        mode=setup.mode,
        fusion=setup.fusion,
        top_k=MAX_TOP_K,
        dedup=False,
        diagnostics=False,
    )
    begun = perf_counter()
    response = await service.search(request, {container.id: container}, target=target)
    return TimedSearch(response, (perf_counter() - begun) * 1000)
