"""Shared steps of all refresh strategies: the job's space, the gates, the switch, samples for drift, and reparse."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container, Space
from latent_core.db.doctor import checks
from latent_core.db.documents import documents
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.spaces import refresh_sources, space_points, spaces
from latent_core.db.spaces.space_points import FIRST
from latent_core.domain.errors import Conflict, Issue, IssueCode, LatentError, NotFound
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.domain.vector_types import Matrix
from latent_core.domain.versions import recipe
from latent_core.ingest.accept import CORPUS_MIME, accept, from_original
from latent_core.models.embedding.drift import ForwardMap
from latent_core.queue.context import JobContext
from latent_core.queue.enqueue import enqueue
from latent_core.queue.finish import finish
from latent_core.queue.lease import amend
from latent_core.refresh.chunks import longer_window
from latent_core.refresh.gates import SEARCH_SECONDS, RefreshGates
from latent_core.refresh.lifecycle import (
    NotComplete,
    SpaceSwitch,
    refresh_job,
    require_active,
    switch,
)
from latent_core.runtime.failpoint import failpoint
from latent_core.search.plan import SearchTarget
from latent_core.wire.refresh import GateReport, RefreshPayload, SpaceState, Strategy
from latent_workers.deps import Deps
from latent_workers.ingest.refused_inputs import refused_input_warnings
from latent_workers.refresh.fill import SpaceFill

logger = logging.getLogger(__name__)

MAX_SWITCHES: Final = 50
"""Attempts to switch: new documents are filled in between."""


LOST_SHARE: Final = 0.02
"""Share of images that may lose their vector, as for golden queries."""


class GateFailed(Conflict):
    """The new space is complete and its answers are worse."""


@dataclass(frozen=True, slots=True)
class RefreshJob:
    """One refresh job with its inputs."""

    ctx: JobContext
    deps: Deps
    container: Container
    payload: RefreshPayload

    async def space(self) -> Space:
        """The space in the payload; ``Conflict`` if it was aborted."""
        async with self.deps.stack.db.transaction() as conn:
            known = await containers.spaces(conn, self.container.id)
        for space in known:
            if space.id == self.payload.space_id and space.state is not SpaceState.DROPPING:
                return space
        raise Conflict(f"space {self.payload.space_id} was cancelled: start the refresh again")

    async def amended(self, **changes: Any) -> RefreshJob:
        """Store results for the next attempt."""
        payload = self.payload.model_copy(update=changes)
        await self.ctx.transact(lambda conn: amend(conn, self.ctx.job, payload.stored()))
        return RefreshJob(self.ctx, self.deps, self.container, payload)

    async def judge(self, old: SearchTarget | None, new: SearchTarget) -> GateReport | None:
        """Golden queries on both spaces; None if there are none. ``GateFailed`` unless forced."""
        if self.payload.golden is None:
            return None
        gates = RefreshGates(self.deps.search_service(SEARCH_SECONDS), self.container)
        report = await gates.compare(self.payload.golden, old, new, self.ctx.checkpoint)
        if not report.passed and not self.payload.force:
            raise GateFailed(
                f"not switched: {'; '.join(report.failures)}. The new space stays complete: refresh again with"
                " force to switch anyway, or roll back to discard it",
                gates=report.model_dump(mode="json"),
            )
        return report

    async def searched(self, space: Space) -> SearchTarget | None:
        """None if its embedder is not available."""
        try:
            return SearchTarget(space, await self.deps.embedder(space))
        except LatentError as error:
            logger.warning(
                "embedder_unreachable", extra={"space": space.id, "cause": error.message}
            )
            return None


async def switch_when_complete(
    work: RefreshJob, filling: SpaceFill, space: Space, report: GateReport | None
) -> None:
    """Switch in one transaction that requires completeness; new documents are filled in before the next try."""
    await _require_seen(work, space)
    rechunks = await _rechunks(work, space)
    for _ in range(MAX_SWITCHES):
        await note_old(work)
        await work.ctx.fence()
        try:
            failpoint("refresh.before_switch")
            await work.ctx.transact(
                lambda conn: _switch(conn, work, space, report, rechunks=rechunks)
            )
        except NotComplete:
            await filling.run()
            continue
        failpoint("refresh.after_switch")
        work.deps.stack.wake()
        return
    raise NotComplete(
        "documents arrive faster than they are embedded; the job will try again later"
    )


async def _require_seen(work: RefreshJob, space: Space) -> None:
    """``GateFailed`` if too many images would have no vector, unless forced."""
    async with work.deps.stack.db.transaction() as conn:
        now = await space_points.pictures(conn, work.container.id, space.collection_id)
        before = await space_points.without_points(
            conn, work.container.id, work.container.space.collection_id
        )
    lost = now.without_points - before
    if lost > max(1, LOST_SHARE * now.all) and not work.payload.force:
        raise GateFailed(
            f"not switched: {now.without_points} of {now.all} images have no vector in the new space, {before} in the live one. "
            "Check which images the embedder accepts and refresh again, or use force to switch anyway",
            without_points=now.without_points,
            before=before,
            pictures=now.all,
        )


async def note_old(work: RefreshJob) -> None:
    """Record the contents of the old space in advance, so that the switch itself is short."""
    async with work.deps.stack.db.transaction() as conn:
        live = await containers.get(conn, work.container.id)
        if live is not None:
            await space_points.note_all_live(conn, live.id, live.space.collection_id)


async def _rechunks(work: RefreshJob, space: Space) -> bool:
    """Whether documents are parsed again after the switch. Not for mapped vectors, which belong to the chunks that
    there are."""
    if work.payload.moves or work.payload.strategy is not Strategy.PARALLEL:
        return False
    window = (await work.deps.embedder(space)).model.window
    live = await work.searched(work.container.space)
    before = live.embedder.model.window if live is not None else None
    return longer_window(work.container.manifest.chunker, before, window) is not None


async def _switch(
    conn: Connection,
    work: RefreshJob,
    space: Space,
    report: GateReport | None,
    *,
    rechunks: bool,
) -> SpaceSwitch:
    ctx = work.ctx
    without_points = await space_points.without_points(conn, work.container.id, space.collection_id)
    await finish(
        conn,
        ctx.job,
        warnings=[
            *([] if work.payload.moves else judge_words(report)),
            *refused_input_warnings(without_points),
        ],
        result={
            "space_id": space.id,
            "embedder": space.embedder,
            "version": space.version,
            "dims": space.dims,
            "gates": None if report is None else report.model_dump(mode="json"),
            "skipped_images": without_points,
            **({} if work.payload.moves else outcome_of(report)),
            **({"rechunks": True} if rechunks else {}),
        },
    )
    switched = await switch_space(conn, work, space.id)
    if work.payload.strategy is Strategy.DRIFT:
        await enqueue(conn, _replacing(work, space))
    if rechunks:
        await enqueue(conn, _rechunking(work, space))
    return switched


async def switch_space(conn: Connection, work: RefreshJob, space_id: int) -> SpaceSwitch:
    """Switch as the job requests; ``Conflict`` if the container is no longer active."""
    if not await spaces.lock(conn, work.container.id):
        raise NotFound(f"container '{work.container.id}' no longer exists")
    container = await containers.get(conn, work.container.id)
    if container is not None:
        require_active(container)
    return await switch(
        conn,
        work.container.id,
        space_id,
        keep_days=work.payload.keep_days,
        lease_seconds=work.deps.settings.lease_seconds,
        principal=work.ctx.job.principal,
        moves=work.payload.moves,
    )


def _replacing(work: RefreshJob, space: Space) -> NewJob:
    """Replace mapped vectors by embedded ones over time."""
    payload = RefreshPayload(strategy=Strategy.INPLACE, space_id=space.id, mapped_only=True)
    return refresh_job(work.container.id, payload, work.ctx.job.principal, priority=PRIORITY_LATER)


def _rechunking(work: RefreshJob, space: Space) -> NewJob:
    """Parse all documents again, for chunks of the new window. The retired space is written as well, so that the way
    back stays open."""
    payload = RefreshPayload(strategy=Strategy.REPARSE, space_id=space.id)
    return refresh_job(work.container.id, payload, work.ctx.job.principal, priority=PRIORITY_LATER)


def judge_words(report: GateReport | None) -> list[Issue]:
    """What the job's owner should know about the switch; nothing if the gates passed, which ``outcome`` says."""
    if report is None:
        message = "switched without golden queries: the new space is complete, but its quality was not measured"
    elif report.passed:
        return []
    else:
        message = f"switched by force though {'; '.join(report.failures)}: {report.words()}"
    return [Issue(code=IssueCode.POLICY, message=message)]


def outcome_of(report: GateReport | None) -> dict[str, str]:
    """The result's sentence about gates that passed."""
    if report is None or not report.passed:
        return {}
    return {"outcome": f"switched: {report.words()}"}


HELD_BACK: Final = 0.2
MAX_QUESTIONS: Final = 100
"""Held-out questions, one per chunk; twice as many are used for training."""
WORDS_PER_QUESTION: Final = 10
DEPTH: Final = 10
FOLDS: Final = 5
_WORD: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class DriftSample:
    """Rows of ``old`` and ``new`` belong to the same chunks."""

    old: Matrix
    new: Matrix
    train: NDArray[np.int64]
    """Training rows; the questions come from the other rows."""
    questions_old: Matrix | None
    """Held-out questions embedded by the old model, None if it is not available."""
    questions_new: Matrix
    taught_old: Matrix | None
    """Questions of the training rows: models embed questions elsewhere than passages."""
    taught_new: Matrix | None

    def training_pairs(self) -> tuple[Matrix, Matrix]:
        old, new = self.old[self.train], self.new[self.train]
        if self.taught_old is None or self.taught_new is None:
            return old, new
        return np.concatenate([old, self.taught_old]), np.concatenate([new, self.taught_new])


def split(count: int) -> tuple[list[int], list[int]]:
    """Held-out rows and the others, evenly spread and deterministic."""
    held = min(MAX_QUESTIONS, max(1, round(HELD_BACK * count)))
    places = {int(n) for n in np.linspace(0, count - 1, held).round()}
    return sorted(places), [n for n in range(count) if n not in places]


def questions_of(texts: Sequence[str]) -> list[str]:
    """Questions that a user might ask for these passages: some consecutive words from their middle."""
    questions = []
    for text in texts:
        words = _WORD.findall(text)
        begin = max(0, (len(words) - WORDS_PER_QUESTION) // 2)
        questions.append(" ".join(words[begin : begin + WORDS_PER_QUESTION]) or text)
    return questions


def recall_at_10(truth: Matrix, found: Matrix) -> float:
    """Mean share of the ten best of each row of ``truth`` that are among the ten best of ``found``."""
    depth = min(DEPTH, truth.shape[1])
    true_neighbours = np.argpartition(-truth, depth - 1, axis=1)[:, :depth]
    given = np.argpartition(-found, depth - 1, axis=1)[:, :depth]
    shared = sum(len(np.intersect1d(a, b)) for a, b in zip(true_neighbours, given, strict=True))
    return float(shared / (depth * len(truth)))


def crossfit(old: Matrix, new: Matrix) -> Matrix:
    """``old`` mapped forward; the map of each row was trained without it."""
    mapped = np.empty_like(new)
    fold = np.arange(len(old)) % FOLDS
    for n in range(FOLDS):
        aside = fold == n
        mapped[aside] = ForwardMap.train(old[~aside], new[~aside]).apply(old[aside])
    return mapped


DOCUMENTS_PER_STEP: Final = 100


async def reparse(work: RefreshJob) -> None:
    """Enqueue all documents; live generations stay until their jobs are done.

    The position is stored after each step. A repeated step enqueues nothing twice: a waiting job for the same
    document takes the newer payload.
    """
    async with work.deps.stack.db.transaction() as conn:
        total, _ = await space_points.totals(conn, work.container.id)
    while rows := await _originals(work):
        for row in rows:
            await work.ctx.checkpoint()
            await _enqueue(work, row)
        done = work.payload.done + len(rows)
        work = await work.amended(after=str(rows[-1]["id"]), done=done)
        work.deps.stack.wake()
        await work.ctx.progress(done, max(total, done), "documents queued")
    result = {"documents_queued": work.payload.done}
    await work.ctx.transact(lambda conn: finish(conn, work.ctx.job, result=result))


async def _originals(work: RefreshJob) -> list[dict[str, Any]]:
    after = UUID(work.payload.after) if work.payload.after else FIRST
    async with work.deps.stack.db.transaction() as conn:
        return await refresh_sources.originals(
            conn, work.container.id, after=after, limit=DOCUMENTS_PER_STEP
        )


async def _enqueue(work: RefreshJob, row: dict[str, Any]) -> None:
    corpus = row["mime"] == CORPUS_MIME
    async with work.deps.stack.db.transaction() as conn:
        if await containers.hold(conn, work.container.id) is None:
            return
        live = await documents.lock(conn, [row["id"]])
        # Deleted, or a newer content is on its way, which this one must not replace.
        if live.get(row["id"]) is None or await checks.awaited(conn, work.container.id, row["id"]):
            return
        await accept(
            conn,
            SourceInfo(work.container.id, row["uri"], row["mime"]),
            from_original(row, recipe(work.container.manifest)),
            kind=JobKind.CORPUS if corpus else JobKind.INGEST,
            principal=work.ctx.job.principal,
        )
