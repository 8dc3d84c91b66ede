"""Estimate what a refresh would do and cost, without running it."""

from __future__ import annotations

import asyncio
import math
from time import perf_counter
from typing import Final

from latent_core.db.connection import Database
from latent_core.db.containers import Container, Space
from latent_core.db.spaces import refresh_sources
from latent_core.db.spaces.refresh_sources import Costs, StoredText
from latent_core.domain.errors import LatentError
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Manifest, is_local
from latent_core.models.embedding.port import Embedder, EmbeddingModel
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.refresh.chunks import longer_window
from latent_core.refresh.lifecycle import manifest_after, require_same_space
from latent_core.wire.refresh import (
    ModelView,
    RefreshPlan,
    RefreshRequest,
    Strategy,
    Way,
)

SAMPLE_SHARE: Final = 0.05
SAMPLE_DIMS: Final = 3
"""Minimum number of training pairs per dimension of an adapter."""
A_MILLION: Final = 1_000_000
TIMED_CHUNKS: Final = 8
RECHUNKED: Final = (
    "The new embedder reads {new} tokens, the present one {old}. After the switch every stored original is parsed again,"
    " for chunks of up to {size} tokens; set chunker.size to keep the present ones."
)
REPARSED: Final = (
    "Every stored original is parsed and chunked again. Unchanged texts are not embedded again."
)


async def plan(
    db: Database,
    embedders: EmbedderRegistry,
    container: Container,
    request: RefreshRequest,
    golden_queries: int,
) -> RefreshPlan:
    """``Invalid`` if the embedder is not available, ``Conflict`` if the strategy cannot change to it."""
    if request.strategy is Strategy.INPLACE:
        require_same_space(container, request.to)
    target = manifest_after(container, request)
    await embedders.measure(target)
    model = await asyncio.to_thread(embedders.model_of, target)
    async with db.transaction() as conn:
        costs = await refresh_sources.costs(
            conn, container.id, model.key, reads_images=model.reads_images
        )
        sample = await refresh_sources.sample(
            conn, container.id, container.space.collection_id, TIMED_CHUNKS
        )
    texts, tokens = _to_embed(request, container.space, model, costs)
    seconds, basis = await speed_of(embedders, container.id, model, sample, texts, tokens)
    live = container.space
    return RefreshPlan(
        strategy=request.strategy,
        source=ModelView(embedder=live.embedder, version=live.lineage, dims=live.dims),
        target=ModelView(embedder=model.embedder, version=model.version, dims=model.dims),
        documents=costs.documents,
        chunks=costs.chunks,
        texts=texts,
        tokens=tokens,
        cached=costs.cached,
        cost=cost_of(model, tokens, embedders.price_of(model.embedder)),
        seconds=seconds,
        basis=basis,
        golden_queries=golden_queries,
        notes=[
            *_notes(container, request, golden_queries),
            *await _rechunked(embedders, container, request, model),
        ],
    )


async def _rechunked(
    embedders: EmbedderRegistry,
    container: Container,
    request: RefreshRequest,
    model: EmbeddingModel,
) -> list[str]:
    if request.strategy is not Strategy.PARALLEL:
        return []
    try:
        before = (await embedders.opened(container.space)).model.window
    except LatentError:  # a model that is gone changes no chunks
        before = None
    return rechunk_notes(container.manifest, before, model)


def rechunk_notes(manifest: Manifest, before: int | None, model: EmbeddingModel) -> list[str]:
    """What a refresh to ``model`` does to the chunks; ``before`` is the window of the present embedder if it is known."""
    window = longer_window(manifest.chunker, before, model.window)
    if window is None:
        return []
    size = manifest.chunker.tokens(model.window)
    return [RECHUNKED.format(new=model.window, old=window, size=size)]


def _to_embed(
    request: RefreshRequest, live: Space, model: EmbeddingModel, costs: Costs
) -> tuple[int, int]:
    """Texts and tokens that the embedder would receive."""
    left, tokens = costs.texts - costs.cached_texts, costs.tokens - costs.cached_tokens
    if request.strategy is Strategy.REPARSE:
        return 0, 0
    if request.strategy is Strategy.DRIFT and left:
        sampled = sample_size(costs.chunks, live.dims, model.dims)
        share = min(1.0, sampled / costs.chunks)
        return math.ceil(left * share), math.ceil(tokens * share)
    return left, tokens


def cost_of(model: EmbeddingModel, tokens: int, price_per_million: float) -> float | None:
    """The cost, computed as for a finished job."""
    if is_local(model.embedder):
        return 0.0
    return tokens / A_MILLION * price_per_million if price_per_million else None


def sample_size(chunks: int, old_dims: int, new_dims: int) -> int:
    """Number of pairs to train and measure a drift adapter."""
    return max(math.ceil(SAMPLE_SHARE * chunks), SAMPLE_DIMS * max(old_dims, new_dims))


async def speed_of(
    embedders: EmbedderRegistry,
    container_id: str,
    model: EmbeddingModel,
    sample: list[StoredText],
    texts: int,
    tokens: int,
) -> tuple[float | None, str]:
    """Seconds of embedding, and the basis of the estimate."""
    if not texts:
        return 0.0, "nothing to embed"
    if (limit := embedders.rate_of(model.embedder)) is not None:
        rate, setting = limit
        note = f"the limit of {rate} texts a minute ({setting})"
        return round(texts * 60.0 / rate, 1), note
    space = Space(SpaceId(0), container_id, model.embedder, model.version, model.dims)
    try:
        counted, spent = await _timed(await embedders.opened(space), sample)
    except LatentError as exc:
        return None, f"the embedder could not be timed: {exc.message}"
    note = f"measured now: {counted / spent:,.0f} tokens a second, over {len(sample)} chunks"
    return round(tokens * spent / counted, 1), note


async def _timed(embedder: Embedder, sample: list[StoredText]) -> tuple[int, float]:
    """Tokens, and the seconds they take."""
    given = [row.embed_text for row in sample] or ["how long does this take"]
    await embedder.embed_documents(given[:1])  # a model loads at its first text
    begun = perf_counter()
    await embedder.embed_documents(given)
    return max(1, sum(embedder.tokenizer.count(given))), max(perf_counter() - begun, 1e-6)


def _notes(container: Container, request: RefreshRequest, golden_queries: int) -> list[str]:
    notes: list[str] = []
    match request.strategy:
        case Strategy.REPARSE:
            notes.append(REPARSED)
        case Strategy.INPLACE if request.force:
            notes.append(
                "The collection is emptied first. Until it is full again, semantic search finds less."
            )
        case Strategy.DRIFT:
            forward = request.way is Way.FORWARD
            later = " Afterwards all chunks are embedded in the background." if forward else ""
            notes.append(
                f"Texts and tokens are those of the sample that trains the adapter.{later}"
            )
    if request.strategy in (Strategy.PARALLEL, Strategy.DRIFT) and not golden_queries:
        refused = container.manifest.eval.enabled and not request.force
        notes.append(
            "There are no golden queries, but eval.enabled requires them. Without force the refresh is refused."
            if refused
            else "There are no golden queries, so the quality of the new space is not measured."
        )
    return notes
