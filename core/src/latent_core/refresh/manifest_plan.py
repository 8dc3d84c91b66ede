"""Estimate what a changed manifest would do to the container, without applying it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.blobs.port import BlobStores
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.documents import manifest_effects
from latent_core.db.documents.manifest_effects import DocumentAmounts, ReadRate
from latent_core.db.spaces import refresh_sources
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.changes import (
    ChangeEffect,
    ManifestChange,
    differences,
    effect_of,
    keeps_texts,
    scope_of,
    strongest,
)
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.containers import check_change, in_force
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.refresh.plan import TIMED_CHUNKS, cost_of, plan as refresh_plan, speed_of
from latent_core.wire.manifest_plan import ManifestPlan, PlannedChange
from latent_core.wire.refresh import RefreshPlan, RefreshRequest, RefreshTarget, Strategy

MIN_JOBS: Final = 5
"""Fewer ingested documents tell nothing about the next ones."""

ON_REQUEST: Final = {
    "summaries": "Documents of now are summarised on request: latent summarise {id}",
    "extraction": "Pages of now are described on request: latent extract {id}",
    "captions": "Pictures of now get captions when they are read again.",
    "speech": "Recordings of now are transcribed again when they are added again.",
    "web": "Pages of now are fetched again when they are added again.",
}


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of the refresh that makes stored documents follow."""

    refresh: RefreshRequest | None = None
    documents: int = 0
    chunks: int = 0
    texts: int = 0
    tokens: int = 0
    cached: int = 0
    cost: float | None = 0.0
    seconds: float | None = 0.0
    basis: str = "nothing to read or to embed"
    notes: tuple[str, ...] = ()


async def plan(
    db: Database,
    embedders: EmbedderRegistry,
    blobs: BlobStores,
    container: Container,
    manifest: Manifest,
    golden_queries: int,
) -> ManifestPlan:
    """``manifest`` is complete, as ``ingest.containers.completed`` returns it."""
    old, new = in_force(container), in_force(container, manifest)
    changes = differences(old, new)
    async with db.reading() as conn:
        amounts = await manifest_effects.amounts(conn, container.id)
    planned = [_planned(change, amounts) for change in changes]
    refused = _refused(container, manifest, blobs, planned)
    cost = await _cost(db, embedders, container, new, planned, amounts, golden_queries)
    return ManifestPlan(
        container_id=container.id,
        etag=container.etag,
        effect=strongest([change.effect for change in planned]),
        changes=planned,
        refused=refused,
        refresh=cost.refresh,
        documents=cost.documents,
        chunks=cost.chunks,
        texts=cost.texts,
        tokens=cost.tokens,
        cached=cost.cached,
        cost=cost.cost,
        seconds=cost.seconds,
        basis=cost.basis,
        notes=[*cost.notes, *await _notes(db, container, new, changes)],
    )


def _planned(change: ManifestChange, amounts: dict[str, DocumentAmounts]) -> PlannedChange:
    effect = effect_of(change.key)
    concerned = 0
    if effect is ChangeEffect.RECHUNK:
        concerned = _sum(amounts, scope_of(change.key), lambda one: one.documents)
    elif effect is ChangeEffect.REEMBED:
        concerned = _sum(amounts, amounts, lambda one: one.documents)
    return PlannedChange(
        key=change.key, old=change.old, new=change.new, effect=effect, documents=concerned
    )


def _sum(
    amounts: dict[str, DocumentAmounts],
    types: Sequence[str] | dict[str, DocumentAmounts],
    number: Callable[[DocumentAmounts], int],
) -> int:
    return sum(number(amounts[name]) for name in types if name in amounts)


def _refused(
    container: Container, manifest: Manifest, blobs: BlobStores, planned: list[PlannedChange]
) -> list[str]:
    """Only what no refresh makes possible."""
    if not any(change.effect is ChangeEffect.REFUSED for change in planned):
        return []
    live = in_force(container)
    kept = {"embedder": live.embedder, "embedder_version": live.embedder_version, "dims": live.dims}
    try:
        check_change(container, manifest.model_copy(update=kept), blobs)
    except LatentError as error:
        return [error.message]
    return []


async def _cost(
    db: Database,
    embedders: EmbedderRegistry,
    container: Container,
    manifest: Manifest,
    planned: list[PlannedChange],
    amounts: dict[str, DocumentAmounts],
    golden_queries: int,
) -> _Cost:
    effects = {change.effect for change in planned}
    if ChangeEffect.REEMBED in effects:
        also = ChangeEffect.RECHUNK in effects
        return await _reembed(db, embedders, container, manifest, golden_queries, also=also)
    rechunked = [change for change in planned if change.effect is ChangeEffect.RECHUNK]
    if not any(change.documents for change in rechunked):
        return _Cost()
    return await _reparse(db, embedders, container, rechunked, amounts)


async def _reembed(
    db: Database,
    embedders: EmbedderRegistry,
    container: Container,
    manifest: Manifest,
    golden_queries: int,
    *,
    also: bool,
) -> _Cost:
    """As the dry run of the refresh to the new embedder."""
    target = RefreshTarget(
        embedder=manifest.embedder, version=manifest.embedder_version, dims=manifest.dims
    )
    request = RefreshRequest(strategy=Strategy.PARALLEL, to=target)
    figures: RefreshPlan = await refresh_plan(db, embedders, container, request, golden_queries)
    later = ["Afterwards read the documents again for the other keys: strategy reparse."]
    return _Cost(
        request,
        figures.documents,
        figures.chunks,
        figures.texts,
        figures.tokens,
        figures.cached,
        figures.cost,
        figures.seconds,
        figures.basis,
        (*figures.notes, *(later if also else [])),
    )


async def _reparse(
    db: Database,
    embedders: EmbedderRegistry,
    container: Container,
    changes: list[PlannedChange],
    amounts: dict[str, DocumentAmounts],
) -> _Cost:
    """A reparse reads all documents; texts that stay have their vectors in the cache."""
    types = {
        name for change in changes if not keeps_texts(change.key) for name in scope_of(change.key)
    }
    async with db.reading() as conn:
        rate = await manifest_effects.read_rate(conn, container.id)
        texts, tokens = await manifest_effects.texts(
            conn, container.id, {name: one for name, one in amounts.items() if name in types}
        )
        sample = await refresh_sources.sample(
            conn, container.id, container.space.collection_id, TIMED_CHUNKS
        )
    documents = _sum(amounts, amounts, lambda one: one.documents)
    model = embedders.model_of(in_force(container))
    seconds, basis = _by_jobs(rate, documents)
    if seconds is None:
        seconds, found = await speed_of(embedders, container.id, model, sample, texts, tokens)
        basis = f"embedding only, {found}; the reading of documents was not measured here yet"
    return _Cost(
        RefreshRequest(strategy=Strategy.REPARSE),
        documents,
        _sum(amounts, amounts, lambda one: one.chunks),
        texts,
        tokens,
        0,
        cost_of(model, tokens, embedders.price_of(model.embedder)),
        seconds,
        basis,
        (
            "The stored originals of all documents are read again. Texts that stay the same are not embedded again.",
        ),
    )


def _by_jobs(rate: ReadRate, documents: int) -> tuple[float | None, str]:
    if rate.jobs < MIN_JOBS:
        return None, ""
    basis = f"the last {rate.jobs} documents took {rate.seconds:.2f} s each; done one after another"
    return round(rate.seconds * documents, 1), basis


async def _notes(
    db: Database, container: Container, manifest: Manifest, changes: list[ManifestChange]
) -> list[str]:
    keys = {change.key for change in changes}
    notes = [
        words.format(id=container.id)
        for block, words in ON_REQUEST.items()
        if any(
            key.startswith(f"{block}.") and effect_of(key) is ChangeEffect.NEW_DOCUMENTS
            for key in keys
        )
    ]
    if "dedup.semantic_threshold" in keys:
        notes.append("All chunks are compared again for near-duplicates, in the background.")
    if any(key.startswith("vectors.") for key in keys):
        notes.append(
            "The layout of vectors concerns a Qdrant server only; it is adopted in the background."
        )
    if "ingest.ttl_days" in keys and (days := manifest.ingest.ttl_days) is not None:
        async with db.reading() as conn:
            expired = await manifest_effects.expiring(conn, container.id, days)
        notes.append(
            f"{expired:,} documents were last fetched more than {days} days ago: they are deleted within the hour."
        )
    return notes
