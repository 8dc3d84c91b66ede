"""Refresh: build an embedding space next to the live one, switch to it, and roll back (DESIGN §7.4).

One column of the container's row names the live space. A search reads it once. Publications lock the row in share
mode, so the transaction that changes it sees exactly what is live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from latent_core.db import audit, containers
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container, Space
from latent_core.db.spaces import space_points, spaces
from latent_core.domain.errors import Conflict, Forbidden, NotFound
from latent_core.domain.ids import JobId, SpaceId
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.domain.manifest.model import Manifest, is_local
from latent_core.ingest.containers import ModelLookup, etag
from latent_core.ingest.stage import Checkpoint, enqueue_dedup
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.queue.admin import open_refresh
from latent_core.queue.enqueue import enqueue
from latent_core.vectors.port import VectorIndex
from latent_core.wire.containers import ContainerState
from latent_core.wire.refresh import (
    RefreshPayload,
    RefreshRequest,
    RefreshTarget,
    SpaceState,
    Strategy,
)

MIN_LEASES_KEPT: Final = 2
"""Leases that a retired space is kept: requests and attempts that began in it may still be running."""
ROWS_PER_TRANSACTION: Final = 5000
DAY_SECONDS: Final = 86_400.0


class NotComplete(Conflict):
    """A visible document has no vectors in the target space."""

    transient = True


@dataclass(frozen=True, slots=True)
class RefreshStarted:
    job_id: JobId
    space: SpaceId
    """The space that is built or re-embedded."""
    model: EmbeddingModel | None
    """That makes the new vectors; None if none are made."""


@dataclass(frozen=True, slots=True)
class SpaceSwitch:
    """From one space to another."""

    old: Space
    new: Space


def target_manifest(manifest: Manifest, to: RefreshTarget) -> Manifest:
    """``manifest`` with that embedder."""
    return manifest.model_copy(
        update={"embedder": to.embedder, "embedder_version": to.version, "dims": to.dims}
    )


def manifest_after(container: Container, request: RefreshRequest) -> Manifest:
    """The manifest with the embedder of the refreshed vectors. A local embedder defines version and dimensions; a
    server does not report them, so values missing in the request are taken from the live space."""
    live, to = container.space, request.to
    if to is not None and to.embedder != live.embedder:
        return target_manifest(container.manifest, to)
    resolved = to or RefreshTarget(embedder=live.embedder)
    stays = to is None or request.strategy is Strategy.INPLACE
    version, dims = resolved.version, resolved.dims
    if version is None and stays and not is_local(live.embedder):
        version = live.version
    if dims is None and (request.strategy is Strategy.INPLACE or not is_local(live.embedder)):
        dims = live.embedder_dims or live.dims
    full = RefreshTarget(embedder=live.embedder, version=version, dims=dims)
    return target_manifest(container.manifest, full)


def named_like(manifest: Manifest, space: Space) -> Manifest:
    """``manifest`` as it is when ``space`` is the live one."""
    dims = space.embedder_dims or space.dims
    resolved = RefreshTarget(embedder=space.embedder, version=space.version, dims=dims)
    return target_manifest(manifest, resolved)


async def begin(
    conn: Connection,
    models: ModelLookup,
    container_id: str,
    request: RefreshRequest,
    payload: RefreshPayload,
    *,
    principal: str,
    request_id: str | None,
) -> RefreshStarted:
    """Create or choose the space and enqueue the job, in the caller's transaction.

    ``payload`` describes the refresh; its space is filled in here. ``Conflict`` if a refresh is running or nothing
    would change; ``Invalid`` if the embedder is not available; ``Forbidden`` if the container requires an evaluation
    and has no golden queries. Call it while the new embedder is ``held``.
    """
    container = await _locked(conn, container_id)
    require_active(container)
    running = await open_refresh(conn, container_id)
    if running is not None:
        raise Conflict(
            f"Job {running} is already refreshing container '{container_id}'. Wait for the job or cancel it.",
            job_id=str(running),
        )
    _check_measured(container, request, payload)
    resolved: dict[str, Any] = {"space_id": container.space.id}
    model: EmbeddingModel | None = None
    if request.strategy is not Strategy.REPARSE:
        model = await asyncio.to_thread(
            _model, models, container, request
        )  # fails before an existing build is dropped
        to = RefreshTarget(embedder=model.embedder, version=model.version, dims=model.dims)
        resolved = {"space_id": await _space(conn, model, container, request, principal), "to": to}
    payload = payload.model_copy(update=resolved)
    job_id = await enqueue(conn, refresh_job(container_id, payload, principal))
    await audit.note(
        conn,
        principal=principal,
        action="container.refresh",
        container_id=container_id,
        object_=f"{request.strategy.value}: job {job_id}",
        request_id=request_id,
    )
    return RefreshStarted(job_id, SpaceId(payload.space_id), model)


def _check_measured(container: Container, request: RefreshRequest, payload: RefreshPayload) -> None:
    """``Forbidden`` if ``eval.enabled`` requires a measurement before the switch and there are no golden queries."""
    switches = request.strategy in (Strategy.PARALLEL, Strategy.DRIFT) and not request.force
    if switches and container.manifest.eval.enabled and payload.golden is None:
        raise Forbidden(
            f"Container '{container.id}' has eval.enabled but no golden queries to measure the new space. "
            f"Add some (latent golden import {container.id} FILE), or use force to switch without a measurement.",
            key="eval.enabled",
        )


def refresh_job(
    container_id: str, payload: RefreshPayload, principal: str, *, priority: int = 0
) -> NewJob:
    return NewJob(
        kind=JobKind.REFRESH,
        container_id=container_id,
        doc_key=f"replace:{payload.space_id}" if payload.mapped_only else f"refresh:{container_id}",
        payload=payload.stored(),
        priority=priority,
        max_attempts=20,
        principal=principal,
    )


async def _locked(conn: Connection, container_id: str) -> Container:
    """The container, locked against publications and other switches until the transaction ends."""
    if not await spaces.lock(conn, container_id):
        raise NotFound(f"Container '{container_id}' no longer exists.")
    container = await containers.get(conn, container_id)
    if container is None:
        raise NotFound(f"Container '{container_id}' no longer exists.")
    return container


def require_active(container: Container) -> None:
    """``Conflict`` unless the container is active: only then it is refreshed or rolled back."""
    if container.state is not ContainerState.ACTIVE:
        raise Conflict(
            f"Container '{container.id}' is {container.state.value}; only active containers can be refreshed or rolled back. "
            f"Run `latent container state {container.id} active`, then repeat the request or requeue the job.",
            container_id=container.id,
            state=container.state.value,
        )


def _model(models: ModelLookup, container: Container, request: RefreshRequest) -> EmbeddingModel:
    """The model for the new vectors; ``Invalid`` if it is not available."""
    if request.strategy is Strategy.INPLACE:
        require_same_space(container, request.to)
    manifest = manifest_after(container, request)
    model = models.model_of(manifest)
    return replace(model, version=manifest.embedder_version or model.version)


async def _space(
    conn: Connection,
    model: EmbeddingModel,
    container: Container,
    request: RefreshRequest,
    principal: str,
) -> SpaceId:
    live = container.space
    if request.strategy is Strategy.INPLACE:
        if model.version != live.version:
            await _drop_readers(conn, live, principal)
        return live.id
    if request.to is not None and not live.is_adapted and _made_by(live, model):
        raise Conflict(
            f"Container '{container.id}' already uses {model.embedder} {model.version} ({model.dims} dimensions). To embed it"
            " again, use strategy inplace, or strategy parallel without 'to'."
        )
    if request.strategy is Strategy.DRIFT:
        await _clear_for_drift(conn, container, principal)
        return live.id  # the space is created once an adapter is good enough
    return await _building(conn, container, model, principal)


async def _clear_for_drift(conn: Connection, container: Container, principal: str) -> None:
    if container.space.is_adapted:
        raise Conflict(
            f"Container '{container.id}' already uses an adapter, and a second one would lose accuracy again."
            " Use strategy parallel."
        )
    for space in await containers.spaces(conn, container.id):
        if space.state is SpaceState.BUILDING:
            await drop(conn, space, principal=principal)


async def begin_move(conn: Connection, container_id: str, *, principal: str) -> JobId | None:
    """Enqueue the move of an outgrown container from its shared collection into one of its own, in the caller's
    transaction. None if it is not in a shared one, or while it is being refreshed."""
    container = await _locked(conn, container_id)
    live = container.space
    if live.shared is None or await open_refresh(conn, container_id) is not None:
        return None
    built = [s for s in await containers.spaces(conn, container_id) if _is_move(s, live)]
    if any(s.state is SpaceState.BUILDING for s in await containers.spaces(conn, container_id)):
        if not built:
            return None  # a build that its gates have refused: its owner decides
        space_id = built[0].id
    else:
        space_id = await spaces.insert(
            conn,
            container_id,
            embedder=live.embedder,
            version=live.version,
            dims=live.dims,
            own_collection=True,
        )
    payload = RefreshPayload(
        strategy=Strategy.PARALLEL, space_id=space_id, moves=True, keep_days=0.0
    )
    return await enqueue(conn, refresh_job(container_id, payload, principal))


def _is_move(space: Space, live: Space) -> bool:
    """Whether ``space`` was begun to move ``live`` into a collection of its own."""
    same = (space.embedder, space.version, space.dims) == (live.embedder, live.version, live.dims)
    return space.state is SpaceState.BUILDING and same and space.shared is None


def require_same_space(container: Container, to: RefreshTarget | None) -> None:
    """``Conflict`` if the refresh changes more than the version."""
    live = container.space
    if live.is_adapted:
        raise Conflict(
            "The live space reads another space's vectors through an adapter. Use strategy parallel to re-embed them."
        )
    if to is not None and (to.embedder != live.embedder or (to.dims or live.dims) != live.dims):
        raise Conflict(
            "Strategy inplace keeps embedder and dimensions. Use strategy parallel to change them."
        )


async def _drop_readers(conn: Connection, live: Space, principal: str) -> None:
    """Drop retired spaces with adapters that were trained on the vectors about to be rewritten."""
    for space in await containers.spaces(conn, live.container_id):
        shares = space.id != live.id and space.collection_id == live.collection_id
        if shares and space.state is SpaceState.RETIRED:
            await drop(conn, space, principal=principal)


async def _building(
    conn: Connection, container: Container, model: EmbeddingModel, principal: str
) -> SpaceId:
    """An unfinished build of the same model, else a new space; builds of other models are dropped.

    A retired space of the model is reused, unless the live space has the same model: then all is embedded again.
    """
    found: SpaceId | None = None
    usable = {SpaceState.BUILDING}
    if container.space.is_adapted or not _made_by(container.space, model):
        usable.add(SpaceState.RETIRED)
    live_in = (
        container.space.collection_id
    )  # holds what went through an adapter, too, if the live space has one
    for space in await containers.spaces(conn, container.id):
        same = (
            _made_by(space, model)
            and not space.is_adapted
            and space.adapter is None
            and space.collection_id != live_in
        )
        if space.state is SpaceState.BUILDING and not same:
            await drop(conn, space, principal=principal)
        elif space.state in usable and same:
            found = space.id
    if found is not None:
        await spaces.set_state(conn, found, SpaceState.BUILDING)
        return found
    return await spaces.insert(
        conn,
        container.id,
        embedder=model.embedder,
        version=model.version,
        dims=model.dims,
    )


def _made_by(space: Space, model: EmbeddingModel) -> bool:
    return (space.embedder, space.version, space.dims) == (
        model.embedder,
        model.version,
        model.dims,
    )


async def drop(conn: Connection, space: Space, *, principal: str) -> JobId:
    """Mark a space for removal in the caller's transaction: writes to it stop, and a job removes it."""
    await spaces.set_state(conn, space.id, SpaceState.DROPPING)
    return await enqueue(conn, _drop_job(space, principal, delay_seconds=0.0))


def _drop_job(space: Space, principal: str, *, delay_seconds: float) -> NewJob:
    return NewJob(
        kind=JobKind.DROP_SPACE,
        container_id=space.container_id,
        doc_key=f"space:{space.id}",
        payload={"space_id": space.id},
        priority=PRIORITY_LATER,
        delay_seconds=delay_seconds,
        max_attempts=20,
        principal=principal,
    )


async def switch(
    conn: Connection,
    container_id: str,
    to: int,
    *,
    keep_days: float,
    lease_seconds: float,
    principal: str,
    action: str = "container.switch",
    request_id: str | None = None,
    moves: bool = False,
) -> SpaceSwitch:
    """Make ``to`` the live space; the previous one is kept for ``keep_days``. With ``moves`` the vectors are the same
    in another collection.

    ``NotComplete`` if a visible document has no vectors there. Runs in the caller's transaction. Lock order after the
    job's row: container → space points → queued jobs.
    """
    container = await _locked(conn, container_id)
    old = container.space
    new = next((s for s in await containers.spaces(conn, container_id) if s.id == to), None)
    if new is None or new.state not in (SpaceState.BUILDING, SpaceState.RETIRED):
        raise Conflict(f"Container '{container_id}' has no space {to} that can become live.")
    if new.collection_id != old.collection_id:
        await _require_complete(conn, new)
        await space_points.note_all_live(conn, container_id, old.collection_id)
    kept = max(keep_days, MIN_LEASES_KEPT * lease_seconds / DAY_SECONDS)
    await spaces.set_state(conn, old.id, SpaceState.RETIRED, keep_days=kept)
    await spaces.set_state(conn, new.id, SpaceState.LIVE)
    manifest = container.manifest if moves else named_like(container.manifest, new)
    await spaces.point(conn, container_id, new.id, manifest.model_dump_json(), etag(manifest))
    await audit.note(
        conn,
        principal=principal,
        action=action,
        container_id=container_id,
        object_=f"{old.embedder} {old.version} → {new.embedder} {new.version}",
        request_id=request_id,
    )
    if new.collection_id != old.collection_id and not moves:
        await enqueue_dedup(conn, container_id, principal=principal)
    await enqueue(conn, _drop_job(old, principal, delay_seconds=kept * DAY_SECONDS))
    return SpaceSwitch(old, new)


async def _require_complete(conn: Connection, space: Space) -> None:
    lacking = await space_points.missing(conn, space.container_id, space.collection_id, limit=1)
    if lacking:
        raise NotComplete(
            f"Document {lacking[0].id} has no vectors of {space.embedder} {space.version} yet",
            doc_id=str(lacking[0].id),
        )


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """Result of a rollback."""

    aborted: Space | None
    """A build that was not live yet."""
    switched: SpaceSwitch | None


async def note_before_rollback(conn: Connection, container_id: str) -> None:
    """Record what the live space holds, before the rollback's own transaction, which blocks publications."""
    container = await containers.get(conn, container_id)
    found = await containers.spaces(conn, container_id)
    back = _latest(found)
    if container is None or back is None or any(s.state is SpaceState.BUILDING for s in found):
        return
    if back.collection_id != container.space.collection_id:
        await space_points.note_all_live(conn, container_id, container.space.collection_id)


def _latest(found: Sequence[Space]) -> Space | None:
    """The space that was live last before the current one."""
    kept = [s for s in found if s.state is SpaceState.RETIRED and s.retired_at is not None]
    return max(kept, key=lambda space: (space.retired_at, space.id), default=None)


async def rollback(
    conn: Connection,
    container_id: str,
    *,
    keep_days: float,
    lease_seconds: float,
    principal: str,
    request_id: str | None = None,
) -> RollbackResult:
    """Drop an unfinished build; without one, switch back to the previous live space.

    Runs in the caller's transaction. ``Conflict`` if the container is not active, a refresh is running, or there is
    no previous space.
    """
    container = await _locked(conn, container_id)
    require_active(container)
    running = await open_refresh(conn, container_id)
    if running is not None:
        raise Conflict(
            f"Job {running} is refreshing container '{container_id}'. Cancel the job first."
        )
    found = await containers.spaces(conn, container_id)
    building = [space for space in found if space.state is SpaceState.BUILDING]
    if building:
        await drop(conn, building[0], principal=principal)
        await audit.note(
            conn,
            principal=principal,
            action="container.rollback",
            container_id=container_id,
            object_=f"{building[0].embedder} {building[0].version} given up",
            request_id=request_id,
        )
        return RollbackResult(building[0], None)
    latest = _latest(found)
    if latest is None:
        raise Conflict(
            f"Container '{container_id}' has no earlier space; its live space is"
            f" {container.space.embedder} {container.space.version}."
        )
    try:
        switched = await switch(
            conn,
            container_id,
            latest.id,
            keep_days=keep_days,
            lease_seconds=lease_seconds,
            principal=principal,
            action="container.rollback",
            request_id=request_id,
        )
    except NotComplete as exc:
        raise Conflict(f"{exc.message}: {_makes_up(container, latest)}", **exc.details) from exc
    return RollbackResult(None, switched)


def _makes_up(container: Container, latest: Space) -> str:
    """The command that builds a complete space like ``latest``."""
    command = f"`latent refresh {container.id} --strategy parallel"
    live = container.space
    if (latest.embedder, latest.version, latest.dims) == (live.embedder, live.version, live.dims):
        return f"run {command}` to build a complete space of the same model and switch to it"
    target = f"--to {latest.embedder} --version {latest.version} --dims {latest.dims}"
    return f"run {command} {target}` to complete it and switch back"


async def may_be_dropped(conn: Connection, container_id: str, space_id: int) -> Space | None:
    """The space, marked as dropping; None if it is in use, must be kept, or does not exist."""
    if not await spaces.lock(conn, container_id):
        return None
    found = [s for s in await containers.spaces(conn, container_id) if s.id == space_id]
    for space in found:
        if space.state is SpaceState.DROPPING:
            return space
        if space.state is SpaceState.RETIRED and await spaces.overdue(conn, space.id):
            await spaces.set_state(conn, space.id, SpaceState.DROPPING)
            return space
    return None


async def remove_space(
    db: Database, index: VectorIndex, space: Space, checkpoint: Checkpoint
) -> None:
    """Remove the collection (unless another space reads it), the records of its points, then the space's row."""
    async with db.transaction() as conn:
        shared = await spaces.is_shared(conn, space.container_id, space.id, space.collection_id)
    if not shared:
        await checkpoint()
        await index.drop_collection(space.collection())
        gone = ROWS_PER_TRANSACTION
        while gone >= ROWS_PER_TRANSACTION:
            await checkpoint()
            async with db.transaction() as conn:
                gone = await space_points.forget_some(
                    conn, space.container_id, space.collection_id, ROWS_PER_TRANSACTION
                )
    async with db.transaction() as conn:
        await spaces.remove(conn, space.id)
