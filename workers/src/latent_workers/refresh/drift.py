"""Drift: embed a sample with the new model, train and measure an adapter, and use it only if it is good.

*query*: maps the new model's queries into the stored space. Stored vectors stay; new documents are mapped too.
*forward*: maps the stored vectors into the new model's space; embedded vectors replace them over time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Space
from latent_core.db.spaces import drift_adapters, refresh_sources, space_points, spaces
from latent_core.db.spaces.refresh_sources import StoredText
from latent_core.domain.errors import Conflict, LatentError
from latent_core.domain.ids import SpaceId, point_id
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.containers import layout_of
from latent_core.models.embedding.drift import AdaptedEmbedder, DriftAdapter, ForwardMap
from latent_core.models.embedding.picture import Piece
from latent_core.models.embedding.port import Embedder, EmbeddingModel
from latent_core.queue.finish import finish, hold
from latent_core.queue.lease import amend
from latent_core.refresh.lifecycle import target_manifest
from latent_core.refresh.plan import sample_size
from latent_core.runtime.failpoint import failpoint
from latent_core.search.plan import SearchTarget
from latent_core.wire.refresh import DriftReport, SpaceState, Way
from latent_workers.refresh.fill import SpaceFill, VectorMapping
from latent_workers.refresh.work import (
    DriftSample,
    RefreshJob,
    crossfit,
    judge_words,
    outcome_of,
    questions_of,
    recall_at_10,
    split,
    switch_space,
    switch_when_complete,
)

FEWEST_CHUNKS: Final = 40
"""With fewer chunks, training and measuring are not possible; embedding them is fast."""


class DriftRefused(Conflict):
    """The adapter was measured and is not good enough."""


@dataclass(frozen=True, slots=True)
class TrainedAdapter:
    """An adapter of either direction with its measurements."""

    adapter: DriftAdapter | ForwardMap
    report: DriftReport


async def drift(work: RefreshJob) -> None:
    """Sample, train, measure; then switch to the adapter. ``DriftRefused`` has the measurements."""
    if work.payload.to is None:
        raise Conflict("a drift refresh needs the new embedder")
    embedders = work.deps.stack.embedders
    target = target_manifest(work.container.manifest, work.payload.to)
    await embedders.measure(target)
    model = await asyncio.to_thread(embedders.model_of, target)
    way = work.payload.way or Way.QUERY
    begun = await _begun(work)
    if begun is not None:
        await _forward(work, begun)
        return
    new = Space(SpaceId(0), work.container.id, model.embedder, model.version, model.dims)
    trained = await _trained(work, new, way)
    if not trained.report.accepted:
        raise DriftRefused(
            f"not taken: {trained.report.words()}. Strategy parallel embeds everything again:"
            f" `latent refresh {work.container.id} --strategy parallel --to {model.embedder}"
            f" --version {model.version} --dims {model.dims}`",
            measured=trained.report.details(),
            offer="parallel",
        )
    if isinstance(trained.adapter, DriftAdapter):
        await _query(work, model, trained.adapter, trained.report)
    else:
        work, space = await _built(work, model, trained)
        await _forward(work, space)


# --- training and measuring


async def _trained(work: RefreshJob, new: Space, way: Way) -> TrainedAdapter:
    sample = await _sampled(work, new)
    needed = work.deps.settings.drift_min_recall
    return await asyncio.to_thread(_train, sample, way, needed)


def _train(sample: DriftSample, way: Way, needed: float) -> TrainedAdapter:
    """The adapter, and its recall relative to a full refresh: the new model's ten nearest for a held-out question."""
    begun = perf_counter()
    old, new = sample.training_pairs()
    adapter: DriftAdapter | ForwardMap
    if way is Way.QUERY:
        adapter = DriftAdapter.train(old, new)
        spent = perf_counter() - begun
        found = adapter.adapt_queries(sample.questions_new) @ sample.old.T
    else:
        adapter = ForwardMap.train(sample.old, sample.new)
        spent = perf_counter() - begun
        found = sample.questions_new @ crossfit(sample.old, sample.new).T
    truth = sample.questions_new @ sample.new.T
    quo = (
        None
        if sample.questions_old is None
        else recall_at_10(truth, sample.questions_old @ sample.old.T)
    )
    report = DriftReport(
        way=way,
        pairs=len(old) if way is Way.QUERY else len(sample.old),
        candidates=len(sample.new),
        queries=len(sample.questions_new),
        recall=round(recall_at_10(truth, found), 4),
        status_quo=None if quo is None else round(quo, 4),
        needed=needed,
        train_seconds=round(spent, 3),
    )
    return TrainedAdapter(adapter, report)


async def _sampled(work: RefreshJob, new: Space) -> DriftSample:
    """Chunks of all documents embedded by both models, and questions made from some of them."""
    rows, old = await _old_vectors(work, new)
    if len(rows) < FEWEST_CHUNKS:
        raise DriftRefused(
            f"{len(rows)} chunks of one vector each are too few to train an adapter: use strategy parallel",
            offer="parallel",
        )
    made = await _embedded(work, new, rows)
    held, train = split(len(rows))
    texts = [row.embed_text for row in rows]
    question_texts = questions_of([texts[n] for n in held])
    if work.payload.golden is not None:
        question_texts += [
            query.query for query in work.payload.golden.queries[: len(question_texts)]
        ]
    taught = questions_of([texts[n] for n in train[: 2 * len(held)]])
    ours = await work.searched(work.container.space)
    questions_new = await _embed_questions(work, await work.deps.embedder(new), question_texts)
    questions_old, taught_old = await _by_old(work, ours, question_texts, taught)
    taught_new = (
        await _embed_questions(work, await work.deps.embedder(new), taught)
        if taught_old is not None
        else None
    )
    return DriftSample(
        old=old,
        new=made,
        train=np.asarray(train),
        questions_old=questions_old,
        questions_new=questions_new,
        taught_old=taught_old,
        taught_new=taught_new,
    )


async def _by_old(
    work: RefreshJob,
    ours: SearchTarget | None,
    question_texts: Sequence[str],
    taught: Sequence[str],
) -> tuple[Matrix | None, Matrix | None]:
    """Questions embedded by the old model; None if it is not available, which may be why it is replaced."""
    if ours is None:
        return None, None
    try:
        return await _embed_questions(work, ours.embedder, question_texts), await _embed_questions(
            work, ours.embedder, taught
        )
    except LatentError:
        return None, None


async def _old_vectors(work: RefreshJob, new: Space) -> tuple[list[StoredText], Matrix]:
    """Sampled chunks that are also one text for the new model, and their stored vectors."""
    old = work.container.space
    async with work.deps.stack.db.transaction() as conn:
        _, total = await space_points.totals(conn, work.container.id)
        sample_rows = sample_size(total, old.dims, new.dims)
        rows = await refresh_sources.sample(conn, work.container.id, old.collection_id, sample_rows)
    made_of = work.deps.embedding.pieces

    def whole() -> list[StoredText]:
        return [row for row in rows if len(made_of(new, row.embed_text, row.picture)) == 1]

    rows = await asyncio.to_thread(whole)
    ids = {row.chunk_no: point_id(row.id, row.generation, 0) for row in rows}
    await work.ctx.checkpoint()
    stored = await work.deps.stack.vectors.vectors(old.collection(), list(ids.values()))
    there = [row for row in rows if ids[row.chunk_no] in stored]
    if not there:
        return [], np.empty((0, old.dims), np.float32)
    return there, np.stack([stored[ids[row.chunk_no]] for row in there])


async def _embedded(work: RefreshJob, new: Space, rows: Sequence[StoredText]) -> Matrix:
    """Embedded by the new model and kept in its cache, so that a later full refresh reuses them."""

    def made_of() -> list[Piece]:
        return [
            piece
            for row in rows
            for piece in work.deps.embedding.pieces(new, row.embed_text, row.picture)
        ]

    async def on_progress(done: int) -> None:
        await work.ctx.progress(done, len(rows), "chunks of the sample embedded")

    pieces = await asyncio.to_thread(made_of)
    return await work.deps.embedding.embed(
        new, pieces, work.ctx.checkpoint, on_progress, job_id=work.ctx.job.id
    )


async def _embed_questions(
    work: RefreshJob, embedder: Embedder, questions: Sequence[str]
) -> Matrix:
    rows = []
    for question in questions:
        await work.ctx.checkpoint()
        rows.append(await embedder.embed_query(question))
    return np.stack(rows)


# --- query: the adapter stands before the stored space


class _UnsavedAdapters:
    """An adapter that is not stored yet."""

    def __init__(self, adapter: DriftAdapter) -> None:
        self._adapter = adapter

    async def get(self, _adapter_id: int) -> DriftAdapter:
        return self._adapter


async def _query(
    work: RefreshJob, model: EmbeddingModel, adapter: DriftAdapter, report: DriftReport
) -> None:
    old = work.container.space
    new = Space(SpaceId(0), work.container.id, model.embedder, model.version, model.dims)
    mapped = AdaptedEmbedder(await work.deps.embedder(new), 0, old.dims, _UnsavedAdapters(adapter))
    gates = await work.judge(await work.searched(old), SearchTarget(old, mapped))
    packed = await asyncio.to_thread(adapter.to_bytes)
    await work.ctx.fence()

    async def write(conn: Connection) -> None:
        result: dict[str, Any] = {
            "drift": report.details(),
            "gates": gates and gates.model_dump(mode="json"),
        }
        result |= outcome_of(gates)
        await finish(conn, work.ctx.job, warnings=judge_words(gates), result=result)
        if not await spaces.lock(conn, work.container.id):
            return
        kept = await _keep(conn, work, old, model, report, packed)
        space = await spaces.insert(
            conn,
            work.container.id,
            embedder=model.embedder,
            version=model.version,
            dims=old.dims,
            shares=old.collection_id,
            adapter=kept,
            embedder_dims=model.dims,
        )
        await switch_space(conn, work, space)

    failpoint("drift.before_commit")
    async with work.deps.stack.embedders.held(model.embedder):
        await work.deps.embedder(new)  # it may have been removed since the job began
        await work.ctx.transact(write)
    failpoint("drift.after_commit")
    work.deps.stack.wake()


async def _keep(
    conn: Connection,
    work: RefreshJob,
    old: Space,
    model: EmbeddingModel,
    report: DriftReport,
    packed: bytes,
) -> int:
    return await drift_adapters.insert(
        conn,
        work.container.id,
        way=report.way.value,
        old=old,
        new=model,
        pairs=report.pairs,
        adapter=packed,
        measured=report.details(),
    )


# --- forward: the stored vectors, mapped, in a collection of their own


async def _begun(work: RefreshJob) -> Space | None:
    """The space that an earlier attempt of this job has started to fill."""
    async with work.deps.stack.db.transaction() as conn:
        known = await containers.spaces(conn, work.container.id)
    return next(
        (
            s
            for s in known
            if s.id == work.payload.space_id
            and s.state is SpaceState.BUILDING
            and s.adapter is not None
        ),
        None,
    )


async def _built(
    work: RefreshJob, model: EmbeddingModel, trained: TrainedAdapter
) -> tuple[RefreshJob, Space]:
    """Creates space and adapter in the transaction that notes them in the job."""
    packed = await asyncio.to_thread(trained.adapter.to_bytes)
    old = work.container.space

    async def write(conn: Connection) -> SpaceId:
        await hold(conn, work.ctx.job)
        if not await spaces.lock(conn, work.container.id):
            raise Conflict(f"container '{work.container.id}' was deleted in the meantime")
        kept = await _keep(conn, work, old, model, trained.report, packed)
        space = await spaces.insert(
            conn,
            work.container.id,
            embedder=model.embedder,
            version=model.version,
            dims=model.dims,
            adapter=kept,
        )
        payload = work.payload.model_copy(update={"space_id": space})
        await amend(conn, work.ctx.job, payload.stored())
        return space

    failpoint("drift.before_adapter")
    new = Space(SpaceId(0), work.container.id, model.embedder, model.version, model.dims)
    async with work.deps.stack.embedders.held(model.embedder):
        await work.deps.embedder(new)  # it may have been removed since the job began
        space_id = await work.ctx.transact(write)
    failpoint("drift.after_adapter")
    payload = work.payload.model_copy(update={"space_id": space_id})
    work = RefreshJob(work.ctx, work.deps, work.container, payload)
    return work, await work.space()


async def _forward(work: RefreshJob, space: Space) -> None:
    if space.adapter is None:
        raise Conflict(f"space {space.id} has no adapter: start the refresh again")
    async with work.deps.stack.db.transaction() as conn:
        packed = await drift_adapters.read(conn, space.adapter)
    forward = await asyncio.to_thread(ForwardMap.from_bytes, packed or b"")
    failpoint("drift.before_collection")
    await work.deps.stack.vectors.create_collection(
        space.collection(), space.dims, layout_of(work.container.manifest)
    )
    failpoint("drift.after_collection")
    filling = SpaceFill(
        work.ctx,
        work.deps,
        space,
        mapping=VectorMapping(work.container.space, forward),
        note="chunks mapped",
    )
    await filling.run()
    await filling.verify()
    gates = await work.judge(
        await work.searched(work.container.space),
        SearchTarget(space, await work.deps.embedder(space)),
    )
    await switch_when_complete(work, filling, space, gates)
