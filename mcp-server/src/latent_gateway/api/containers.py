"""Containers: list, describe, create, change, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from latent_core.db import audit, container_sizes, containers, embed_usage, golden
from latent_core.db.containers import Container, Space
from latent_core.domain import cursors
from latent_core.domain.errors import Issue, IssueCode, PreconditionFailed
from latent_core.domain.golden import GoldenSet
from latent_core.domain.manifest.model import Manifest, check_offered, parse_manifest
from latent_core.domain.text import Text
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_container
from latent_core.ingest.stage import enqueue_dedup
from latent_core.refresh import manifest_plan
from latent_core.wire.container_sizes import MAX_DAYS, StoreSizesAnswer
from latent_core.wire.containers import (
    ContainerCreated,
    ContainerList,
    ContainerState,
    ContainerStateAnswer,
    ContainerSummary,
    ContainerUpdated,
    DescribedContainer,
    ManifestBody,
    NewContainerBody,
    StateBody,
)
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.manifest_plan import ManifestPlanAnswer
from latent_gateway.api.refresh import MAX_GOLDEN
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import PreconditionRequired, json_answer
from latent_gateway.golden_files import files_of
from latent_gateway.manifest_sync import write_files
from latent_gateway.middleware.conditional import IfNoneMatch, tagged_answer, version_of

router = APIRouter(tags=["containers"])


def summary(container: Container, missing: str | None = None) -> ContainerSummary:
    manifest = container.manifest
    return ContainerSummary(
        id=container.id,
        name=manifest.name,
        modalities=[m.value for m in manifest.modalities],
        dims=container.space.dims,
        state=container.state,
        missing=missing,
    )


def summaries(shared: Gateway, page: Sequence[Container]) -> list[ContainerSummary]:
    made_by = {c.id: (c.space.embedder, c.space.version) for c in page}
    missing = {pair: shared.stack.embedders.lacking(*pair) for pair in set(made_by.values())}
    return [summary(c, missing[made_by[c.id]]) for c in page]


@router.get("/v1/containers/list", response_model=ContainerList)
async def list_containers(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    limit: Annotated[int | None, Query(ge=1, le=cursors.MAX_PAGE)] = None,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """The containers that this token may read, ordered by id. All of them unless there is a limit."""
    after = "" if cursor is None else cursors.decode(cursor)
    async with shared.stack.db.transaction() as conn:
        readable = await access.all_readable(conn, caller)
    found = sorted((c for c in readable if c.id > after), key=lambda c: c.id)
    page = found if limit is None else found[:limit]
    answer = ContainerList(
        containers=summaries(shared, page),
        next_cursor=cursors.encode(page[-1].id) if len(page) < len(found) else None,
    )
    return json_answer(answer, request_id)


@router.get("/v1/containers/describe", response_model=DescribedContainer)
async def describe(
    container_id: Annotated[Text, Query(max_length=64)],
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One container: its manifest, its contents, and the time of the last ingest."""
    body = await description(shared, caller, container_id)
    return tagged_answer(body, request_id, if_none_match, version=body.etag)


async def description(shared: Gateway, caller: Principal, container_id: str) -> DescribedContainer:
    """The answer of ``describe``; ``NotFound`` if the principal may not read the container."""
    async with shared.stack.db.transaction() as conn:
        container = await access.readable_one(conn, caller, container_id)
        sizes, last = await containers.sizes(conn, container.id)
        usage = await embed_usage.of_container(conn, container.id)
    space = container.space
    made_by: dict[str, Any] = {
        "embedder": space.embedder,
        "version": space.version,
        "dims": space.dims,
    }
    if missing := shared.stack.embedders.lacking(space.embedder, space.version):
        made_by["missing"] = f"{missing}. Until then it is searched by keywords only"
    if usage.texts:
        made_by["usage"] = asdict(usage)
    return DescribedContainer(
        manifest=container.manifest.model_dump(mode="json"),
        sizes=sizes,
        last_ingest_at=last,
        state=container.state,
        etag=container.etag,
        embedder=made_by,
    )


@router.post("/v1/containers", response_model=ContainerCreated, status_code=201)
async def create(
    body: NewContainerBody,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
) -> Response:
    """Create a container from a manifest, and write its files into the manifest folder."""
    manifest = parse_manifest(body.manifest)
    answer, space = await created(manifest, shared, caller, request_id, body.golden)
    shared.warmer.soon(space)
    return json_answer(answer, request_id, status=201, headers={"ETag": f'"{answer.etag}"'})


async def created(
    manifest: Manifest,
    shared: Gateway,
    caller: Principal,
    request_id: str,
    golden_set: GoldenSet | None = None,
    source: str | None = None,
) -> tuple[ContainerCreated, Space]:
    """The new container, which is stored, and the space whose model is loaded next. ``source``: the manifest's YAML, for
    its comments."""
    access.check_creation(caller, manifest.id)
    access.check_kept(caller, manifest)
    offer_issues = _check_usable(shared, manifest)
    stack = shared.stack
    container = await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        stack.embedders,
        manifest,
        principal=caller.name,
        request_id=request_id,
    )
    if golden_set is not None:
        async with stack.db.transaction() as conn:
            version = await golden.begin(conn, manifest.id, caller.name)
            await golden.replace(conn, manifest.id, golden_set, version)
    files = await write_files(shared.settings.manifests, manifest, source)
    answer = ContainerCreated(
        container=summary(container), etag=container.etag, files=files, issues=offer_issues
    )
    return answer, container.space


@router.put("/v1/containers/{container_id}", response_model=ContainerUpdated)
async def change(
    container_id: str,
    body: ManifestBody,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    if_match: Annotated[str | None, Header(max_length=256)] = None,
) -> Response:
    """Replace the manifest of an active container if its version is still the one in ``If-Match``."""
    if if_match is None:
        raise PreconditionRequired(
            "If-Match is missing: send the ETag of the version that you change (from describe)"
        )
    manifest = parse_manifest(body.manifest)
    answer = await changed(shared, caller, container_id, manifest, version_of(if_match), request_id)
    return json_answer(answer, request_id, headers={"ETag": f'"{answer.etag}"'})


async def changed(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    manifest: Manifest,
    version: str,
    request_id: str,
) -> ContainerUpdated:
    """Store the manifest; ``PreconditionFailed`` if its etag is no longer ``version``."""
    offer_issues = _check_usable(shared, manifest)
    async with shared.stack.db.transaction() as conn:
        current = await access.changed_alone(conn, caller, container_id)
        manifest = founding.completed(manifest, current)
        access.check_kept(caller, manifest)
        founding.check_change(current, manifest, shared.stack.blobs)
        etag = founding.etag(manifest)
        if not await containers.update_manifest(conn, manifest, etag, version):
            raise PreconditionFailed(
                f"container '{container_id}' has changed in the meantime: describe it again, then apply",
                etag=current.etag,
            )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="container.apply",
            container_id=container_id,
            object_=etag,
            request_id=request_id,
        )
        if manifest.dedup != current.manifest.dedup:
            await enqueue_dedup(conn, container_id, principal=caller.name)
        container = await access.owned(conn, caller, container_id)
    return ContainerUpdated(
        container=summary(container), etag=etag, changed=etag != current.etag, issues=offer_issues
    )


def _check_usable(shared: Gateway, manifest: Manifest) -> list[Issue]:
    """``Invalid`` for what this installation does not offer; issues for keys without an effect here."""
    issues = check_offered(manifest, shared.settings.blob_bucket)
    shared.stack.rerankers.check(manifest.retrieval.rerank.provider)
    shared.stack.language_models.check(manifest)
    return issues


@router.post("/v1/containers/{container_id}/plan", response_model=ManifestPlanAnswer)
async def plan(
    container_id: str, body: ManifestBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """What the manifest would change, which refresh makes stored documents follow, and what that takes. Changes
    nothing."""
    answer = await planned(shared, caller, container_id, parse_manifest(body.manifest))
    return json_answer(answer, request_id)


async def planned(
    shared: Gateway, caller: Principal, container_id: str, manifest: Manifest
) -> ManifestPlanAnswer:
    """The plan of a manifest that could be stored; ``Invalid`` says why it could not."""
    async with shared.stack.db.reading() as conn:
        current = await access.owned(conn, caller, container_id)
        golden_set = await golden.read(conn, current.id, MAX_GOLDEN)
    issues = _check_usable(shared, manifest)
    manifest = founding.completed(manifest, current)
    access.check_kept(caller, manifest)
    stack = shared.stack
    queries = 0 if golden_set is None else len(golden_set.queries)
    found = await manifest_plan.plan(
        stack.db, stack.embedders, stack.blobs, current, manifest, queries
    )
    return ManifestPlanAnswer(plan=found, issues=issues)


@router.get("/v1/containers/{container_id}/sizes", response_model=StoreSizesAnswer)
async def sizes(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 90,
) -> Response:
    """What the container takes in each store, one measurement per day. Workers measure it every hour."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await container_sizes.history(conn, container.id, days)
    return json_answer(StoreSizesAnswer(sizes=found), request_id)


@router.put("/v1/containers/{container_id}/state", response_model=ContainerStateAnswer)
async def set_state(
    container_id: str, body: StateBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Set the state of a container: active, readonly (no changes) or archived (no changes, no searches)."""
    answer = await state_set(shared, caller, container_id, body.state, request_id)
    return json_answer(answer, request_id)


async def state_set(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    state: ContainerState,
    request_id: str,
) -> ContainerStateAnswer:
    """The container in its new state, which is stored."""
    async with shared.stack.db.transaction() as conn:
        before = await access.owned(conn, caller, container_id)
        is_new = before.state is not state
        if is_new:
            await containers.set_state(conn, container_id, state)
            await audit.note(
                conn,
                principal=caller.name,
                token_id=caller.token_id,
                action="container.state",
                container_id=container_id,
                object_=state.value,
                request_id=request_id,
            )
        container = await access.owned(conn, caller, container_id)
    return ContainerStateAnswer(container=summary(container), changed=is_new)


@router.delete("/v1/containers/{container_id}", response_model=JobAccepted, status_code=202)
async def delete(
    container_id: str, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Delete a container. It is invisible at once; a job removes it from all stores. A container that is not active
    must be set to active first."""
    answer = await deleted(shared, caller, container_id, request_id)
    return json_answer(answer, request_id, status=202)


async def deleted(
    shared: Gateway, caller: Principal, container_id: str, request_id: str
) -> JobAccepted:
    """The job that removes the container, which is invisible from now on."""
    async with shared.stack.db.transaction() as conn:
        container = await access.changed_alone(conn, caller, container_id)
        job_id = await delete_container(conn, container.id, principal=caller.name)
        if job_id is None:
            raise access.unknown(container_id)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="container.delete",
            container_id=container_id,
            object_=None,
            request_id=request_id,
        )
    shared.stack.wake()
    files = await asyncio.to_thread(files_of, shared.settings.manifests, container.id)
    offer_issues = [_golden_stay(container.id, files)] if files else []
    return JobAccepted(job_id=job_id, issues=offer_issues)


def _golden_stay(container_id: str, names: list[str]) -> Issue:
    return Issue(
        code=IssueCode.POLICY,
        message=f"golden queries of '{container_id}' stay in the manifest folder ({', '.join(names)}), since people "
        "write them: remove them unless a new container of that id is to take them at the next start",
        details={"files": names},
    )
