"""Refresh: a new embedding space beside the live one, the switch to it, and the way back (DESIGN §7.4).

Which space is searched is one column of the container's row. A request reads it once; publications hold that
row in share mode, so that the transaction which changes it knows exactly what is live and finds nothing missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from latent_core.db import audit, containers
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container, Space
from latent_core.db.spaces import space_points, spaces
from latent_core.domain.container import ContainerState
from latent_core.domain.errors import Conflict, Forbidden, NotFound
from latent_core.domain.ids import JobId, SpaceId
from latent_core.domain.job import PRIORITY_LATER, JobKind, NewJob
from latent_core.domain.manifest.embedder_name import is_local
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.refresh import (
    RefreshPayload,
    RefreshRequest,
    RefreshTarget,
    SpaceState,
    Strategy,
)
from latent_core.ingest.containers import ModelLookup, etag
from latent_core.ingest.dedup import enqueue_dedup
from latent_core.ingest.stage import Checkpoint
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.queue.admin import open_refresh
from latent_core.queue.enqueue import enqueue
from latent_core.vectors.port import VectorIndex

MIN_LEASES_KEPT: Final = 2
"""Requests and attempts that began in a space may still be at it."""
ROWS_PER_TRANSACTION: Final = 5000
DAY_SECONDS: Final = 86_400.0


class NotComplete(Conflict):
    """Something that is visible has no vectors in the space that is to be switched to."""

    transient = True


@dataclass(frozen=True, slots=True)
class RefreshStarted:
    job_id: JobId
    space: SpaceId
    """That is built, or re-embedded."""


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
    """With the embedder that the vectors would be of. A local one has the version and dimensions it has; a server
    does not tell them, so what is not said of the container's own stays as it is."""
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
    """Make or choose the space and enqueue the job, in the caller's transaction.

    ``payload`` says how; its space is filled in. ``Conflict`` when a refresh is under way or nothing would
    change; ``Invalid`` when the embedder is not to be had; ``Forbidden`` when nothing would measure the new space
    of a container that is to be evaluated.
    """
    container = await _locked(conn, container_id)
    require_active(container)
    running = await open_refresh(conn, container_id)
    if running is not None:
        raise Conflict(
            f"job {running} refreshes container '{container_id}' already: wait for it, or cancel it",
            job_id=running,
        )
    _check_measured(container, request, payload)
    resolved: dict[str, Any] = {"space_id": container.space.id}
    if request.strategy is not Strategy.REPARSE:
        model = _model(models, container, request)  # nothing is given up for what is not to be had
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
    return RefreshStarted(job_id, SpaceId(payload.space_id))


def _check_measured(container: Container, request: RefreshRequest, payload: RefreshPayload) -> None:
    """``eval.enabled`` promises that no other space is switched to unmeasured."""
    switches = request.strategy in (Strategy.PARALLEL, Strategy.DRIFT) and not request.force
    if switches and container.manifest.eval.enabled and payload.golden is None:
        raise Forbidden(
            f"container '{container.id}' has eval.enabled, and no golden queries to measure the new space by: "
            f"write manifests/{container.id}/eval.json, or use force to switch unmeasured",
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
    """The container, kept from publications and other switches until the transaction ends."""
    if not await spaces.lock(conn, container_id):
        raise NotFound(f"container '{container_id}' does not exist any more")
    container = await containers.get(conn, container_id)
    if container is None:
        raise NotFound(f"container '{container_id}' does not exist any more")
    return container


def require_active(container: Container) -> None:
    """``Conflict`` for one that its owner has closed: nothing of it is embedded anew, and no space takes over or back."""
    if container.state is not ContainerState.ACTIVE:
        raise Conflict(
            f"container '{container.id}' is {container.state.value} and is neither refreshed nor rolled back; make it active"
            f" (latent container state {container.id} active), then ask again or requeue the job",
            container_id=container.id,
            state=container.state.value,
        )


def _model(models: ModelLookup, container: Container, request: RefreshRequest) -> EmbeddingModel:
    """That the vectors are to be of; ``Invalid`` when it is not to be had."""
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
            f"container '{container.id}' has {model.embedder} {model.version} ({model.dims} dimensions) already: strategy"
            " inplace embeds it anew, and parallel without 'to' does so beside it"
        )
    if request.strategy is Strategy.DRIFT:
        await _clear_for_drift(conn, container, principal)
        return live.id  # a space is made when there is an adapter that is good enough
    return await _building(conn, container, model, principal)


async def _clear_for_drift(conn: Connection, container: Container, principal: str) -> None:
    if container.space.is_adapted:
        raise Conflict(
            f"container '{container.id}' is searched by way of an adapter already, and a second one would lose as"
            " much again: use strategy parallel"
        )
    for space in await containers.spaces(conn, container.id):
        if space.state is SpaceState.BUILDING:
            await drop(conn, space, principal=principal)


def require_same_space(container: Container, to: RefreshTarget | None) -> None:
    """Within one space nothing but the version may be another one."""
    live = container.space
    if live.is_adapted:
        raise Conflict(
            "the live space reads another one's vectors by way of an adapter: strategy parallel embeds them anew"
        )
    if to is not None and (to.embedder != live.embedder or (to.dims or live.dims) != live.dims):
        raise Conflict(
            "strategy inplace keeps embedder and dimensions; use strategy parallel to change them"
        )


async def _drop_readers(conn: Connection, live: Space, principal: str) -> None:
    """Adapters that were trained on the vectors which are about to be rewritten lead nowhere."""
    for space in await containers.spaces(conn, live.container_id):
        shares = space.id != live.id and space.collection_id == live.collection_id
        if shares and space.state is SpaceState.RETIRED:
            await drop(conn, space, principal=principal)


async def _building(
    conn: Connection, container: Container, model: EmbeddingModel, principal: str
) -> SpaceId:
    """One that was begun before and is of the same model, else a new one; another build is given up.

    One that was live before is taken again, but not for the model that is live: then its vectors are to be made anew.
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
    """Give a space up, in the caller's transaction: nothing is written to it any more, a job removes it."""
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
) -> SpaceSwitch:
    """Have the container searched in space ``to`` from the commit on; the space before is kept for a while.

    ``NotComplete`` when something visible has no vectors there. In the caller's transaction, after its job's
    row: container → what is embedded where → queued jobs.
    """
    container = await _locked(conn, container_id)
    old = container.space
    new = next((s for s in await containers.spaces(conn, container_id) if s.id == to), None)
    if new is None or new.state not in (SpaceState.BUILDING, SpaceState.RETIRED):
        raise Conflict(f"space {to} of container '{container_id}' is not there to be switched to")
    if new.collection_id != old.collection_id:
        await _require_complete(conn, new)
        await space_points.note_all_live(conn, container_id, old.collection_id)
    kept = max(keep_days, MIN_LEASES_KEPT * lease_seconds / DAY_SECONDS)
    await spaces.set_state(conn, old.id, SpaceState.RETIRED, keep_days=kept)
    await spaces.set_state(conn, new.id, SpaceState.LIVE)
    manifest = named_like(container.manifest, new)
    await spaces.point(conn, container_id, new.id, manifest.model_dump_json(), etag(manifest))
    await audit.note(
        conn,
        principal=principal,
        action=action,
        container_id=container_id,
        object_=f"{old.embedder} {old.version} → {new.embedder} {new.version}",
        request_id=request_id,
    )
    if new.collection_id != old.collection_id:
        await enqueue_dedup(conn, container_id, principal=principal)
    await enqueue(conn, _drop_job(old, principal, delay_seconds=kept * DAY_SECONDS))
    return SpaceSwitch(old, new)


async def _require_complete(conn: Connection, space: Space) -> None:
    lacking = await space_points.missing(conn, space.container_id, space.collection_id, limit=1)
    if lacking:
        raise NotComplete(
            f"document {lacking[0].id} has no vectors of {space.embedder} {space.version} yet",
            doc_id=str(lacking[0].id),
        )


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """What one step back did."""

    aborted: Space | None
    """A build that nobody had switched to."""
    switched: SpaceSwitch | None


async def note_before_rollback(conn: Connection, container_id: str) -> None:
    """Say what the live space holds in a transaction before the rollback's own, which keeps publications out."""
    container = await containers.get(conn, container_id)
    found = await containers.spaces(conn, container_id)
    back = _latest(found)
    if container is None or back is None or any(s.state is SpaceState.BUILDING for s in found):
        return
    if back.collection_id != container.space.collection_id:
        await space_points.note_all_live(conn, container_id, container.space.collection_id)


def _latest(found: Sequence[Space]) -> Space | None:
    """Of the spaces that were live, the last."""
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
    """Give a build up; where there is none, switch back to the space that was live before.

    One transaction, the caller's. ``Conflict`` when the container is closed, a refresh runs, or there is nothing to
    go back to.
    """
    container = await _locked(conn, container_id)
    require_active(container)
    running = await open_refresh(conn, container_id)
    if running is not None:
        raise Conflict(f"job {running} refreshes container '{container_id}': cancel it first")
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
            f"container '{container_id}' has no earlier space any more; it is searched by"
            f" {container.space.embedder} {container.space.version}"
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
    """What leads to ``latest``, or to one like it, though it is not complete."""
    command = f"`latent refresh {container.id} --strategy parallel"
    live = container.space
    if (latest.embedder, latest.version, latest.dims) == (live.embedder, live.version, live.dims):
        return f"{command}` makes another one of the same model and switches to it"
    target = f"--to {latest.embedder} --version {latest.version} --dims {latest.dims}"
    return f"{command} {target}` makes up for it and switches back"


async def may_be_dropped(conn: Connection, container_id: str, space_id: int) -> Space | None:
    """The space, marked so that nothing can go back to it; None when it is in use, to be kept, or gone."""
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
    """Its collection (unless another space reads it), what is known of its points, then its row."""
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
